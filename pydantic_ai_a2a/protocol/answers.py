"""Readers of tasks and events, as clients receive them, for all codecs.

The forms of all versions are read by one set of types: states and roles in either spelling, parts with or without
`kind`, camelCase or the proto's own names, null and empty strings as unset, unknown fields ignored. Values are those of
FastA2A's TypedDicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, cast

from fasta2a.schema import ListTasksResult, StreamResponse, Task
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
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from ..notebooks import HtmlTask
from ..types import Part, TaskState
from . import stored
from .fields import PROTO_JSON, WRAPPED

__all__ = (
    'AnswerUnreadable',
    'present_fields',
    'read_answer',
    'read_event',
    'read_list',
    'read_streamed',
    'read_task',
)

_STATES: Mapping[object, TaskState] = {
    **stored.STATES,
    **{state: state for state in stored.STATE_NAMES},
    **dict(enumerate(stored.STATE_NAMES, 1)),
}
_ROLES: Mapping[object, str] = {**stored.ROLES, 'user': 'user', 'agent': 'agent', 1: 'user', 2: 'agent'}
_CONTENTS = ('text', 'raw', 'url', 'data')


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


def present_fields(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are set."""
    values = wire.values()
    if 'kind' not in wire and None not in values and '' not in values:
        return cast('dict[str, Any]', wire)
    return {name: value for name, value in wire.items() if value is not None and value != '' and name != 'kind'}


class _File(TypedDict, total=False):
    bytes: str | None
    uri: str | None
    name: str | None
    mimeType: str | None


@with_config(PROTO_JSON)
class _Part(TypedDict, total=False):
    kind: str | None
    text: str | None
    raw: str | None
    url: str | None
    data: Any
    file: _File | None
    filename: str | None
    media_type: str | None
    metadata: dict[str, Any] | None


def _part(wire: _Part) -> Part:
    if len(wire) == 1 and wire.get('text') is not None:
        return cast('Part', wire)  # a piece of streamed text
    part: dict[str, Any] = {key: value for key, value in wire.items() if key in _CONTENTS and value is not None}
    if (file := wire.get('file')) is not None:
        content = file.get('bytes')
        part |= {'url': file.get('uri')} if content is None else {'raw': content}
        wire = cast('_Part', {**wire, 'filename': file.get('name'), 'media_type': file.get('mimeType')})
    if 'data' in wire and not part:
        part['data'] = None
    if len(part) != 1:
        raise PydanticCustomError('part', 'must hold exactly one of text, raw, url and data')
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


_Parts = list[Annotated[_Part, AfterValidator(_part)]]
_Text = str | None
_Metadata = dict[str, Any] | None
_Names = list[str] | None


@with_config(PROTO_JSON)
class _MessageFields(TypedDict):
    role: Annotated[str, PlainValidator(_role)]
    parts: NotRequired[_Parts]
    message_id: str
    context_id: NotRequired[_Text]
    task_id: NotRequired[_Text]
    metadata: NotRequired[_Metadata]
    extensions: NotRequired[_Names]
    reference_task_ids: NotRequired[_Names]


def _with_parts(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'parts': [], **present_fields(wire)}


_Message = Annotated[_MessageFields, AfterValidator(_with_parts)]


@with_config(PROTO_JSON)
class _ArtifactFields(TypedDict):
    artifact_id: str
    name: NotRequired[_Text]
    description: NotRequired[_Text]
    parts: NotRequired[_Parts]
    metadata: NotRequired[_Metadata]
    extensions: NotRequired[_Names]


_Artifact = Annotated[_ArtifactFields, AfterValidator(_with_parts)]


class _StatusFields(TypedDict):
    state: Annotated[TaskState, PlainValidator(_state)]
    message: NotRequired[_Message | None]
    timestamp: NotRequired[_Text]


_Status = Annotated[_StatusFields, AfterValidator(present_fields)]


