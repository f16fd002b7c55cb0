"""The vocabulary: plain values that pass between the rooms.

Names and TypedDicts are FastA2A's where `fasta2a.schema` agrees with A2A 1.0. It differs from 1.0 in: roles and states
(`user`, `input-required` for `ROLE_USER`, `TASK_STATE_INPUT_REQUIRED`), `SecurityRequirement.schemes` (a list of scopes
for `{"list": [...]}`), `MessageSendConfiguration` (`blocking` for `returnImmediately`; `accepted_output_modes`
required), the push configuration methods' names, and `ListTasksResult` (all optional). The codecs translate these.

Messages, artifacts and events are stored as their A2A 1.0 JSON, the bytes that 1.0 sends, so that a look-up joins
bytes. Times are integers, milliseconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from os import urandom
from reprlib import recursive_repr
from string import printable
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import quote, unquote

# What the package uses of FastA2A outside `fasta2a` and `app`: other rooms import it from here.
from fasta2a.schema import AgentCapabilities as AgentCapabilities
from fasta2a.schema import AgentCard as AgentCard
from fasta2a.schema import AgentExtension as AgentExtension
from fasta2a.schema import AgentInterface as AgentInterface
from fasta2a.schema import AgentProvider as AgentProvider
from fasta2a.schema import ApiKeySecurityScheme as ApiKeySecurityScheme
from fasta2a.schema import Artifact as Artifact
from fasta2a.schema import HttpSecurityScheme as HttpSecurityScheme
from fasta2a.schema import ListTaskPushNotificationConfigResult as ListTaskPushNotificationConfigResult
from fasta2a.schema import ListTasksResult as ListTasksResult
from fasta2a.schema import Message as Message
from fasta2a.schema import OAuth2SecurityScheme as OAuth2SecurityScheme
from fasta2a.schema import OAuthFlows as OAuthFlows
from fasta2a.schema import OpenIdConnectSecurityScheme as OpenIdConnectSecurityScheme
from fasta2a.schema import Part as Part
from fasta2a.schema import SecurityRequirement as SecurityRequirement
from fasta2a.schema import SecurityScheme as SecurityScheme
from fasta2a.schema import Skill as Skill
from fasta2a.schema import StreamResponse as StreamResponse
from fasta2a.schema import Task as Task
from fasta2a.schema import TaskArtifactUpdateEvent as TaskArtifactUpdateEvent
from fasta2a.schema import TaskPushNotificationConfig as TaskPushNotificationConfig
from fasta2a.schema import TaskState as TaskState
from fasta2a.schema import TaskStatus as TaskStatus
from fasta2a.schema import TaskStatusUpdateEvent as TaskStatusUpdateEvent
from fasta2a.schema import agent_card_ta as agent_card_ta
from fasta2a.worker import Worker as Worker
from pydantic_core import ErrorDetails, ValidationError, from_json
from pydantic_core import to_json as _strict_json
from typing_extensions import dataclass_transform

T = TypeVar('T')

Key: TypeAlias = str | bytes | Mapping[str, Any]
"""A key pair or a public key: the text of a PEM file, or a JSON Web Key (RFC 7517)."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a dataclass with keyword-only fields and slots, whose objects do not change.

    Type checkers refuse changes, and running code does not. A frozen dataclass would write and compile six methods for
    each class, which took a third of the time of `from pydantic_ai_a2a import to_a2a`. A value has only its own
    `__init__`, and shares the other methods. Public options stay frozen dataclasses.
    """
    made = dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)
    for name, method in (('__eq__', _equal), ('__hash__', None), ('__repr__', _shown)):
        setattr(made, name, method)
    return made


def _equal(self: Any, other: object) -> bool:
    if type(other) is not type(self):
        return NotImplemented
    names = (item.name for item in fields(self) if item.compare)
    return all(getattr(self, name) == getattr(other, name) for name in names)


@recursive_repr()
def _shown(self: Any) -> str:
    values = (f'{item.name}={getattr(self, item.name)!r}' for item in fields(self) if item.repr)
    return f'{type(self).__qualname__}({", ".join(values)})'


def as_object(value: object) -> dict[str, Any]:
    """Return a value that should be a JSON object. Any other value becomes an empty object."""
    return cast('dict[str, Any]', value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a value that should be a JSON list. Any other value becomes an empty list."""
    return cast('list[Any]', value) if isinstance(value, list) else []


