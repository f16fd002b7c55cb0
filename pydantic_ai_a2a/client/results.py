"""The results of messages: text, data, files and typed output, and answers to the agent's questions."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, Self, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import BinaryContent, FileUrl
from pydantic_ai.tools import ToolApproved, ToolDenied
from typing_extensions import Unpack

from ..arguments import checked
from ..errors import RemoteError, RemoteProtocolError
from ..json_values import dump_json
from ..notebooks import task_html, text_html
from ..task_states import INTERRUPTED
from ..type_names import type_name
from ..types.a2a_objects import AgentCard, Message, Part, Task, TaskState
from ..wire.extensions.remote_calls import open_calls
from .answer_content import (
    FAILED,
    answer_parts,
    as_lines,
    content_items,
    content_of,
    ending_of,
    named,
    status_message,
    value_of,
)
from .message_content import Content
from .output_validation import output_problem
from .question_answers import answer_message, answer_to
from .questions import PendingRemoteCall, RemoteQuestion, for_caller, question_of_task
from .remote_schemas import output_schema
from .send_options import NO_TYPE, OutputT, OutputType, SendOptions, WaitOptions


class TaskClient(Protocol):
    """Sends an answer of a result to its task, or cancels the task."""

    async def send(
        self, content: Content, *, output_type: OutputType[OutputT] | None = NO_TYPE, **options: Unpack[WaitOptions]
    ) -> RemoteResult[OutputT]:
        """See `A2AClient.send`."""
        ...

    async def cancel(self, task_id: str) -> RemoteResult:
        """See `A2AClient.cancel`."""
        ...


@dataclass(frozen=True)
class Sent:
    """What a result knows about its message."""

    client: TaskClient
    card: AgentCard
    options: SendOptions = field(default_factory=SendOptions)
    output_type: Any = None
    """The type of the output; None as the agent answers."""
    adapter: TypeAdapter[Any] | None = None
    """Reads the type of the output."""
    without_artifacts: bool = False
    """True for a task that was listed without its artifacts."""
    of_inbox: bool = False
    """True for a task of the inbox, whose question leaves out the approvals that only an approver can give."""

    def result(self, outcome: Task | Message) -> RemoteResult:
        """Return the result of a task or a message."""
        return RemoteResult(outcome, self)


class RemoteResult(Generic[OutputT]):
    """The answer of a remote agent: a task as it was last seen, or a message of an agent that answers without a task.

    A task that waits gets its answer by `approve`, `deny` or `answer`, each of which returns the next result.
    """

    def __init__(self, outcome: Task | Message, sent: Sent) -> None:
        self.outcome = outcome
        """The task, or the message of an agent that answers without a task, as FastA2A's `TypedDict`s."""
        self._sent = sent

    @property
    def task(self) -> Task | None:
        """The task; None if the agent has answered with a message."""
        return self.outcome if 'status' in self.outcome else None

    @property
    def state(self) -> TaskState | None:
        """State of the task, such as `completed`; None without a task."""
        return None if self.task is None else self.task['status']['state']

    @property
    def task_id(self) -> str:
        """Id of the task.

        Raises:
            RemoteError: The agent has answered without a task.
        """
        if self.task is None:
            raise RemoteError('The agent has answered with a message, without a task.')
        return self.task['id']

    @property
    def context_id(self) -> str | None:
        """Id of the conversation; None for a message without one."""
        return self.outcome.get('context_id')

    @property
    def text(self) -> str:
        """Text of the answer, with data as JSON and files by their names.

        Of a task that waits, the question. Of a task that has failed, was rejected or canceled, what the agent says
        about it.

        Raises:
            RemoteError: The task was listed without its artifacts.
        """
        if (waiting := self.waiting) is not None:
            return '\n'.join(call['text'] for call in waiting['pending']) or waiting['text']
        if self.task is not None and self.state in FAILED and 'message' in self.task['status']:
            return status_message(self.task)[0]
        return as_lines([[named(part) for part in parts] for parts in self._parts()])

    @property
    def data(self) -> Any:
        """Data of the answer, without the object around a typed result; a list for several values, None for none.

        Raises:
            RemoteError: The task was listed without its artifacts.
        """
        values = self._values()
        return values if len(values) > 1 else next(iter(values), None)

    @property
    def files(self) -> list[BinaryContent | FileUrl]:
        """Files of the answer, by their content or by a URL of HTTP. `output` also has other URLs.

        Raises:
            RemoteError: The task was listed without its artifacts.
            RemoteProtocolError: A file is not base64.
        """
        items = (item for parts in self._parts() for item in content_items(parts))
        return [item for item in items if isinstance(item, BinaryContent | FileUrl)]

    def _parts(self) -> list[list[Part]]:
        if self._sent.without_artifacts and self.state == 'completed':
            raise RemoteError(
                f'The task {self.task_id} was listed without its artifacts: use `include_artifacts=True`.'
            )
        return answer_parts(self.outcome)

    def _values(self) -> list[Any]:
        return [value_of(part) for parts in self._parts() for part in parts if 'data' in part]

    @cached_property
    def output(self) -> OutputT:
        """The answer in the form of `output_type`. Without that type: text, data or a file, or a list of several.

        Raises:
            RemoteError: The task has not completed, was listed without its artifacts, or its answer is not of this
                type, or does not fit the schema on the card.
            RemoteProtocolError: A file is not base64.
        """
        self.raise_for_state()
        self._parts()
        if self._sent.output_type is str:
            return cast('OutputT', self.text)
        if self._sent.adapter is not None:
            return self._validated(self._sent.adapter)
        if (fault := output_problem(self.outcome, output_schema(self._sent.card))) is not None:
            raise RemoteError(f'The answer of the agent does not fit the outputSchema of its card: {fault}.')
        return content_of(self.outcome)

    def _validated(self, adapter: TypeAdapter[OutputT]) -> OutputT:
        """Return the first of the answer's values that has the wanted type. A text may be the JSON of a value."""
        values, files = self._values(), self.files
        texts = [part.get('text', '') for parts in self._parts() for part in parts if 'text' in part] or ['']
        tries: list[tuple[Callable[[Any], OutputT], Any]] = []
        tries += [(adapter.validate_json, dump_json(value)) for value in (*values, *([values] if values else ()))]
        tries += [(adapter.validate_python, file) for file in (*files, *([files] if files else ()))]
        tries += [(adapter.validate_python, text) for text in texts] + [(adapter.validate_json, text) for text in texts]
        faults: list[ValidationError] = []
        for validate, value in tries:
            try:
                return validate(value)
            except ValidationError as error:
                faults.append(error)
        error = faults[0] if values else faults[-1]
        told = [': '.join(filter(None, ('.'.join(map(str, fault['loc'])), fault['msg']))) for fault in error.errors()]
        name, said = type_name(self._sent.output_type), reprlib.repr(self.text)
        raise RemoteError(f'The answer does not fit {name}: {"; ".join(told[:3])}. The agent said {said}.') from error

    def raise_for_state(self) -> Self:
        """Return this result if the task has completed, or if the agent has answered without a task.

        Raises:
            RemoteError: The task has failed, was rejected or canceled, waits for an answer, or has not ended.
        """
        if (waiting := self.waiting) is not None:
            raise RemoteError(f'The remote task {waiting["task"]} waits for an answer: {waiting["text"]}')
        if (task := self.task) is not None and self.state != 'completed':
            raise RemoteError(ending_of(task))
        return self

    # --- questions of the agent

    @property
    def waiting(self) -> RemoteQuestion | None:
        """The question and the pending calls of a task that waits, each with its text, arguments and schema; else None.

        Raises:
            RemoteProtocolError: Two calls have the same id, so an answer to one of them would answer both.
        """
        if self.task is None or self.state not in INTERRUPTED:
            return None
        waiting = question_of_task(self._sent.card['name'], self.task)
        return for_caller(waiting) if self._sent.of_inbox else waiting

    @property
    def pending(self) -> list[PendingRemoteCall]:
        """The pending calls of a task that waits. Empty for a question of the agent itself."""
        return [] if (waiting := self.waiting) is None else waiting['pending']

    @checked
    async def approve(
        self, *, call_id: str | None = None, args: dict[str, Any] | None = None, **options: Unpack[WaitOptions]
    ) -> RemoteResult[OutputT]:
        """Approve pending calls, and wait until the task has ended or waits again. Also says that a sign-in is done.

        Args:
            call_id: Id of the call, from `pending`. Default: all calls that wait for an approval.
            args: Arguments in place of those of the call. Default: those of the call.
            options: See `WaitOptions`. Default: those of the message.

        Raises:
            UserError: The task does not wait for this approval. For other errors, see `A2AClient.send`.
        """
        waiting = self._waits()
        calls = [call['id'] for call in open_calls(waiting) if call['kind'] == 'approval']
        if call_id is None and not calls and waiting['state'] != 'auth-required':
            raise UserError(f'The remote task asks: {waiting["text"]!r}. An approval is no answer: use `answer`.')
        if args is not None and call_id is None and len(calls) > 1:
            raise UserError(f'`args` are of one call: give the id of the call, one of {calls}.')
        decision = ToolApproved(override_args=args)
        return await self._decided(decision, calls if call_id is None else [call_id], options)

    @checked
    async def deny(
        self, reason: str | None = None, *, call_id: str | None = None, **options: Unpack[WaitOptions]
    ) -> RemoteResult[OutputT]:
        """Deny pending calls, and wait until the task has ended or waits again.

        A task that waits for information or a sign-in, without a call, is canceled, and the agent gets no reason.

        Args:
            reason: Reason for the agent. Default: none.
            call_id: Id of the call, from `pending`. Default: all pending calls.
            options: See `WaitOptions`. Default: those of the message.

        Raises:
            UserError: The task does not wait for this call. For other errors, see `A2AClient.send`.
        """
        calls = [call['id'] for call in open_calls(self._waits())] if call_id is None else [call_id]
        return await self._decided(ToolDenied() if reason is None else ToolDenied(reason), calls, options)

    @checked
    async def answer(
        self, value: Any, *, call_id: str | None = None, **options: Unpack[WaitOptions]
    ) -> RemoteResult[OutputT]:
        """Answer the question of a task, and wait until the task has ended or waits again.

        Args:
            value: Text or data for a question. For an approval True, False, `ToolApproved` or `ToolDenied`. For several
                calls a mapping of answers by the ids of the calls.
            call_id: Id of the call, from `pending`. Default: the one pending call, or the agent's own question.
            options: See `WaitOptions`. Default: those of the message.

        Raises:
            UserError: The answer does not suit the pending calls. For other errors, see `A2AClient.send`.
        """
        return await self._decided(value, [] if call_id is None else [call_id], options)

    def _waits(self) -> RemoteQuestion:
        if (waiting := self.waiting) is None:
            raise UserError('There is nothing to answer: the remote task does not wait.')
        return waiting

    async def _decided(self, value: Any, calls: Collection[str], options: WaitOptions) -> RemoteResult[OutputT]:
        """Send an answer to calls, or to the agent's own question if there are none."""
        waiting, sent = self._waits(), self._sent
        pending = {call['id'] for call in open_calls(waiting)}
        if unknown := [call for call in calls if call not in pending]:
            raise UserError(f'The remote task has no pending call {unknown[0]!r}, only {sorted(pending)}.')
        answer = answer_to(waiting, dict.fromkeys(calls, value) if calls else value)
        if 'denied' in answer:
            return cast('RemoteResult[OutputT]', await sent.client.cancel(waiting['task']))
        kept = cast('WaitOptions', {**answering(waiting, sent.options), **options})
        return await sent.client.send(answer_message(waiting, answer), output_type=sent.output_type, **kept)

    def __repr__(self) -> str:
        """Return the state and the beginning of the text, or the reason for which the text cannot be read."""
        try:
            shown = f'text={reprlib.repr(self.text)}'
        except RemoteProtocolError as error:
            shown = f'error={str(error)!r}'
        except RemoteError:  # listed without artifacts
            shown = f'task_id={self.task_id!r}'
        return f'RemoteResult(state={self.state!r}, {shown})'

    def _repr_html_(self) -> str:
        return text_html(self.text) if self.task is None else task_html(self.task)


def answering(waiting: RemoteQuestion, options: SendOptions) -> SendOptions:
    """Return the options of an answer to a task, which has its webhook and the results of other tasks already."""
    kept = {name: value for name, value in options.items() if name not in ('push', 'reference_task_ids')}
    return cast('SendOptions', {**kept, 'task_id': waiting['task'], 'context_id': waiting['context']})


def is_waiting(result: RemoteResult) -> bool:
    """Return True for a task that waits, also if its question is refused where it is read."""
    try:
        return result.waiting is not None
    except RemoteProtocolError:
        return True
