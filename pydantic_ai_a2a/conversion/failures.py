"""A run's events as the answer's text and notes, for watching clients.

Only the end of a model response tells if its text is the answer: text beside a tool call is a note. So the text of each
response starts the answer anew, and the text of a response with tool calls is sent as a note, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.exceptions import (
    ConcurrencyLimitExceeded,
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    BaseToolCallPart,
    BaseToolReturnPart,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
)
from pydantic_ai.usage import RunUsage

from ..errors import BadInput, DownloadTimedOut, FileRefused, NoModel, StoreFailed, ToolConflict
from ..settings import Progress
from ..types import Note, Part, Step, TextDelta
from .message_limits import MOST_LEVELS, deeper_than
from .remote_calls import SYSTEM, remote_tool


class AnswerStream:
    """The answer of one run while the model writes it.

    Args:
        text_output: True if text of the model can be the run's output; otherwise there are only notes.
    """

    def __init__(self, text_output: bool) -> None:
        self._text_output = text_output
        self._chunks: list[str] = []
        self._anew = True

    def feed(self, event: AgentStreamEvent) -> TextDelta | None:
        """Return the text that an event adds to the answer; None if it adds no text."""
        if not self._text_output:
            return None
        if isinstance(event, PartDeltaEvent):
            return self._add(event.delta.content_delta) if isinstance(event.delta, TextPartDelta) else None
        return self._start(event) if isinstance(event, PartStartEvent) else None

    def begin_response(self) -> None:
        """Begin a response, perhaps another try at one that a hook has refused: its text is the answer anew."""
        self._anew = True

    def end_response(self, response: ModelResponse) -> Note | None:
        """End a complete response, streamed or not. Its text was a note if it calls tools, output tools included."""
        self._anew = True
        if not response.tool_calls or not (text := response.text) or text.isspace():
            return None
        return Note(text, of_model=True)

    @property
    def streamed(self) -> str | None:
        """The text that readers of live text have as the answer: deltas since the last `first`; None without deltas."""
        return ''.join(self._chunks) if self._chunks else None

    def _start(self, event: PartStartEvent) -> TextDelta | None:
        if isinstance(event.part, TextPart):
            is_question = event.part.provider_name == SYSTEM and event.part.provider_details is not None
            return None if is_question else self._add(event.part.content)
        if isinstance(event.part, NativeToolCallPart):
            # Pydantic AI's output is only the text after the last native tool call, if the response has such a call.
            self._anew = True
        return None

    def _add(self, text: str) -> TextDelta | None:
        if not text:
            return None
        first, self._anew = self._anew, False
        if first:
            self._chunks.clear()
        self._chunks.append(text)
        return TextDelta(text, first)


# --- thoughts and tool calls of a run, as steps for clients that may see them -----------------------------------------
# A thought is shown without its signature, a tool call without its result.


class StepsShown:
    """The steps of one agent's runs that its clients may see.

    Args:
        progress: The kinds of steps.
        hidden: Names of the tools whose arguments are hidden from clients.
    """

    any: bool
    """True if any steps are shown."""
    of_tools: bool
    """True if tool calls are shown."""

    def __init__(self, progress: Progress, hidden: Collection[str] = ()) -> None:
        self.any = progress.thinking or progress.tools
        self.of_tools = progress.tools
        self._thinking = progress.thinking
        self._hidden = hidden

    def of_event(self, event: AgentStreamEvent) -> Step | None:
        """Return the step in an event of the model's stream or of the tools; None for other events."""
        if isinstance(event, PartEndEvent):
            return self._of_part(event.part)
        if self.of_tools and isinstance(event, FunctionToolCallEvent):
            return self._call(event.part)
        if self.of_tools and isinstance(event, FunctionToolResultEvent):
            return _return(event.part)
        return None

    def of_response(self, response: ModelResponse) -> Iterator[Step]:
        """Return the steps in a complete response that was not streamed."""
        return (step for part in response.parts if (step := self._of_part(part)) is not None)

    def _of_part(self, part: ModelResponsePart) -> Step | None:
        """Return a thought, or a step of a tool that the provider runs."""
        if isinstance(part, ThinkingPart):
            return _thought(part.content) if self._thinking else None
        if self.of_tools and isinstance(part, NativeToolCallPart):
            return self._call(part)
        if self.of_tools and isinstance(part, NativeToolReturnPart):
            return _return(part)
        return None

    def _call(self, part: BaseToolCallPart) -> Step:
        is_hidden = part.tool_name in self._hidden or remote_tool(part) in self._hidden
        args = {} if is_hidden else part.args_as_dict()
        if deeper_than(MOST_LEVELS, args):
            args = {}
        return Step(Part(data=args, media_type='application/json'), _tool('call', part))