LARGEST = 2**53
"""The largest number that is taken from another party. JSON has no larger whole numbers that all readers know."""


def bounded(number: float | Decimal) -> float | Decimal:
    """Return a number that another party has reported, or the nearest number from 0 to 2**53. NaN becomes 0."""
    try:
        return max(0, min(number, LARGEST))
    except ArithmeticError:  # NaN of `Decimal`
        return 0


def count_of(reported: object) -> int:
    """Return a count that another party has reported, as a whole number from 0 to 2**53. What is no number is 0."""
    return int(bounded(reported)) if isinstance(reported, int | float | Decimal) else 0


def faults_of(error: ValidationError) -> Sequence[ErrorDetails]:
    """Return the faults of a value, without the value."""
    return error.errors(include_url=False, include_context=False, include_input=False)


def without_surrogates(value: Any) -> Any:
    """Return a value with U+FFFD in the place of each lone surrogate in its texts. Both halves of a pair are joined.

    A model may cut an emoji in two, and UTF-8 has no form for the halves.
    """
    match value:
        case str():
            return value.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')
        case dict():
            items = cast('dict[Any, Any]', value).items()
            return {without_surrogates(key): without_surrogates(item) for key, item in items}
        case list() | tuple():
            return [without_surrogates(item) for item in cast('Sequence[Any]', value)]
        case _:
            return value


def dump_json(value: Any, *, inf_nan_mode: Literal['null', 'constants', 'strings'] = 'constants') -> bytes:
    """Write JSON. Lone surrogates become U+FFFD."""
    try:
        return _strict_json(value, inf_nan_mode=inf_nan_mode)
    except ValueError:  # rarely: first look for surrogates only then
        return _strict_json(without_surrogates(value), inf_nan_mode=inf_nan_mode)


def new_correlation_id() -> str:
    """Return a name for one request or command, for its answer and the logs."""
    return urandom(8).hex()


def _quoted(name: str, plain: str = '') -> str:
    # Names of callers, such as the claims of a token, may have lone surrogates. UTF-8 cannot encode lone surrogates.
    return quote(name, safe=plain, errors='surrogatepass')


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request, as returned by `auth=`.

    The owner of tasks and conversations is a pair (tenant, id), or (tenant, owner) with `Access.owner`.
    """

    id: str = ''
    """Stable name of the caller; empty for an anonymous one."""
    tenant: str = ''
    """The tenant that the caller acts in; empty without tenants."""
    owns_as: str = field(default='', compare=False)
    """The owner of the caller's tasks and conversations, within the tenant. Empty: the caller itself. Set by
    `Access.owner`."""
    scopes: frozenset[str] = field(default=frozenset(), compare=False)
    """The scopes of the caller's credentials."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)
    """Verified facts about the caller, such as claims of a token: a JSON object of at most 10,000 bytes. The claims are
    stored with the tasks of the caller. Personal data belongs here, and not into logs."""

    @property
    def anonymous(self) -> bool:
        """True for a caller without an id. All anonymous callers of a tenant share one owner."""
        return not self.id

    @property
    def owner(self) -> str:
        """The key under which the caller's tasks and conversations are stored."""
        own = self.owns_as or self.id
        return f'{_quoted(self.tenant)}/{_quoted(own)}' if self.tenant or own else '/'

    @classmethod
    def of(cls, owner: str) -> Caller:
        """Return a caller with the tasks and conversations of an owner's key."""
        tenant, _, name = owner.partition('/')
        return cls(id=unquote(name, errors='surrogatepass'), tenant=unquote(tenant, errors='surrogatepass'))


ANONYMOUS = Caller()

_PLAIN = printable.replace('%', '')
"""Characters of names that are stored unchanged."""


def dump_caller(caller: Caller) -> dict[str, Any]:
    """Return a caller as JSON values, to be stored."""
    fields: dict[str, Any] = {
        'id': _quoted(caller.id, _PLAIN),
        'tenant': _quoted(caller.tenant, _PLAIN),
        'owns_as': _quoted(caller.owns_as, _PLAIN),
        'scopes': sorted(_quoted(scope, _PLAIN) for scope in caller.scopes),
    }
    if caller.claims:
        fields['claims'] = dict(caller.claims)
    return fields


