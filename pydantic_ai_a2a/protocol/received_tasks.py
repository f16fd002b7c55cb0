"""Readers of tasks and events, as clients receive them, for all codecs.

The forms of all versions are read by FastA2A's TypedDicts, made lenient: states and roles in either spelling, parts
with or without `kind`, camelCase or the proto's own names, null and empty strings as unset, unknown fields ignored.

Reading is lenient: a value that cannot be read and that the caller can do without is left out, with a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, NotRequired, cast, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic.alias_generators import to_snake
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from .. import errors
from ..card import load_requirements, load_scheme
from ..errors import A2AError, FieldViolation
from ..notebooks import HtmlCard, HtmlTask
from ..types import (
    AgentCard,
    AgentInterface,
    Artifact,
    ListTaskPushNotificationConfigResult,
    ListTasksResult,
    Message,
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    as_list,
    as_object,
    faults_of,
)
from . import stored
from .fields import PROTO_JSON, WRAPPED, standard_base64

logger = logging.getLogger('pydantic_ai_a2a')

_STATES: Mapping[object, TaskState] = {
    # The state that 0.3 calls unknown ends no task.
    **dict.fromkeys(('unknown', 'TASK_STATE_UNSPECIFIED', 0), cast('TaskState', 'working')),
    **stored.STATES,
    **{state: state for state in stored.STATE_NAMES},
    **dict(enumerate(stored.STATE_NAMES, 1)),
}
_ROLES: Mapping[object, str] = {**stored.ROLES, 'user': 'user', 'agent': 'agent', 1: 'user', 2: 'agent'}
_CONTENTS = ('text', 'raw', 'url', 'data')

_Filled = Annotated[str, Field(min_length=1)]

_SHAPE: Any = TypedDict
_ANNOTATED: Any = Annotated


class AnswerUnreadable(ValueError):
    """An answer is not in the form of its operation. The text names the first bad field, and no value."""


def _state(value: object) -> TaskState:
    if type(value) in (str, int) and value in _STATES:
        return _STATES[value]
    raise PydanticCustomError('state', 'must be a state of a task')


def _role(value: object) -> str:
    if type(value) in (str, int) and value in _ROLES:
        return _ROLES[value]
    raise PydanticCustomError('role', 'must be the role of a user or of an agent')


def _present(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are set."""
    values = wire.values()
    if None not in values and '' not in values:
        return cast('dict[str, Any]', wire)
    return {name: value for name, value in wire.items() if value is not None and value != ''}


def _lenient(shape: type[Any], after: Callable[..., object], *needed: str, **own: Any) -> Any:
    """Return the form of one of FastA2A's TypedDicts in answers: all fields but the needed ones may be absent or null.

    Args:
        shape: The TypedDict.
        after: Makes the value of the fields.
        needed: The fields that must be there.
        own: Types in the place of FastA2A's.
    """
    types = {**get_type_hints(shape), **own}
    fields = {name: kind if name in needed else NotRequired[kind | None] for name, kind in types.items()}
    return _ANNOTATED[with_config(PROTO_JSON)(_SHAPE(shape.__name__, fields)), AfterValidator(after)]


class _File(TypedDict, total=False):
    """A file of A2A 0.3."""

    bytes: str | None
    uri: str | None
    name: str | None
    mimeType: str | None


def _part(wire: dict[str, Any]) -> Part:
    if len(wire) == 1 and wire.get('text') is not None:
        return cast('Part', wire)  # a piece of streamed text
    part: dict[str, Any] = {key: value for key, value in wire.items() if key in _CONTENTS and value is not None}
    if (file := wire.get('file')) is not None:
        content = file.get('bytes')
        part |= {'url': file.get('uri')} if content is None else {'raw': content}
        wire = {**wire, 'filename': file.get('name'), 'media_type': file.get('mimeType')}
    if 'data' in wire and not part:
        part['data'] = None
    if len(part) != 1:
        raise PydanticCustomError('part', 'must hold exactly one of text, raw, url and data')
    if 'raw' in part:
        part['raw'] = standard_base64(part['raw'])
    for key in ('filename', 'media_type', 'metadata'):
        if value := wire.get(key):
            part[key] = value
    return cast('Part', _unwrapped(part))