def _with_context(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'context_id': '', **present_fields(wire)}


def _task(wire: Mapping[str, Any]) -> dict[str, Any]:
    return HtmlTask(_with_context(wire))


@with_config(PROTO_JSON)
class _TaskFields(TypedDict):
    id: str
    context_id: NotRequired[_Text]
    status: _Status
    artifacts: NotRequired[list[_Artifact] | None]
    history: NotRequired[list[_Message] | None]
    metadata: NotRequired[_Metadata]


_Task = Annotated[_TaskFields, AfterValidator(_task)]


@with_config(PROTO_JSON)
class _StatusUpdateFields(TypedDict):
    task_id: str
    context_id: NotRequired[_Text]
    status: _Status
    metadata: NotRequired[_Metadata]


@with_config(PROTO_JSON)
class _ArtifactUpdateFields(TypedDict):
    task_id: str
    context_id: NotRequired[_Text]
    artifact: _Artifact
    append: NotRequired[bool | None]
    last_chunk: NotRequired[bool | None]
    metadata: NotRequired[_Metadata]


_KINDS = {
    'task': 'task',
    'message': 'message',
    'status-update': 'status_update',
    'artifact-update': 'artifact_update',
}
"""The kinds of A2A 0.3, and the field of a `StreamResponse` for each."""


def _wrapped(value: object) -> object:
    """Return an event of A2A 0.3 in the field that 1.0 has for its kind."""
    if not isinstance(value, dict):
        return value
    wire = cast('dict[str, object]', value)
    kind = wire.get('kind')
    return {_KINDS[kind]: wire} if isinstance(kind, str) and kind in _KINDS else wire


@with_config(PROTO_JSON)
class _EventFields(TypedDict, total=False):
    task: _Task | None
    message: _Message | None
    status_update: Annotated[_StatusUpdateFields, AfterValidator(_with_context)] | None
    artifact_update: Annotated[_ArtifactUpdateFields, AfterValidator(_with_context)] | None


def _one(wire: Mapping[str, Any]) -> dict[str, Any]:
    event = present_fields(wire)
    if len(event) != 1:
        raise PydanticCustomError('event', 'must hold exactly one of task, message, statusUpdate and artifactUpdate')
    return event


_Event = Annotated[_EventFields, BeforeValidator(_wrapped), AfterValidator(_one)]

_EXACT = ConfigDict({**PROTO_JSON, 'extra': 'forbid'})
_Filled = Annotated[str, Field(min_length=1)]


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


@with_config(PROTO_JSON)
class _ListFields(TypedDict, total=False):
    tasks: list[_Task] | None
    next_page_token: str | None
    page_size: int | None
    total_size: int | None


def _with_tasks(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'tasks': [], **present_fields(wire)}


_TASK = TypeAdapter[Any](_Task)
_EVENT = TypeAdapter[Any](_Event)
_STREAMED_EVENT = TypeAdapter[Any](_StreamedEvent)
_RESPONSE = TypeAdapter[Any](_Response)
_LIST = TypeAdapter[Any](Annotated[_ListFields, AfterValidator(_with_tasks)])


def read_answer(adapter: TypeAdapter[Any], value: object) -> Any:
    """Read a value.

    Raises:
        AnswerUnreadable: The value is not in the form of the adapter.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_context=False, include_input=False)
        place = '.'.join(map(str, first['loc']))
        raise AnswerUnreadable(f'{place}: {first["msg"]}' if place else first['msg']) from None


def read_task(value: object) -> Task:
    """Read a task.

    Raises:
        AnswerUnreadable: The value is no task. The other readers raise likewise.
    """
    return read_answer(_TASK, value)


def read_event(value: object) -> StreamResponse:
    """Read the result of SendMessage, or an event of a stream: exactly one of the four fields is there."""
    return read_answer(_EVENT, value)


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
    return read_answer(_LIST, value)