def sender_of(request: bytes | None) -> dict[str, Any] | None:
    """Return the sender in the stored fields of a request, as `dump_caller` writes; None if none is stored."""
    return None if request is None else from_json(request).get('call', {}).get('caller')


def load_caller(stored: Mapping[str, Any]) -> Caller:
    """Return a caller from the values of `dump_caller`."""
    names = {name: unquote(stored[name], errors='surrogatepass') for name in ('id', 'tenant', 'owns_as')}
    scopes = frozenset(unquote(scope, errors='surrogatepass') for scope in stored['scopes'])
    return Caller(**names, scopes=scopes, claims=stored.get('claims', {}))


class WaitingCall(NamedTuple):
    """A tool call that waits for an approval."""

    id: str
    tool: str
    args: dict[str, Any] | None
    """Arguments with which the tool would run, also those that `Approvals.hide_arguments` hides from clients. None if
    the server does not know them: a remote agent hides the arguments, or they do not fit their JSON Schema, have a
    member that the schema does not name, or one that only `additionalProperties` names while an argument is left out.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """A task for the function in `Approvals.approvers`."""

    id: str
    owner: Caller
    """The owner of the task, with tenant and id. With `Access.owner`, several callers may be one owner."""
    caller: Caller
    """The sender of the message whose run made the calls."""
    calls: Sequence[WaitingCall]
    """The calls that wait for an approval. Empty once all calls have a decision."""


@frozen
class Call:
    """One call, as the service sees it."""

    caller: Caller
    correlation_id: str
    """Identifies the call in logs, in `X-Correlation-Id` and in an error's details."""
    traceparent: str | None = None
    """Trace and baggage of the caller as JSON, for runs in another process; see `telemetry.propagation.dump_trace`."""
    kept: dict[str, Any] | None = None
    """Further information on the call for its run, as JSON values; None if runs need none."""
    size: int = 0
    """Bytes of the request's body."""
    dialect: str = '1.0'
    """Name of the codec of the request."""
    request: Any = field(default=None, repr=False)
    """The `RequestInfo` of the call."""
    live: bool = False
    """True if the client wants the text of an answer while the model writes the text."""
    left: Any = field(default=None, repr=False)
    """A future that is done once the client has gone; it ends the wait for a task. None: such a wait goes on."""


class TaskEvent(NamedTuple):
    """One stored event of a task's log."""

    n: int
    """Number of the event in the task's log: from 1, without gaps, never reused. The SSE event id."""
    state: TaskState | None
    """The state of a status update; None for an artifact update."""
    payload: bytes
    """The A2A 1.0 `StreamResponse` as JSON: exactly one of `statusUpdate` and `artifactUpdate`."""


class TextDelta(NamedTuple):
    """Text that the model adds to the answer's artifact."""

    text: str
    first: bool
    """True if a new answer begins: the text replaces the artifact, and is not appended."""


class Note(NamedTuple):
    """A text for the client beside the answer, as the status of the working task."""

    text: str
    of_model: bool = False
    """True for the text of a model response with tool calls; False for a text of the user's code."""


class Step(NamedTuple):
    """A thought or an action of the agent: a status update for watching clients, not stored with the task."""

    part: Part
    metadata: dict[str, str]
    """Metadata of the update's message, with the kind of the step."""


PARTIAL = {'progress': 'partial'}
"""Metadata of the artifact of a partial output."""


class PartialArtifact(NamedTuple):
    """The artifact of a partial output, until the next one or the answer replaces the artifact."""

    artifact: Artifact


class ToolArtifact(NamedTuple):
    """An artifact from a tool, stored with the task before the answer."""

    artifact: Artifact


@frozen
class TaskHeader:
    """A task without its messages and artifacts: the values that the life cycle depends on."""

    id: str
    context_id: str
    owner: str
    state: TaskState
    status_at: int
    """Time of the last change of the state (ms)."""
    status_message: bytes | None
    """The status's message, as JSON."""
    metadata: bytes | None
    """The task's metadata, as a JSON object."""
    last_event: int
    """Number of the newest event in the log; 0 before the first."""
    dialect: str = '1.0'
    """Name of the codec of the request that created the task."""
    queued: bool = False
    """True while the task waits for a worker: `submitted`, or `working` after an answer to its question."""


