"""A task followed to its end, over cut connections: by its stream, or by polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ..errors import (
    A2AError,
    MethodNotFoundError,
    OverloadedError,
    QuotaExceededError,
    RemoteUnavailable,
    UnsupportedOperationError,
)
from ..notebooks import HtmlTask
from ..types import (
    INTERRUPTED,
    STOPPED,
    Artifact,
    GetParams,
    Message,
    Part,
    SendParams,
    StreamResponse,
    SubscribeParams,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from .connections import MAX_ANSWER, MAX_VALUES, NotConnected, Patience, Silent
from .transport import Transport

if TYPE_CHECKING:
    from .results import RemoteResult

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
        if self._task_id is not None:
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
            lost = RemoteUnavailable(f'{error} The task {task_id} may go on: read it with `get` or `subscribe`.')
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
        except (UnsupportedOperationError, MethodNotFoundError):
            self.streams = False  # the task has ended meanwhile, or the agent does not let clients subscribe
        except (A2AError, RemoteUnavailable) as error:
            await self._patience.wait(error)
        else:
            if self._event_id is None:
                # The agent does not number events: only the task has the events before the subscription.
                self._last = self._last.followed_by({'task': await self._get(task_id)})
                yield self._last

    async def _poll(self, task_id: str) -> AsyncGenerator[Update, None]:
        pause = _FIRST_POLL
        while not self._done:
            if (update := await self._look(task_id)) is not None:
                pause = _FIRST_POLL
                yield update
            if not self._done:
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LAST_POLL)

    async def _look(self, task_id: str) -> Update | None:
        """Return the task as an event; None if the task has not changed."""
        before, self._last = self._last, self._last.followed_by({'task': await self._get(task_id)})
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
                'message only once.'
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
            raise RemoteUnavailable(f'{error} The task may have been started: `list` has it then.') from error
        return params


# --- a task as a client knows the task after each event (§4.2) --------------------------------------------------------
# An answer of n events takes n steps: no step copies the text of the steps before.


class Update:
    """One event of a task, and the task after the event: `event, task = update`. Later events do not change both."""

    __slots__ = ('_artifacts', '_context_id', '_count', '_fields', '_messages', 'event', 'result_of')

    result_of: Callable[[Task | Message], RemoteResult]
    """Makes the result of a task or message."""

    def __init__(
        self,
        event: StreamResponse,
        fields: Task | None = None,
        artifacts: Mapping[str, _Pieces] | None = None,
        messages: _Messages | None = None,
        count: int = 0,
        *,
        context_id: str | None = None,
    ) -> None:
        self.event = event
        """Exactly one of `task`, `message`, `status_update` and `artifact_update`."""
        self._fields = fields
        self._artifacts = artifacts
        """The artifacts instead of the artifacts of `_fields`; None while no event has changed an artifact."""
        self._messages = messages
        """The history instead of the history of `_fields`; None while no event has brought a message."""
        self._count = count
        """Messages that have arrived until the event."""
        self._context_id = context_id
        """Conversation of the messages without a task."""

    @property
    def task(self) -> Task | None:
        """The task assembled from all events so far; None if the agent answers with a message instead of a task.

        Each read joins the text that has come in pieces. `state` and `task_id` are cheaper.
        """
        if self._fields is None:
            return None
        changed: dict[str, Any] = {}
        if self._artifacts is not None:
            changed['artifacts'] = [artifact.value for artifact in self._artifacts.values()]
        if self._messages is not None:
            changed['history'] = self._messages.until(self._count)
        return cast('Task', HtmlTask(self._fields, **changed)) if changed else self._fields

    @property
    def task_id(self) -> str | None:
        """Id of the task; None without a task."""
        return None if self._fields is None else self._fields['id']

    @property
    def context_id(self) -> str | None:
        """Id of the conversation; None for a message without one."""
        return self._context_id if self._fields is None else self._fields.get('context_id')

    @property
    def state(self) -> TaskState | None:
        """State of the task; None without a task."""
        return None if self._fields is None else self._fields['status']['state']

    @property
    def head(self) -> Task | Message:
        """The outcome without what has come in pieces, such as text, so that no read joins anything."""
        if self._fields is not None:
            return self._fields
        message = cast('Message', self.event.get('message'))
        return message if self._context_id is None else {**message, 'context_id': self._context_id}

    @property
    def outcome(self) -> Task | Message:
        """The task, or the message of an agent that answers without a task. Pieces of a message are joined."""
        if (task := self.task) is not None:
            return task
        assert self._messages is not None, 'an event without a task is a message'
        return self._messages.until(self._count)[-1]

    @property
    def result(self) -> RemoteResult:
        """The task so far, as `A2AClient.send` returns it. Each read joins the text that has come in pieces."""
        return self.result_of(self.outcome)

    @property
    def text(self) -> str:
        """New text of the event: of a status, an artifact, a thought or a message. Empty for a whole task."""
        event = self.event
        if 'artifact_update' in event:
            parts = event['artifact_update']['artifact']['parts']
        else:
            status = event['status_update']['status'] if 'status_update' in event else event
            parts = [] if (message := status.get('message')) is None else message['parts']
        return ''.join(part.get('text', '') for part in parts)

    def __repr__(self) -> str:
        """Return the kind of the event, the state of the task, and the new text."""
        text = f', text={self.text!r}' if self.text else ''
        return f'Update({next(iter(self.event), None)}, state={self.state!r}{text})'

    def __iter__(self) -> Iterator[Any]:
        """Yield the event and the task."""
        yield self.event
        yield self.task

    def followed_by(self, event: StreamResponse) -> Update:
        """Return the update of the next event."""
        if 'artifact_update' in event:
            update = event['artifact_update']
            fields = self._fields or Task(
                id=update['task_id'], context_id=update['context_id'], status={'state': 'working'}
            )
            return Update(event, fields, self._with_artifact(update), self._messages, self._count)
        if 'status_update' in event:
            fields = self._with_status(event['status_update'])
            if (message := event['status_update']['status'].get('message')) is not None:
                return self._with_message(event, fields, message)
            return Update(event, fields, self._artifacts, self._messages, self._count)
        if 'task' in event:
            # Some agents send tasks without the artifacts and messages that they have streamed.
            task = event['task']
            artifacts = None if 'artifacts' in task else self._all_artifacts() or None
            messages = None if 'history' in task else self._messages
            return Update(event, task, artifacts, messages, self._count)
        return self._with_message(event, self._fields, cast('Message', event.get('message')))

    def _with_message(self, event: StreamResponse, fields: Task | None, message: Message) -> Update:
        history = [] if self._fields is None else self._fields.get('history', [])
        messages = self._messages or _Messages(history)
        count = messages.append(message, is_piece='message' in event)
        context_id = message.get('context_id') or self._context_id
        return Update(event, fields, self._artifacts, messages, count, context_id=context_id)

    def is_news_after(self, before: Update) -> bool:
        """Return True if the event has changed the task that the update before has."""
        # Without a comparison of texts, unless the event itself has them.
        is_changed = self._artifacts != before._artifacts or self._messages is not before._messages
        if 'task' in self.event and is_changed:
            return self.task != before.task
        return is_changed or self._count != before._count or self._fields != before._fields

    def _with_status(self, update: TaskStatusUpdateEvent) -> Task:
        task = self._fields or Task(id=update['task_id'], context_id=update['context_id'], status=update['status'])
        changed = cast('Task', HtmlTask(task, status=update['status']))
        if 'metadata' in update:
            changed['metadata'] = {**task.get('metadata', {}), **update['metadata']}
        return changed

    def _with_artifact(self, update: TaskArtifactUpdateEvent) -> dict[str, _Pieces]:
        chunk = update['artifact']
        artifact_id = chunk['artifact_id']
        artifacts = self._all_artifacts()
        before = artifacts.get(artifact_id) if update.get('append') else None
        artifacts[artifact_id] = _Pieces.of(chunk) if before is None else before.appended(chunk)
        return artifacts

    def _all_artifacts(self) -> dict[str, _Pieces]:
        if self._artifacts is not None:
            return {**self._artifacts}
        artifacts = () if self._fields is None else self._fields.get('artifacts', ())
        return {artifact['artifact_id']: _Pieces.of(artifact) for artifact in artifacts}


START = Update(StreamResponse())
"""The state before the first event."""


class _Messages:
    """The messages of a task, in the order of their arrival. Each moment is a count of messages.

    A message in the stream of a task is a piece of an answer: it continues the message with its id, else the piece
    before it with the same metadata. A status message with the id of another one continues or replaces it.
    """

    def __init__(self, history: Sequence[Message]) -> None:
        self._arrived = [(message, False) for message in history]
        self._read = 0
        self._entries: dict[str, _Pieces] = {}
        self._values: dict[str, Message] = {}
        self._piece = ''
        """Key of the last piece."""

    def append(self, message: Message, *, is_piece: bool) -> int:
        """Append a message; return the number of messages that have arrived."""
        self._arrived.append((message, is_piece))
        return len(self._arrived)

    def until(self, count: int) -> list[Message]:
        """Return the messages after a number of arrivals."""
        if count < self._read:
            earlier = _Messages([])
            earlier._arrived = self._arrived[:count]
            return earlier.until(count)
        changed = {self._add(*self._arrived[n]): None for n in range(self._read, count)}
        self._read = count
        self._values |= {key: self._entries[key].value for key in changed}
        return [*self._values.values()]

    def _add(self, message: Message, is_piece: bool) -> str:
        key = message['message_id'] or f'\n{len(self._entries)}'
        if is_piece:
            last = self._entries.get(self._piece)
            if key not in self._entries and last is not None and last.has_metadata_of(message):
                key = self._piece
            self._piece = key
        entry = self._entries.get(key)
        is_whole = entry is None or (not is_piece and entry.begins(message))
        self._entries[key] = _Pieces.of(message) if entry is None or is_whole else entry.appended(message)
        return key


class _Pieces:
    """An artifact or a message at one moment. The parts are shared with the same artifact at other moments."""

    __slots__ = ('_count', '_fields', '_length', '_parts', '_value')

    def __init__(self, fields: Mapping[str, Any], parts: _Parts) -> None:
        self._fields = fields
        self._parts = parts
        self._count, self._length = parts.count, parts.length
        self._value: Any = None

    @classmethod
    def of(cls, whole: Artifact | Message) -> _Pieces:
        """Return an artifact or a message whose parts have come at once."""
        return cls(whole, _Parts(whole['parts']))

    def has_metadata_of(self, message: Message) -> bool:
        """Return True if a message has the same metadata."""
        return self._fields.get('metadata') == message.get('metadata')

    def begins(self, message: Message) -> bool:
        """Return True if the text of a message begins with the text of this one."""
        text = ''.join(part.get('text', '') for part in message['parts'])
        return len(text) >= self._length and text.startswith(
            ''.join(part.get('text', '') for part in self.value['parts'])
        )

    @property
    def value(self) -> Any:
        """The artifact or the message with its parts."""
        if self._value is None:
            self._value = {**self._fields, 'parts': self._parts.until(self._count, self._length)}
        return self._value

    def appended(self, chunk: Artifact | Message) -> _Pieces:
        """Return the artifact or the message after a chunk."""
        for part in chunk['parts']:
            self._parts.append(part)
        return _Pieces({**self._fields, **chunk} if len(chunk) > 2 else self._fields, self._parts)


class _Parts:
    """The parts of an artifact. They grow at the end only, so that a count of parts and a length name each moment.

    The text of the last part is joined when somebody reads it. A copy for each piece took 20 seconds for 64 MiB in
    pieces of 60 kB.
    """

    __slots__ = ('_parts', '_pieces', 'count', 'length')

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [*parts]
        self._pieces: list[str] = []
        """Pieces of text that the last part lacks."""
        self.count = len(parts)
        self.length = len(parts[-1].get('text', '')) if parts else 0
        """Characters of text in the last part, with all pieces."""

    def append(self, part: Part) -> None:
        """Append a part. Text becomes the end of the text before, if both parts differ in nothing else."""
        text = part.get('text')
        if text is not None and self._parts and _is_text_like(self._parts[-1], part):
            self._pieces.append(text)
            self.length += len(text)
        else:
            self._join()
            self._parts.append(part)
            self.count += 1
            self.length = len(text or '')

    def until(self, count: int, length: int) -> list[Part]:
        """Return the first parts, the last of them with the first characters of its text."""
        self._join()
        parts = self._parts[:count]
        if parts and 'text' in parts[-1]:
            parts[-1] = cast('Part', {**parts[-1], 'text': parts[-1]['text'][:length]})
        return parts

    def _join(self) -> None:
        if self._pieces:
            last = self._parts[-1]
            self._parts[-1] = cast('Part', {**last, 'text': ''.join((last.get('text', ''), *self._pieces))})
            self._pieces = []


def _is_text_like(part: Part, other: Part) -> bool:
    """Return True for two text parts that differ in their text only."""
    return 'text' in part and (len(part) == len(other) == 1 or {**part, 'text': ''} == {**other, 'text': ''})


class TaskSize:
    """The size of a task that is assembled from events. Content that was replaced does not count."""

    def __init__(self) -> None:
        self._pieces: dict[str, int] = {}
        self.characters = 0
        """Characters of the events from which the task is assembled."""
        self.entries = 0
        """Artifacts and keys of metadata, at most: an entry of the first event and of a later event counts twice."""

    def add(self, event: StreamResponse, size: int) -> None:
        """Count an event of some characters."""
        if 'artifact_update' in event:
            update = event['artifact_update']
            piece = f'artifact {update["artifact"]["artifact_id"]}'
            self._put(piece, size + self._pieces.get(piece, 0) if update.get('append') else size)
        elif 'message' in event:
            self._put('messages', size + self._pieces.get('messages', 0))
        elif 'status_update' in event:
            is_message = 'message' in event['status_update']['status']
            self._put(*(('messages', size + self._pieces.get('messages', 0)) if is_message else ('status', size)))
            for key in event['status_update'].get('metadata', ()):
                self._put(f'metadata {key}', size)
        else:
            task = cast('Task', event.get('task'))
            kept = {} if 'artifacts' in task else {k: n for k, n in self._pieces.items() if k.startswith('artifact ')}
            said = {} if 'history' in task else {'messages': self._pieces.get('messages', 0)}
            self._pieces = {'task': size, **kept, **said}
            self.characters = sum(self._pieces.values())
            self.entries = len(task.get('artifacts', kept)) + len(task.get('metadata', ()))

    def _put(self, piece: str, size: int) -> None:
        before = self._pieces.get(piece)
        self.entries += before is None
        self.characters += size - (before or 0)
        self._pieces[piece] = size


def task_id_of(event: StreamResponse) -> str | None:
    """Return the task of an event; None for a message without a task."""
    if 'message' in event:
        return event['message'].get('task_id')
    if 'artifact_update' in event:
        return event['artifact_update']['task_id']
    if 'status_update' in event:
        return event['status_update']['task_id']
    return event['task']['id'] if 'task' in event else None