def _unwrapped(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part with the data that an object of A2A 0.3 wraps."""
    data, metadata = part.get('data'), part.get('metadata')
    if not metadata or metadata.get(WRAPPED) is not True or not isinstance(data, dict) or 'value' not in data:
        return part
    rest = {key: value for key, value in metadata.items() if key != WRAPPED}
    plain = {key: value for key, value in part.items() if key != 'metadata'}
    return {**plain, 'data': cast('Any', data['value']), **({'metadata': rest} if rest else {})}


_Part = _lenient(Part, _part, file=_File)


def _message(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'message_id': '', 'parts': [], **_present(wire)}


_Message = _lenient(Message, _message, 'role', role=Annotated[str, PlainValidator(_role)], parts=list[_Part])


def _artifact(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'artifact_id': '', 'parts': [], **_present(wire)}


_Artifact = _lenient(Artifact, _artifact, parts=list[_Part])
_Status = _lenient(TaskStatus, _present, 'state', state=Annotated[str, PlainValidator(_state)], message=_Message)


def _with_context(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'context_id': '', **_present(wire)}


def _task(wire: Mapping[str, Any]) -> dict[str, Any]:
    for n, artifact in enumerate(wire.get('artifacts') or ()):
        artifact['artifact_id'] = artifact['artifact_id'] or f'artifact-{n}'
    return HtmlTask(_with_context(wire))


_Task = _lenient(
    Task, _task, 'id', 'status', id=_Filled, status=_Status, artifacts=list[_Artifact], history=list[_Message]
)
_StatusUpdate = _lenient(TaskStatusUpdateEvent, _with_context, 'task_id', 'status', task_id=_Filled, status=_Status)
_ArtifactUpdate = _lenient(
    TaskArtifactUpdateEvent, _with_context, 'task_id', 'artifact', task_id=_Filled, artifact=_Artifact
)


_KINDS = {
    'task': 'task',
    'message': 'message',
    'status-update': 'status_update',
    'artifact-update': 'artifact_update',
}
"""The kinds of A2A 0.3, and the field of a `StreamResponse` for each."""
_MARKS = {'artifact': 'artifact_update', 'parts': 'message', 'taskId': 'status_update', 'status': 'task'}
"""Fields of bare events, and the field of a `StreamResponse` for the event: the first that is there decides."""


def _wrapped(value: object) -> object:
    """Return an event of A2A 0.3, also without its kind, in the field that 1.0 has for the event."""
    if not isinstance(value, dict):
        return value
    wire = cast('dict[str, object]', value)
    kind = wire.get('kind')
    field = _KINDS.get(kind) if isinstance(kind, str) else None
    field = field or next((field for mark, field in _MARKS.items() if mark in wire), None)
    return wire if field is None else {field: wire}


def _one(wire: Mapping[str, Any]) -> dict[str, Any]:
    event = _present(wire)
    if len(event) != 1:
        raise PydanticCustomError('event', 'must hold exactly one of task, message, statusUpdate and artifactUpdate')
    return event


_Event = _ANNOTATED[
    _lenient(
        StreamResponse,
        _one,
        task=_Task,
        message=_Message,
        status_update=_StatusUpdate,
        artifact_update=_ArtifactUpdate,
    ),
    BeforeValidator(_wrapped),
]

_EXACT = ConfigDict({**PROTO_JSON, 'extra': 'forbid'})


@with_config(_EXACT)
class _TextPiece(TypedDict):
    text: str
    media_type: NotRequired[_Filled]


@with_config(_EXACT)
class _ArtifactPiece(TypedDict):
    artifact_id: _Filled
    parts: list[_TextPiece]
    name: NotRequired[_Filled]


@with_config(_EXACT)
class _TextUpdate(TypedDict):
    task_id: _Filled
    context_id: _Filled
    artifact: _ArtifactPiece
    append: NotRequired[bool]
    last_chunk: NotRequired[bool]


@with_config(_EXACT)
class _TextEvent(TypedDict):
    """The most frequent event of streams, a piece of text.

    The event is read in 1.7 microseconds. `_Event` takes 4.2, because its validators are Python functions.
    """

    artifact_update: _TextUpdate


_StreamedEvent = Annotated[_TextEvent | _Event, Field(union_mode='left_to_right')]


class _Response(TypedDict):
    """A JSON-RPC response with an event."""

    result: _StreamedEvent
    error: NotRequired[None]


def _with_tasks(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'tasks': [], **_present(wire)}


_TASK = TypeAdapter[Any](_Task)
_EVENT = TypeAdapter[Any](_Event)
_STREAMED_EVENT = TypeAdapter[Any](_StreamedEvent)
_RESPONSE = TypeAdapter[Any](_Response)
_LIST = TypeAdapter[Any](_lenient(ListTasksResult, _with_tasks, tasks=list[_Task]))


_MOST_FAULTS = 1_000
"""Most values of an answer that are left out at a time."""
MOST_ROUNDS = 10
"""How often faulty values are left out: a value can be needed by its object, and the object by another object."""


def read_answer(adapter: TypeAdapter[Any], value: object, needed: str = '') -> Any:
    """Read a value, without the fields and entries that cannot be read and that the value does not need.

    Args:
        adapter: The form of the value.
        value: The value.
        needed: An optional field that is not left out; empty for none.

    Raises:
        AnswerUnreadable: The value is not in the form of the adapter.
    """
    faults: list[str] = []
    for _ in range(MOST_ROUNDS):
        try:
            read = adapter.validate_python(value)
        except ValidationError as error:
            if error.error_count() > _MOST_FAULTS:
                raise AnswerUnreadable(f'more than {_MOST_FAULTS} values cannot be read') from None
            found = faults_of(error)
            value = value if faults else deepcopy(value)
            faults += [f'{".".join(map(str, fault["loc"]))}: {fault["msg"]}'.removeprefix(': ') for fault in found]
            # An absent field cannot be left out, but the object that needs it.
            places = {fault['loc'][:-1] if fault['type'] == 'missing' else fault['loc']: None for fault in found}
            if () in places or (needed,) in places:
                break
            _leave_out(value, places)
        else:
            if faults:
                _warn(_agent.get(), _line(faults[0]))
            return read
    raise AnswerUnreadable(_line(faults[0]))


def _leave_out(value: Any, places: Collection[tuple[int | str, ...]]) -> None:
    """Remove values. The later entries of a list come later in `places`, and are removed first."""
    for place in reversed([*places]):
        if any(place[:length] in places for length in range(1, len(place))):
            continue  # the value around it is removed
        holder: Any = None
        inner, in_list, key = value, False, None
        for step in place:
            if not isinstance(inner, dict | list):
                break  # the name of a member of a union, which is no place
            in_list, holder = isinstance(inner, list), cast('Any', inner)
            key = step if in_list or step in holder else to_snake(str(step))
            inner: Any = holder[key] if in_list else holder.get(key)
        if in_list or key in holder:  # else removed for another member of the union
            del holder[key]


_agent: ContextVar[str] = ContextVar('_agent', default='A remote agent')


@contextmanager
def reading(agent: str) -> Generator[None]:
    """Name the agent whose values are read, for warnings."""
    token = _agent.set(agent)
    try:
        yield
    finally:
        _agent.reset(token)


@lru_cache(maxsize=1_000)
def _warn(agent: str, fault: str) -> None:
    """Log that a value is left out. Each fault of an agent is logged once."""
    logger.warning('%s has sent a value that cannot be read, and that is left out: %s', agent, fault)


def read_task(value: object) -> Task:
    """Read a task.

    Raises:
        AnswerUnreadable: The value is no task. The other readers raise likewise.
    """
    return read_answer(_TASK, value)


def read_event(value: object) -> StreamResponse:
    """Read the result of SendMessage, or an event of a stream: exactly one of the four fields is there."""
    return read_answer(_EVENT, _wrapped(value))


def read_streamed(data: bytes, *, in_response: bool) -> StreamResponse | None:
    """Read an event of a stream from its JSON in one step; None for data that `read_event` refuses.

    Args:
        data: The JSON.
        in_response: True for a JSON-RPC response with the event.
    """
    try:
        return _RESPONSE.validate_json(data)['result'] if in_response else _STREAMED_EVENT.validate_json(data)
    except ValidationError:
        return None


def read_list(value: object) -> ListTasksResult:
    """Read the answer of ListTasks."""
    return read_answer(_LIST, value, 'tasks')


# --- reader of agent cards, as clients receive the cards of A2A 1.0, of 0.3 and of both (§4.4, §8) --------------------


_SKILL: Mapping[str, Any] = {'name': '', 'description': '', 'tags': [], 'inputModes': [], 'outputModes': []}
_EMPTY: Mapping[str, Any] = {'description': '', 'version': '', 'defaultInputModes': [], 'defaultOutputModes': []}


def _filled(wire: dict[str, Any]) -> dict[str, Any]:
    """Return a card with empty values in the place of the fields that A2A allows to be absent."""
    return {**_EMPTY, **wire, 'skills': [{**_SKILL, **skill} for skill in wire['skills']]}


_CARD = TypeAdapter[Any](Annotated[AgentCard, BeforeValidator(_filled)])


def read_card(value: object) -> AgentCard:
    """Read an agent card. Fields that A2A allows to be absent are empty; the fields of 0.3 become those of 1.0.

    Raises:
        AnswerUnreadable: The value is no agent card.
    """
    wire = as_object(value)
    if not isinstance(wire.get('name'), str):
        raise AnswerUnreadable('name: an agent card needs the name of the agent')
    capabilities = {name: value for name, value in _object(wire, 'capabilities').items() if value is not None}
    if wire.get('supportsAuthenticatedExtendedCard') is True:
        capabilities = {'extendedAgentCard': True, **capabilities}
    card = {
        **_secured(wire),
        'capabilities': capabilities,
        'skills': [_secured(skill) for skill in _objects(wire, 'skills')],
        'supportedInterfaces': [*_interfaces(wire)],
    }
    return cast('AgentCard', HtmlCard(read_answer(_CARD, card)))


def _secured(wire: dict[str, Any]) -> dict[str, Any]:
    """Return the set fields of a card or a skill, with its security in FastA2A's shape."""
    declared = _object(wire, 'securitySchemes')
    schemes = {name: load_scheme(as_object(scheme)) for name, scheme in declared.items()}
    for name in [name for name, scheme in schemes.items() if scheme is None]:
        _warn(_agent.get(), _line(f'securitySchemes.{name}: must be a kind that A2A has'))
    newer = [{'schemes': _object(requirement, 'schemes')} for requirement in _objects(wire, 'securityRequirements')]
    security = {
        'securitySchemes': {name: scheme for name, scheme in schemes.items() if scheme is not None},
        'securityRequirements': load_requirements(newer, _objects(wire, 'security')),
    }
    others = {name: value for name, value in wire.items() if value is not None and name not in security}
    return others | {name: value for name, value in security.items() if value}


def _interfaces(wire: dict[str, Any]) -> Iterator[AgentInterface]:
    newer = _objects(wire, 'supportedInterfaces')
    for interface in newer:
        yield cast('AgentInterface', {'protocolVersion': '1.0', **interface})
    if newer or not isinstance(wire.get('url'), str):
        return
    version = wire.get('protocolVersion') or '0.3.0'
    first = {'url': wire['url'], 'transport': wire.get('preferredTransport') or 'JSONRPC'}
    for interface in (first, *_objects(wire, 'additionalInterfaces')):
        binding = interface.get('transport')
        yield cast(
            'AgentInterface', {'url': interface.get('url'), 'protocolBinding': binding, 'protocolVersion': version}
        )


def _object(wire: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object in a field; empty for none, and for another value, which is logged."""
    value: Any = wire.get(name)
    fields = {**as_object(value)}
    if value is not None and fields != value:
        _warn(_agent.get(), f'{name}: must be an object')
    return fields


def _objects(wire: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in the list of a field. Other values are logged."""
    value = wire.get(name)
    listed = as_list(value)
    objects = [cast('dict[str, Any]', item) for item in listed if isinstance(item, dict)]
    if value is not None and (len(objects) < len(listed) or not isinstance(value, list)):
        _warn(_agent.get(), f'{name}: must be a list of objects')
    return objects


# --- readers of push notification configurations, as clients receive them, for all codecs -----------------------------


@with_config(PROTO_JSON)
class _Authentication(TypedDict, total=False):
    scheme: str | None
    schemes: list[str] | None
    credentials: str | None


def _authentication(wire: _Authentication) -> dict[str, Any] | None:
    scheme = wire.get('scheme') or next(iter(wire.get('schemes') or ()), None)
    credentials = wire.get('credentials')
    return {'scheme': scheme, **({'credentials': credentials} if credentials else {})} if scheme else None


def _flat_config(value: object) -> object:
    """Return a configuration of A2A 0.3, which is nested, in the form of 1.0."""
    if not isinstance(value, dict):
        return value
    wire = cast('dict[str, Any]', value)
    nested = wire.get('pushNotificationConfig')
    return {'taskId': wire.get('taskId'), **cast('dict[str, Any]', nested)} if isinstance(nested, dict) else wire


_Config = _ANNOTATED[
    _lenient(
        TaskPushNotificationConfig,
        _present,
        'url',
        url=_Filled,
        authentication=Annotated[_Authentication, AfterValidator(_authentication)],
    ),
    BeforeValidator(_flat_config),
]


def _in_object(value: object) -> object:
    """Return the configurations of A2A 0.3, which are a bare list, in the form of 1.0."""
    return {'configs': cast('list[object]', value)} if isinstance(value, list) else value


_CONFIG = TypeAdapter[Any](_Config)
_CONFIGS = TypeAdapter[Any](
    _ANNOTATED[
        _lenient(ListTaskPushNotificationConfigResult, _present, configs=list[_Config]),
        BeforeValidator(_in_object),
    ]
)


def read_config(value: object) -> TaskPushNotificationConfig:
    """Read a push notification configuration."""
    return read_answer(_CONFIG, _flat_config(value))


def read_configs(value: object) -> tuple[list[TaskPushNotificationConfig], str]:
    """Read a page of push notification configurations, and the token of the next page; empty on the last page."""
    page = read_answer(_CONFIGS, _in_object(value), 'configs')
    return page.get('configs', []), page.get('next_page_token', '')


# --- readers of the errors that a remote agent answers with, to the errors of `errors.py` -----------------------------

_MAX_TEXT = 1_000
"""Most characters of a remote agent's text."""
_MAX_DETAILS = 100
_CONTROLS = re.compile(r'[\x00-\x1f\x7f-\x9f]+')

_A2A: Mapping[str, type[A2AError]] = {
    error.reason: error
    for error in cast('list[type[Exception]]', [getattr(errors, name) for name in errors.__all__])
    if issubclass(error, A2AError) and error.reason is not None
}
_BY_CODE: Mapping[int, type[A2AError]] = MappingProxyType(
    {error.code: error for error in (*errors.JSON_RPC_ERRORS.values(), *_A2A.values())}
)
_BY_STATUS: Mapping[int, type[A2AError]] = MappingProxyType(
    {
        400: errors.InvalidRequestError,
        401: errors.UnauthenticatedError,
        403: errors.PermissionDeniedError,
        404: errors.NotFoundError,
        405: errors.MethodNotAllowedError,
        408: errors.RequestTimeoutError,
        413: errors.PayloadTooLargeError,
        415: errors.UnsupportedMediaTypeError,
        421: errors.MisdirectedRequestError,
        429: errors.QuotaExceededError,
        503: errors.OverloadedError,
    }
)
"""The errors below the protocol, by HTTP status."""

_VAGUE = (errors.InvalidRequestError, errors.NotFoundError)
"""Errors of statuses that say less than the reason in the body."""


def rpc_error(error: object, status: int) -> A2AError:
    """Return the error of a JSON-RPC error object.

    Args:
        error: The parsed object.
        status: HTTP status of the answer.
    """
    wire = as_object(error)
    code, data = wire.get('code'), wire.get('data')
    told = as_object(data).get('detail') or ': '.join(filter(None, [_reason(wire.get('message')), _reason(data)]))
    text = told or _reason(error)
    kind = None if status == 200 else _BY_STATUS.get(status)
    if kind is None or status in (400, 404):
        kind = _BY_CODE.get(code if type(code) is int else 0)
    return _error(kind, text, as_list(data), code)


def http_error(body: object, status: int) -> A2AError:
    """Return the error of an answer of the HTTP+JSON binding (§11.6).

    Args:
        body: The parsed body; anything if it is no `google.rpc.Status`.
        status: HTTP status of the answer.
    """
    wire = as_object(as_object(body).get('error'))
    return _error(_BY_STATUS.get(status), wire.get('message'), as_list(wire.get('details')), status)


def status_error(status: int, url: str, body: object = None) -> A2AError:
    """Return the error of an answer without a refusal of A2A.

    Args:
        status: HTTP status of the answer.
        url: URL for the error.
        body: The parsed body or its text, which may say the reason.
    """
    text = f'{url} has answered with HTTP {status}. {_reason(body)}'.rstrip()
    return _error(_BY_STATUS.get(status), text, [], status)


_REASONS = ('detail', 'error_description', 'message', 'msg', 'title', 'error')
"""Fields with the reason of a refusal: of FastAPI, of problem details (RFC 9457), of OAuth 2, and of other servers."""


def _reason(value: object) -> str:
    """Return the first reason in foreign JSON; empty for none."""
    if isinstance(value, str):
        return value
    fields = as_object(value)
    inner: list[object] = [fields[name] for name in _REASONS if name in fields]
    reasons: list[str] = [_reason(item) for item in (*as_list(value)[:_MAX_DETAILS], *inner)]
    return next(filter(None, reasons), '')


def _error(kind: type[A2AError] | None, text: object, details: list[object], code: object) -> A2AError:
    metadata: dict[str, str] = {}
    violations: list[FieldViolation] = []
    for detail in map(as_object, details[:_MAX_DETAILS]):
        reason = detail.get('reason')
        if isinstance(reason, str):
            named = _A2A.get(reason)
            if named is None and (kind is None or kind in _VAGUE):
                named = errors.JSON_RPC_ERRORS.get(reason)
            kind = named or kind
            facts = as_object(detail.get('metadata'))
            metadata |= {name: _line(value) for name, value in facts.items() if isinstance(value, str)}
        violations += _violations(detail.get('fieldViolations'))
    if kind is None:
        kind, metadata = A2AError, {**metadata, 'code': _line(str(code))}
    message = _line(text) if isinstance(text, str) and text else None
    return kind(message, violations=violations, metadata=metadata)


def _violations(value: object) -> Iterator[FieldViolation]:
    for violation in map(as_object, as_list(value)[:_MAX_DETAILS]):
        field, description = violation.get('field'), violation.get('description')
        if isinstance(field, str) and isinstance(description, str):
            yield FieldViolation(_line(field), _line(description))


def _line(text: str) -> str:
    """Return text of a remote agent as one line of bounded length."""
    return _CONTROLS.sub(' ', text[:_MAX_TEXT])
