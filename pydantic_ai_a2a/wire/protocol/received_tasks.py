"""Readers of tasks and events, as clients receive them, for all codecs.

The forms of all versions are read by FastA2A's TypedDicts, made lenient: states and roles in either spelling, parts
with or without `kind`, camelCase or the proto's own names, null and empty strings as unset, unknown fields ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, cast

from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from ...json_values import as_object
from ...notebooks import HtmlTask
from ...types.a2a_objects import (
    Artifact,
    ListTasksResult,
    Message,
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from . import stored, stored_values
from .lenient_reading import ANNOTATED, Filled, adapter_of, lenient, present_fields, read_answer
from .request_fields import PROTO_JSON, WRAPPED, standard_base64

_STATES: Mapping[object, TaskState] = {
    # The state that 0.3 calls unknown ends no task.
    **dict.fromkeys(('unknown', 'TASK_STATE_UNSPECIFIED', 0), cast('TaskState', 'working')),
    **dict.fromkeys(('cancelled', 'TASK_STATE_CANCELLED'), cast('TaskState', 'canceled')),
    **stored.STATES,
    **{state: state for state in stored.STATE_NAMES},
    **dict(enumerate(stored.STATE_NAMES, 1)),
}
_ROLES: Mapping[object, str] = {**stored_values.ROLES, 'user': 'user', 'agent': 'agent', 1: 'user', 2: 'agent'}
_CONTENTS = ('text', 'raw', 'url', 'data')

_KINDS = {
    'task': 'task',
    'message': 'message',
    'status-update': 'status_update',
    'artifact-update': 'artifact_update',
}
"""The kinds of A2A 0.3, and the field of a `StreamResponse` for each."""
_MARKS = {'artifact': 'artifact_update', 'parts': 'message', 'taskId': 'status_update', 'status': 'task'}
"""Fields of bare events, and the field of a `StreamResponse` for the event: the first that is there decides."""

_EXACT = ConfigDict({**PROTO_JSON, 'extra': 'forbid'})


def _state(value: object) -> TaskState:
    if type(value) in (str, int) and value in _STATES:
        return _STATES[value]
    raise PydanticCustomError('state', 'must be a state of a task')


def _role(value: object) -> str:
    if type(value) in (str, int) and value in _ROLES:
        return _ROLES[value]
    raise PydanticCustomError('role', 'must be the role of a user or of an agent')


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


_Part = lenient(Part, _part, file=_File)


def _message(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'message_id': '', 'parts': [], **present_fields(wire)}


def _with_role(value: object) -> object:
    """Return a message with content, which only an agent sends without a role."""
    wire = as_object(value)
    return {**wire, 'role': 'agent'} if wire.get('parts') and not wire.get('role') else value


_Message = ANNOTATED[
    lenient(Message, _message, 'role', role=Annotated[str, PlainValidator(_role)], parts=list[_Part]),
    BeforeValidator(_with_role),
]


def _artifact(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'artifact_id': '', 'parts': [], **present_fields(wire)}


_Artifact = lenient(Artifact, _artifact, parts=list[_Part])


_Status = lenient(TaskStatus, present_fields, 'state', state=Annotated[str, PlainValidator(_state)], message=_Message)


def _with_context(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {'context_id': '', **present_fields(wire)}


def _task(wire: Mapping[str, Any]) -> dict[str, Any]:
    for n, artifact in enumerate(wire.get('artifacts') or ()):
        artifact['artifact_id'] = artifact['artifact_id'] or f'artifact-{n}'
    return HtmlTask(_with_context(wire))


_Task = lenient(
    Task, _task, 'id', 'status', id=Filled, status=_Status, artifacts=list[_Artifact], history=list[_Message]
)


_StatusUpdate = lenient(TaskStatusUpdateEvent, _with_context, 'task_id', 'status', task_id=Filled, status=_Status)


_ArtifactUpdate = lenient(
    TaskArtifactUpdateEvent, _with_context, 'task_id', 'artifact', task_id=Filled, artifact=_Artifact
)


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
    event = present_fields(wire)
    if len(event) != 1:
        raise PydanticCustomError('event', 'must hold exactly one of task, message, statusUpdate and artifactUpdate')
    return event


_Event = ANNOTATED[
    lenient(
        StreamResponse,
        _one,
        task=_Task,
        message=_Message,
        status_update=_StatusUpdate,
        artifact_update=_ArtifactUpdate,
    ),
    BeforeValidator(_wrapped),
]


@with_config(_EXACT)
class _TextPiece(TypedDict):
    text: str
    media_type: NotRequired[Filled]


@with_config(_EXACT)
class _ArtifactPiece(TypedDict):
    artifact_id: Filled
    parts: list[_TextPiece]
    name: NotRequired[Filled]


@with_config(_EXACT)
class _TextUpdate(TypedDict):
    task_id: Filled
    context_id: Filled
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
    return {'tasks': [], **present_fields(wire)}


_List = lenient(ListTasksResult, _with_tasks, tasks=list[_Task])


def read_task(value: object) -> Task:
    """Read a task.

    Raises:
        AnswerUnreadable: The value is no task. The other readers raise likewise.
    """
    return read_answer(_Task, value)


def read_event(value: object) -> StreamResponse:
    """Read the result of SendMessage, or an event of a stream: exactly one of the four fields is there."""
    return read_answer(_Event, _wrapped(value))


def read_streamed(data: bytes, *, in_response: bool) -> StreamResponse | None:
    """Read an event of a stream from its JSON in one step; None for data that `read_event` refuses.

    Args:
        data: The JSON.
        in_response: True for a JSON-RPC response with the event.
    """
    try:
        if in_response:
            return adapter_of(_Response).validate_json(data)['result']
        return adapter_of(_StreamedEvent).validate_json(data)
    except ValidationError:
        return None


def read_list(value: object) -> ListTasksResult:
    """Read the answer of ListTasks."""
    return read_answer(_List, value, 'tasks')
