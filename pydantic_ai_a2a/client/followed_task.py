"""A task followed to its end, over cut connections: by its stream, or by polling.

A stream that is silent for the whole patience may belong to a task that works, at an agent that sends no comments. So
the task is polled from then on, and given up only when the agent does not answer that either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Self

from ..backoff import backoff
from ..errors import (
    A2AError,
    MethodNotFoundError,
    OverloadedError,
    QuotaExceededError,
    RemoteUnavailable,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from ..task_states import INTERRUPTED, STOPPED
from ..types.a2a_objects import AgentCard, StreamResponse, Task
from ..types.operation_params import GetParams, SendParams, SubscribeParams
from ..wire.extensions.own_extensions import REPLAY_URI, SHORTEST_ID
from .answer_limits import MAX_ANSWER, MAX_VALUES
from .http_connections import NotConnected, Silent
from .interfaces import extensions_of
from .request_retries import Patience
from .task_size import TaskSize
from .transport import Transport
from .updates import START, Update, task_id_of

_FIRST_POLL = 0.1
_LAST_POLL = 3.0
"""The first and the longest pause between two looks at a task, in seconds."""
MOST_ENTRIES = 10_000
"""Most artifacts and keys of metadata of a task in a stream. Each event copies the references to all of them."""


class Follower:
    """Follows one task.

    Args:
        transport: The interface of the agent.
        streams: True if the agent streams; else the task is polled.
        patience: Seconds without an answer after which the agent is given up.
        may_repeat: True if a message may be sent again, because the agent runs a message only once.
    """

    def __init__(self, transport: Transport, *, streams: bool, patience: float, may_repeat: bool) -> None:
        self._transport = transport
        self.streams = streams
        self._patience = Patience(patience)
        self.may_repeat = may_repeat
        self._last = START
        self._task_id: str | None = None
        self._event_id: int | None = None
        self._size = TaskSize()
        self._done = False
        self._is_sent = False
        """True if the agent may have got the message."""

    @classmethod
    def of(
        cls, card: AgentCard, transport: Transport, patience: float, *, resend: bool = False, message_id: str = ''
    ) -> Self:
        """Return a follower of a task of the agent with a card.

        Args:
            card: The card.
            transport: The interface of the agent.
            patience: As for the class.
            resend: True to repeat the message at an agent that does not declare message replay, too.
            message_id: Id of the message that starts or continues the task; empty without a message.
        """
        streams = card['capabilities'].get('streaming', False)
        may_repeat = resend or (REPLAY_URI in extensions_of(card) and len(message_id) >= SHORTEST_ID)
        return cls(transport, streams=streams, patience=patience, may_repeat=may_repeat)

    async def send(self, params: SendParams, *, stream: bool) -> AsyncGenerator[Update, None]:
        """Send a message, and yield the events of its task.

        Args:
            params: The params of the message.
            stream: True for an answer that is a stream; else the first event is the answer as a whole.
        """
        while not self._done and self._task_id is None:
            try:
                if stream:
                    async with aclosing(self._read('SendStreamingMessage', params)) as updates:
                        async for update in updates:
                            yield update
                else:
                    yield self._take(await self._transport.call('SendMessage', params))
            except (A2AError, RemoteUnavailable) as error:
                if self._task_id is None:
                    params = await self._again(params, error, stream=stream)
                elif isinstance(error, Silent) and self._event_id is None:
                    self.streams = False
        if self._task_id is not None and not self._done:
            async with aclosing(self._rest(self._task_id)) as updates:
                async for update in updates:
                    yield update

    def subscribe(self, task_id: str, last_event_id: int | None) -> AsyncGenerator[Update, None]:
        """Yield the events of a task that there is already."""
        self._task_id, self._event_id = task_id, last_event_id
        return self._rest(task_id)

    async def _rest(self, task_id: str) -> AsyncGenerator[Update, None]:
        """Yield the further events of the task, until it stops."""
        try:
            while not self._done:
                # The official server of 0.3 sends artifacts twice to clients that subscribe again.
                subscribes = self.streams and self._transport.codec.dialect == '1.0'
                async with aclosing(self._resume(task_id) if subscribes else self._poll(task_id)) as updates:
                    async for update in updates:
                        yield update
        except RemoteUnavailable as error:
            text = f'{error} The task {task_id} may go on: read it with `get` or `subscribe`.'
            lost = RemoteUnavailable(text, retry_after=error.retry_after)
            lost.task_id = task_id
            raise lost from error

    async def _resume(self, task_id: str) -> AsyncGenerator[Update, None]:
        if self._event_id is None:
            # Some agents send no event if the task has already ended, so read the task first.
            if (update := await self._look(task_id)) is not None:
                yield update
            if self._done:
                return
        params = SubscribeParams(id=task_id)
        try:
            async with aclosing(self._read('SubscribeToTask', params)) as updates:
                async for update in updates:
                    yield update
        except (UnsupportedOperationError, MethodNotFoundError, Silent):
            self.streams = False  # the task has ended meanwhile, or the agent does not let clients subscribe
        except (A2AError, RemoteUnavailable) as error:
            await self._patience.wait(error)
        else:
            if self._event_id is None:
                # The agent does not number events: only the task has the events before the subscription.
                self._last = self._last.followed_by({'task': await self._get(task_id)})
                yield self._last

    async def _poll(self, task_id: str) -> AsyncGenerator[Update, None]:
        pauses = backoff(_FIRST_POLL, _LAST_POLL, factor=1.5)
        while not self._done:
            if (update := await self._look(task_id)) is not None:
                pauses = backoff(_FIRST_POLL, _LAST_POLL, factor=1.5)
                yield update
            if not self._done:
                await asyncio.sleep(next(pauses))

    async def _look(self, task_id: str) -> Update | None:
        """Return the task as an event; None if the task has not changed."""
        try:
            task = await self._get(task_id)
        except TaskNotFoundError:
            if self._last.context_id != task_id:
                raise
            # The task is another owner's, and the caller was its approver only until the decision.
            self._done = True
            return None
        before, self._last = self._last, self._last.followed_by({'task': task})
        self._done = self._last.state in STOPPED
        return self._last if self._last.is_news_after(before) else None

    async def _read(self, name: str, params: SendParams | SubscribeParams) -> AsyncGenerator[Update, None]:
        """Yield the events of one stream."""
        async with aclosing(self._transport.stream(name, params, last_event_id=self._event_id)) as stream:
            async for event, number, size in stream:
                if number is not None:
                    self._event_id = number
                self._count(event, size)
                yield self._take(event)
                if self._done and self._last.state in INTERRUPTED:
                    return  # the stream may stay open
        if not self._done:
            raise RemoteUnavailable(f'{self._transport.url} has ended the stream before the task.')

    def _count(self, event: StreamResponse, size: int) -> None:
        self._size.add(event, size)
        if self._size.characters > MAX_ANSWER:
            raise self._transport.unreadable(
                f'the events of the task hold more than {MAX_ANSWER} characters, or {MAX_VALUES} JSON values'
            )
        if self._size.entries > MOST_ENTRIES:
            raise self._transport.unreadable(
                f'the task has more than {MOST_ENTRIES} artifacts and keys of metadata. `get` reads the task'
            )

    def _take(self, event: StreamResponse) -> Update:
        if None not in (self._task_id, of := task_id_of(event)) and of != self._task_id:
            raise self._transport.unreadable(f'an event is of another task than {self._task_id}')
        before, update = self._last, self._last.followed_by(event)
        self._patience.answered(news=update.is_news_after(before))
        self._last = update
        self._task_id = self._task_id or update.task_id
        state = update.state
        self._done = state is None or state in STOPPED
        return update

    async def _get(self, task_id: str) -> Task:
        params = GetParams(id=task_id)
        while True:
            try:
                task: Task = await self._transport.call('GetTask', params)
            except (OverloadedError, QuotaExceededError, RemoteUnavailable) as error:
                await self._patience.wait(error)
            else:
                self._patience.answered(news=task != self._last.task)
                return task

    async def _again(self, params: SendParams, error: A2AError | RemoteUnavailable, *, stream: bool) -> SendParams:
        """Pause, if the message can be sent again. Return the params of the repeated message.

        Raises:
            RemoteUnavailable: The agent may have started a task, and another message would start another.
            A2AError: The agent has refused the message.
        """
        if isinstance(error, RemoteUnavailable) and not self.may_repeat and not isinstance(error, NotConnected):
            raise RemoteUnavailable(
                f'{error} The task may have been started. `resend=True` sends the message again, to agents that run a '
                'message only once.',
                retry_after=error.retry_after,
            ) from error
        if isinstance(error, Silent) and not stream and not params.return_immediately:
            # The answer takes as long as the task. The repeated message gets the task at once, which is followed then.
            self._patience.answered()
            return replace(params, return_immediately=True)
        self._is_sent = self._is_sent or not isinstance(error, NotConnected)
        try:
            await self._patience.wait(error)
        except RemoteUnavailable:
            if not self._is_sent:
                raise
            text = f'{error} The task may have been started: `list` has it then.'
            raise RemoteUnavailable(text, retry_after=error.retry_after) from error
        return params
