"""A conversation with a remote agent: each message continues it, or answers the task that waits."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Protocol, cast

from typing_extensions import TypeVar, Unpack

from ..arguments import checked
from ..errors import TaskNotFoundError, UnsupportedOperationError
from ..task_states import INTERRUPTED, TERMINAL
from ..wire.extensions.pending_calls_extension import with_question
from .message_content import Content, message_of
from .questions import question_id
from .results import RemoteResult, TaskClient
from .send_options import NO_TYPE, OutputT, OutputType, SendOptions, WaitOptions
from .text_sender import TextSender
from .updates import Update

OptionsT = TypeVar('OptionsT', SendOptions, WaitOptions)
AnswerT = TypeVar('AnswerT', RemoteResult[Any], Update)

_ENDED = (UnsupportedOperationError, TaskNotFoundError)
"""Errors of a message to a task that does not wait any more, such as after `RemoteResult.approve`."""


class ConversationClient(TaskClient, Protocol):
    """The methods of `A2AClient` that a conversation calls."""

    def stream(
        self, content: Content, *, output_type: OutputType[OutputT] | None = NO_TYPE, **options: Unpack[SendOptions]
    ) -> AsyncGenerator[Update[OutputT], None]:
        """See `A2AClient.stream`."""
        ...

    async def get(self, task_id: str, *, history_length: int | None = None) -> RemoteResult:
        """See `A2AClient.get`."""
        ...


class Conversation(TextSender):
    """A conversation with a remote agent: each message continues it, or answers the task that waits.

    Args:
        client: The client of the agent.
        context_id: Id of a conversation to continue. Default: a new conversation.
    """

    def __init__(self, client: ConversationClient, context_id: str | None = None) -> None:
        self._client = client
        self.context_id = context_id
        """Id of the conversation; None before the first answer."""
        self._waiting_task: str | None = None
        self._question: str | None = None
        """The question of the waiting task."""

    @checked
    async def send(
        self, content: Content, *, output_type: OutputType[OutputT] | None = NO_TYPE, **options: Unpack[WaitOptions]
    ) -> RemoteResult[OutputT]:
        """Send the next message of the conversation, and wait for the answer: see `A2AClient.send`."""
        try:
            sending = self._client.send(
                self._answer(content, options), output_type=output_type, **self._continued(options)
            )
            return self._keep(await sending)
        except _ENDED:
            if not await self._forgets(options):
                raise
        return await self.send(content, output_type=output_type, **options)

    @checked
    async def stream(
        self, content: Content, *, output_type: OutputType[OutputT] | None = NO_TYPE, **options: Unpack[SendOptions]
    ) -> AsyncGenerator[Update[OutputT], None]:
        """Send the next message of the conversation, and yield the events of its task: see `A2AClient.stream`."""
        message = self._answer(content, options)
        updates = self._client.stream(message, output_type=output_type, **self._continued(options))
        try:
            async with aclosing(updates):
                async for update in updates:
                    yield self._keep(update)  # before the caller may leave
            return
        except _ENDED:
            if not await self._forgets(options):
                raise
        async with aclosing(self.stream(content, output_type=output_type, **options)) as updates:
            async for update in updates:
                yield update

    def _continued(self, options: OptionsT) -> OptionsT:
        ids = {'context_id': self.context_id, 'task_id': self._waiting_task}
        return cast('OptionsT', {**{name: value for name, value in ids.items() if value is not None}, **options})

    def _answer(self, content: Content, options: SendOptions) -> Content:
        """Return a message to the waiting task as the answer to its question; another content as it is."""
        if self._question is None or 'task_id' in options:
            return content
        return with_question(message_of(content), self._question)

    def _keep(self, answer: AnswerT) -> AnswerT:
        self.context_id = answer.context_id or self.context_id
        outcome = answer.head if isinstance(answer, Update) else answer.outcome
        self._waiting_task = answer.task_id if answer.state in INTERRUPTED else None
        self._question = question_id(outcome)
        return answer

    async def _forgets(self, options: SendOptions) -> bool:
        """Forget the task that waited, if it has ended otherwise. Return False if it goes on, or was not meant."""
        if self._waiting_task is None or 'task_id' in options:
            return False
        with suppress(TaskNotFoundError):  # the task is gone
            task = await self._client.get(self._waiting_task, history_length=0)
            if task.state in INTERRUPTED:
                self._question = question_id(task.outcome)  # somebody else has answered the one before
            if task.state not in TERMINAL:
                return False
        self._waiting_task = self._question = None
        return True