class StoredTask(NamedTuple):
    """A task from one consistent read, up to the event `header.last_event`."""

    header: TaskHeader
    history: Sequence[bytes] | None
    """The newest messages, oldest first; None if not requested."""
    artifacts: Sequence[bytes] | None
    """The artifacts assembled so far; None if not requested."""


@frozen
class TaskQuery:
    """The query of ListTasks to the store (§3.1.4)."""

    owner: str | None
    """Owner of the tasks; None, only in the Python API, for the tasks of all owners."""
    context_id: str | None = None
    state: TaskState | None = None
    since: int | None = None
    """Oldest time of the status (ms, inclusive)."""
    page_size: int = 50
    before: tuple[int, str] | None = None
    """Start of the page: after the task with this (status_at, id)."""
    max_bytes: int | None = None
    """Most bytes of a page's messages and artifacts, as stored. The page ends before the task that would exceed the
    limit, but has at least one task. None: no limit."""
    history_length: int | None = None
    include_artifacts: bool = False


class Page(NamedTuple):
    """One page of tasks, newest status first."""

    tasks: Sequence[StoredTask]
    next: tuple[int, str] | None
    """`TaskQuery.before` of the next page; None on the last one."""
    total: int
    """Number of matching tasks over all pages."""


@frozen
class SendParams:
    """Decoded params of SendMessage and SendStreamingMessage (§3.1.1)."""

    message: Message
    return_immediately: bool = False
    history_length: int | None = None
    accepted_output_modes: tuple[str, ...] = ()
    push_config: PushTarget | None = None
    push_field: str = 'configuration.taskPushNotificationConfig'
    """The field of the params that holds `push_config`."""
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    """Protocol extensions that the request activates (§4.6)."""
    also_ends: frozenset[TaskState] = frozenset()
    """States that end the stream besides those of A2A 1.0."""
    tenant: str = ''
    """The tenant that the request names (§8.3.2)."""


@frozen
class PushTarget:
    """A webhook of a task: URL, token and credentials (§4.3.1)."""

    id: str
    """Name of the configuration, unique in its task; empty if the server is to choose."""
    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    """Token by which the receiver recognises the sender."""
    scheme: str | None = None
    """HTTP authentication scheme of the credentials, such as `Bearer`."""
    credentials: str | None = field(default=None, repr=False)


@frozen
class CreatePushParams:
    """Decoded params of CreateTaskPushNotificationConfig (§3.1.7)."""

    task_id: str
    target: PushTarget
    field: str = ''
    """The field of the params that holds the target; empty if the params are the target."""
    tenant: str = ''


@frozen
class PushParams:
    """Decoded params of the operations on one push notification configuration (§3.1.8, §3.1.10)."""

    task_id: str
    id: str = ''
    """Id of the configuration; empty if a 0.3 request names none and accepts any."""
    tenant: str = ''


@frozen
class ListPushParams:
    """Decoded params of ListTaskPushNotificationConfigs (§3.1.9)."""

    task_id: str
    page_size: int | None = None
    page_token: str = ''
    tenant: str = ''


@frozen
class CardParams:
    """Decoded params of GetExtendedAgentCard (§3.1.11)."""

    tenant: str = ''


class Registered(NamedTuple):
    """A push notification configuration of a task, for an answer."""

    task_id: str
    target: PushTarget


@frozen
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


@frozen
class GetParams:
    """Decoded params of GetTask (§3.1.3)."""

    id: str
    history_length: int | None = None
    tenant: str = ''


@frozen
class CancelParams:
    """Decoded params of CancelTask (§3.1.5)."""

    id: str
    metadata: dict[str, Any] | None = None
    tenant: str = ''


@frozen
class SubscribeParams:
    """Decoded params of SubscribeToTask (§3.1.6)."""

    id: str
    also_ends: frozenset[TaskState] = frozenset()
    """States that end the stream besides those of A2A 1.0."""
    ended_too: bool = False
    """True if an ended task is shown; A2A 1.0 refuses ended tasks."""
    last_event_id: int | None = None
    """Number of the client's last event; None for the task and all events from now on."""
    tenant: str = ''
