"""The vocabulary: what the layers pass to each other. Plain values; no I/O, no agent, no version, no binding.

Names and TypedDicts are FastA2A's where `fasta2a.schema` says what A2A 1.0 says. It differs from 1.0 in: roles and
states (`user`, `input-required` for `ROLE_USER`, `TASK_STATE_INPUT_REQUIRED`), `SecurityRequirement.schemes` (a list of
scopes for `{"list": [...]}`), `MessageSendConfiguration` (`blocking` for `returnImmediately`; `accepted_output_modes`
required), the push configuration methods' names, and `ListTasksResult` (all optional). The codecs bridge these.

What is stored is what is sent: messages, artifacts and events are kept as their A2A 1.0 JSON, so that a look-up joins
bytes. Times are integers, milliseconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from fasta2a.schema import Artifact, Message, Part, TaskState

__all__ = (
    'ANONYMOUS',
    'Artifact',
    'Call',
    'Caller',
    'CancelParams',
    'CardParams',
    'CreatePushParams',
    'GetParams',
    'ListParams',
    'ListPushParams',
    'Message',
    'Note',
    'Page',
    'Part',
    'PushParams',
    'PushTarget',
    'Registered',
    'SendParams',
    'Step',
    'StoredTask',
    'SubscribeParams',
    'TaskEvent',
    'TaskHeader',
    'TaskQuery',
    'TaskState',
    'TextDelta',
)


def _quoted(name: str) -> str:
    # The JSON that names callers, such as a token's claims, may hold lone surrogates, which UTF-8 has no place for.
    return quote(name, safe='', errors='surrogatepass')


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls: what `auth=` returns. Tasks and conversations are of a (tenant, id) or (tenant, owner)."""

    id: str = ''
    """Stable name of the caller; empty for an anonymous one."""
    tenant: str = ''
    """The tenant the caller acts in; empty where there are none."""
    owns_as: str = field(default='', compare=False)
    """Whose the caller's tasks and conversations are, within its tenant; empty: its own. Set by `Access.owner`."""
    scopes: frozenset[str] = field(default=frozenset(), compare=False)
    """What the caller may do, as its credentials say."""

    @property
    def anonymous(self) -> bool:
        """Whether nobody vouched for this caller. All anonymous callers of a tenant are one owner."""
        return not self.id

    @property
    def owner(self) -> str:
        """The key under which what the caller owns is stored."""
        own = self.owns_as or self.id
        return f'{_quoted(self.tenant)}/{_quoted(own)}' if self.tenant or own else '/'

    @classmethod
    def of(cls, owner: str) -> Caller:
        """A caller to whom belongs what is stored under an owner's key."""
        tenant, _, name = owner.partition('/')
        return cls(id=unquote(name, errors='surrogatepass'), tenant=unquote(tenant, errors='surrogatepass'))


ANONYMOUS = Caller()


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as the service sees it."""

    caller: Caller
    correlation_id: str
    """Names the call in logs, in `X-Correlation-Id` and in an error's details."""
    traceparent: str | None = None
    """W3C trace context of the caller, to continue its trace in another process."""
    kept: dict[str, Any] | None = None
    """What else a run may want to know of the call, as JSON values; None if no run does."""
    size: int = 0
    """Bytes of the request's body."""


class TaskEvent(NamedTuple):
    """One stored event of a task's log."""

    n: int
    """Its number in the task's log: from 1, without gaps, never used again. The SSE event id."""
    state: TaskState | None
    """The state of a status update; None for an artifact update."""
    payload: bytes
    """The A2A 1.0 `StreamResponse` as JSON: exactly one of `statusUpdate` and `artifactUpdate`."""


class TextDelta(NamedTuple):
    """Text that the model adds to the answer's artifact."""

    text: str
    first: bool
    """Whether a new answer begins: the artifact is replaced, not appended to."""


class Note(NamedTuple):
    """Text that the agent wrote on the way, before it called tools: a status update of the working task."""

    text: str


class Step(NamedTuple):
    """What the agent thinks or does on the way: a status update for whoever watches, and kept nowhere else."""

    part: Part
    metadata: dict[str, str]
    """Of the update's message: says what kind of step it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHeader:
    """A task without its messages and artifacts: what the life cycle decides on."""

    id: str
    context_id: str
    owner: str
    state: TaskState
    status_at: int
    """When the state was reached (ms)."""
    status_message: bytes | None
    """The status's message, as JSON."""
    metadata: bytes | None
    """The task's metadata, as a JSON object."""
    last_event: int
    """Number of the newest event in the log; 0 before the first."""
    dialect: str = '1.0'
    """Name of the codec that the task was created through."""
    queued: bool = False
    """True while the task waits for a worker: it is `submitted`, or `working` after an answer to its question."""