def _thought(text: str) -> Step | None:
    """Return the step of a thought; None for hidden thoughts, which have only a signature."""
    return Step(Part(text=text, media_type='text/plain'), {'progress': 'thinking'}) if text.strip() else None


def _return(part: BaseToolReturnPart) -> Step:
    return Step(Part(data={'outcome': part.outcome}, media_type='application/json'), _tool('return', part))


def _tool(phase: str, part: BaseToolCallPart | BaseToolReturnPart) -> dict[str, str]:
    return {'progress': 'tool', 'phase': phase, 'toolName': part.tool_name, 'toolCallId': part.tool_call_id}


# --- the turn of a task as a part of its conversation -----------------------------------------------------------------
# Closed after a cancellation, and appended at the end.

Entry: TypeAlias = tuple[str, str | None, ModelMessage]
"""A message of a conversation: its entry id, the id of the entry before, and the message."""


def closed(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """Return a turn that another prompt can follow: Pydantic AI takes no prompt after calls without results."""
    if messages and isinstance(last := messages[-1], ModelResponse) and last.tool_calls:
        return [*messages[:-1], replace(last, state='interrupted')]
    return messages


def appended(
    record: ConversationRecord | None,
    messages: Sequence[ModelMessage],
    *,
    rewritten: Sequence[ModelMessage] | None = None,
    read: str | None = None,
    conversation_id: str,
    owner: str,
    run_id: str,
    usage: RunUsage | None,
    at: int,
) -> tuple[ConversationRecord, list[Entry]]:
    """Return the record of a conversation after a turn, and the new entries.

    Args:
        record: The record before the turn; None for a new conversation.
        messages: The model messages of the turn.
        rewritten: The whole conversation with these messages, if the turn has summarised earlier messages. Then the
            conversation before becomes a branch, as when a `ConversationStore` saves a rewritten history.
        read: The newest entry that the turn has read. Messages after this entry are not lost: the turn is appended.
        conversation_id: The context id.
        owner: Owner of the context.
        run_id: Names the entries and the revision. A run appends once.
        usage: Usage of the turn; None for none.
        at: Time of the turn (ms).
    """
    head = None if record is None else record.head_id
    branches = [] if record is None else record.branches
    if rewritten is not None and head == read:
        messages, head, branches = rewritten, None, branches if head is None else [*branches, head]
    entries: list[Entry] = []
    for n, message in enumerate(messages):
        entry_id = f'{run_id}.{n}'
        entries.append((entry_id, head, message))
        head = entry_id
    usage = RunUsage() if usage is None else usage
    updated_at = datetime.fromtimestamp(at / 1000, UTC)
    changes: dict[str, Any] = {'head_id': head, 'branches': branches, 'revision': run_id, 'updated_at': updated_at}
    if record is None:
        return ConversationRecord(conversation_id=conversation_id, scope=owner, usage=usage, **changes), entries
    return replace(record, usage=record.usage + usage, **changes), entries


# --- the class of a run's failure, and the sentence about it for the client -------------------------------------------
# A client never reads an exception's own text, because it may hold a secret, a prompt or another user's data (§3.3.2).


class Failure(NamedTuple):
    """The public reason of a task's failure."""

    kind: str
    """Stable name of the class, in the status message's metadata."""
    sentence: str
    """Sentence for the client, the same for every failure of the class."""
    last: bool = False
    """True if the task's further messages are not run."""


SHUTDOWN = Failure('shutdown', 'The server shut down before the task was done.', last=True)
EXPIRED_ATTEMPTS = Failure('attempts', 'The task was started too many times and never ended.')

ENGINE_FAILED = Failure('engine', 'The engine that ran the task has ended the run.')
CHANGED_AGENT = Failure('changed-agent', 'The agent was changed while the task was running.')
CHANGED_AGENT_HINT = (
    'The agent no longer takes the steps of its workflow. Let the tasks of an agent end before you deploy another one.'
    ' At Temporal, you may also give each version a task_queue, or run worker versions.'
)
"""Says in the log how to avoid the failure."""

UNKNOWN = Failure('internal', 'The agent failed with an internal error.')
_BUSY = Failure('provider-busy', 'The model provider is busy; try again later.')
_CLASSES: tuple[tuple[type[BaseException], Failure], ...] = (
    (StoreFailed, Failure('storage', 'The store of the server failed.')),
    (NoModel, Failure('no-model', 'The agent has no model.')),
    (DownloadTimedOut, Failure('download', 'Files were not downloaded in time.')),
    (UsageLimitExceeded, Failure('usage-limit', 'The task reached its usage limit.')),
    (RunTimedOut, Failure('timeout', 'The task ran out of time.')),
    (ContentFilterError, Failure('refused-content', 'The model refused the content.')),
    (UnexpectedModelBehavior, Failure('bad-output', 'The model gave no usable answer.')),
    (ConcurrencyLimitExceeded, Failure('busy', 'The agent is busy; try again later.')),
    (ModelRateLimitError, _BUSY),
    (ModelQuotaExceededError, _BUSY),
    (ModelOverloadedError, _BUSY),
    (ModelUnavailableError, _BUSY),
    (ModelTimeoutError, _BUSY),
    (ModelAPIError, Failure('provider-error', 'The model provider failed.')),
)


class EngineFailure(Exception):
    """A failure of a run as an engine stores it: the fields of a `Failure`, and the usage, if known."""


_BUSY_STATUSES = frozenset({402, 429, 503, 529})
"""HTTP statuses of a busy provider, for a `ModelHTTPError` of none of the classes above."""


def classify(error: BaseException) -> Failure:
    """Return the failure of an exception: the first matching class, else an internal error."""
    if isinstance(error, BaseExceptionGroup):  # such as a FallbackModel's: the error of the last model
        group = cast('BaseExceptionGroup[BaseException]', error)
        return classify(group.exceptions[-1])
    if isinstance(error, EngineFailure):
        return Failure(*error.args[:3])
    if isinstance(error, BadInput):
        return Failure('bad-input', str(error))
    if isinstance(error, FileRefused):
        return Failure('refused-file', str(error))
    if isinstance(error, ToolConflict):
        return Failure('tool-conflict', str(error))
    if isinstance(error, ModelHTTPError) and error.status_code in _BUSY_STATUSES:
        return _BUSY
    return next((failure for kind, failure in _CLASSES if isinstance(error, kind)), UNKNOWN)


_TRANSIENT = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError, ModelRequestTimeout)


def is_transient(error: BaseException) -> bool:
    """Return whether the same request to the model may succeed later: the provider was busy, down or unreachable."""
    if isinstance(error, BaseExceptionGroup):  # a FallbackModel's: one of its models may answer then
        return any(map(is_transient, cast('BaseExceptionGroup[BaseException]', error).exceptions))
    if isinstance(error, ModelHTTPError) and (error.status_code in (408, 429) or error.status_code >= 500):
        return not isinstance(error, ModelQuotaExceededError)
    return isinstance(error, _TRANSIENT)


def retry_after(error: BaseException) -> float:
    """Return the seconds that the provider has asked to wait, the soonest of several providers; 0 for none."""
    if isinstance(error, BaseExceptionGroup):
        errors = filter(is_transient, cast('BaseExceptionGroup[BaseException]', error).exceptions)
        return min(map(retry_after, errors), default=0.0)
    return (isinstance(error, ModelAPIError) and error.retry_after) or 0.0