class StoredTask(NamedTuple):
    """A task as one consistent read gives it: everything up to `header.last_event`."""

    header: TaskHeader
    history: Sequence[bytes] | None
    """The newest messages asked for, oldest first; None if none were asked for."""
    artifacts: Sequence[bytes] | None
    """Its artifacts, assembled so far; None if they were not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """What ListTasks asks of storage (§3.1.4)."""

    owner: str | None
    """Only this owner's tasks; None for every owner's, which only the Python API asks for."""
    context_id: str | None = None
    state: TaskState | None = None
    since: int | None = None
    """Only tasks whose status is as new as this (ms, inclusive)."""
    page_size: int = 50
    before: tuple[int, str] | None = None
    """Where the page begins: after the task with this (status_at, id)."""
    max_bytes: int | None = None
    """What a page's messages and artifacts may come to, as they are stored: it ends before the task with which it would
    be more, but has one at least. None: there is no limit."""
    history_length: int | None = None
    include_artifacts: bool = False


class Page(NamedTuple):
    """One page of tasks, newest status first."""

    tasks: Sequence[StoredTask]
    next: tuple[int, str] | None
    """`TaskQuery.before` of the next page; None on the last one."""
    total: int
    """How many tasks match, over all pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendParams:
    """Decoded params of SendMessage and SendStreamingMessage (§3.1.1)."""

    message: Message
    return_immediately: bool = False
    history_length: int | None = None
    accepted_output_modes: tuple[str, ...] = ()
    push_config: PushTarget | None = None
    push_field: str = 'configuration.taskPushNotificationConfig'
    """The field of the params that has it."""
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    """Protocol extensions that the request activates (§4.6)."""
    dialect: str = '1.0'
    """Name of the codec that read them."""
    also_ends: frozenset[TaskState] = frozenset()
    """States that end the stream besides those of A2A 1.0."""
    tenant: str = ''
    """The tenant that the request names (§8.3.2); so in all params."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """Where notifications of a task are sent to, and with what (§4.3.1)."""

    id: str
    """Names it among those of its task; empty where the server is to choose."""
    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    """For the receiver, to know the sender by."""
    scheme: str | None = None
    """How the sender authenticates, such as `Bearer`."""
    credentials: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePushParams:
    """Decoded params of CreateTaskPushNotificationConfig (§3.1.7)."""

    task_id: str
    target: PushTarget
    field: str = ''
    """The field of the params that has the target; empty where the params are the target."""
    dialect: str = '1.0'
    """Name of the codec that read them."""
    tenant: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class PushParams:
    """Decoded params of the operations on one push notification configuration (§3.1.8, §3.1.10)."""

    task_id: str
    id: str = ''
    """The configuration; empty where 0.3 names none, and asks for any."""
    tenant: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPushParams:
    """Decoded params of ListTaskPushNotificationConfigs (§3.1.9)."""

    task_id: str
    page_size: int | None = None
    page_token: str = ''
    tenant: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class CardParams:
    """Decoded params of GetExtendedAgentCard (§3.1.11)."""

    tenant: str = ''


class Registered(NamedTuple):
    """A push notification configuration as it is answered."""

    task_id: str
    target: PushTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ListParams:
    """Decoded params of ListTasks (§3.1.4)."""

    context_id: str | None = None
    state: TaskState | None = None
    since: int | None = None
    page_size: int = 50
    page_token: str | None = None
    history_length: int | None = None
    include_artifacts: bool = False
    tenant: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class GetParams:
    """Decoded params of GetTask (§3.1.3)."""

    id: str
    history_length: int | None = None
    tenant: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelParams:
    """Decoded params of CancelTask (§3.1.5)."""

    id: str
    metadata: dict[str, Any] | None = None
    tenant: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeParams:
    """Decoded params of SubscribeToTask (§3.1.6)."""

    id: str
    also_ends: frozenset[TaskState] = frozenset()
    """States that end the stream besides those of A2A 1.0."""
    ended_too: bool = False
    """Whether a task that has ended is shown; A2A 1.0 refuses it."""
    last_event_id: int | None = None
    """The number of the last event that the client has; None for all events from now on, after the task."""
    tenant: str = ''
