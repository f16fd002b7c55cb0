"""The JSON of A2A 0.3 over JSON-RPC, to the vocabulary and back.

Null is read as unset, unknown fields are ignored. 0.3 has no lists of tasks over JSON-RPC, and no error details.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NotRequired, cast

from pydantic import AfterValidator, Field, PlainValidator, with_config
from pydantic_core import PydanticCustomError, from_json, to_json
from typing_extensions import TypedDict

from ...errors import A2AError, ExtendedAgentCardNotConfiguredError
from ...types.a2a_objects import Part
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from ...types.webhook_targets import Registered
from . import push_params, push_targets, stored_values
from .missing_capabilities import REFUSALS
from .older_codec import TASKS, Configuration, OlderCodec, SendRequest, TaskParams, older_code, role, send_params
from .operations import OPERATIONS, Capability, Operation, Params
from .request_fields import CAMEL_CASE, MAX_ITEMS, WRAPPED, Base64, Line, MessageFields, Struct, names_of
from .rpc_requests import RpcRequest, RpcRequests
from .sent_params import older_params

METHODS: Mapping[str, Operation] = MappingProxyType(
    {operation.v0_3: operation for operation in OPERATIONS.values() if operation.v0_3}
)
"""The operations by their 0.3 method names."""

_FILE_NAMES = {'raw': 'bytes', 'url': 'uri', 'filename': 'name', 'mediaType': 'mimeType'}
"""The fields of a file in 1.0, and their names in 0.3."""
_NEWER_NAME = re.compile(rf'(\bmessage\.parts\[[0-9]+\]\.)({"|".join(_FILE_NAMES)})\b')
"""A file's field in refusals of the service."""


@with_config(CAMEL_CASE)
class _File(TypedDict, total=False):
    bytes: Base64 | None
    uri: Line | None
    name: Line | None
    mime_type: Line | None


class _Part(TypedDict):
    kind: Literal['text', 'file', 'data']
    text: NotRequired[str | None]
    file: NotRequired[_File | None]
    data: NotRequired[Struct | None]
    metadata: NotRequired[Struct | None]


def _part(wire: _Part) -> Part:
    kind, metadata = wire['kind'], wire.get('metadata')
    content = wire.get(kind)
    if content is None:
        raise PydanticCustomError('part', 'must have the field {kind}, because its kind is {kind}', {'kind': kind})
    if kind == 'text':
        part = Part(text=cast('str', content))
    elif kind == 'file':
        part = _file(cast('_File', content))
    else:
        part, metadata = _data(cast('dict[str, Any]', content), metadata)
    if metadata is not None:
        part['metadata'] = metadata
    return part


def _data(content: dict[str, Any], metadata: dict[str, Any] | None) -> tuple[Part, dict[str, Any] | None]:
    """Return a data part, and its metadata without the mark of wrapped data."""
    if metadata is None or metadata.get(WRAPPED) is not True or 'value' not in content:
        return Part(data=content), metadata
    return Part(data=content['value']), {key: value for key, value in metadata.items() if key != WRAPPED} or None


def _file(wire: _File) -> Part:
    content, uri = wire.get('bytes'), wire.get('uri') or ''
    if (content is None) == (uri == ''):
        raise PydanticCustomError('file', 'must hold either file.bytes or file.uri')
    part = Part(url=uri) if content is None else Part(raw=content)
    if name := wire.get('name'):
        part['filename'] = name
    if mime_type := wire.get('mime_type'):
        part['media_type'] = mime_type
    return part


@with_config(CAMEL_CASE)
class _Message(MessageFields):
    kind: NotRequired[Literal['message'] | None]
    role: Annotated[str, PlainValidator(role)]
    parts: Annotated[list[Annotated[_Part, AfterValidator(_part)]], Field(min_length=1, max_length=MAX_ITEMS)]


_Send = Annotated[SendRequest[_Message, push_targets.OlderTarget], AfterValidator(partial(send_params, wait=True))]


_FIELDS = names_of(_File, _Part, _Message, Configuration, SendRequest, TaskParams)


_REQUESTS = RpcRequests(
    METHODS, {'SendMessage': _Send, 'SendStreamingMessage': _Send, **TASKS, **push_params.NESTED}, _FIELDS
)


def _wire_part(part: Mapping[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] | None = part.get('metadata')
    written: dict[str, Any]
    if 'text' in part:
        written = {'kind': 'text', 'text': part['text']}
    elif 'data' not in part:
        file = {_FILE_NAMES[key]: value for key, value in part.items() if key in _FILE_NAMES}
        written = {'kind': 'file', 'file': file}
    elif isinstance(part['data'], dict):
        written = {'kind': 'data', 'data': part['data']}
    else:
        written = {'kind': 'data', 'data': {'value': part['data']}}
        metadata = {**(metadata or {}), WRAPPED: True}
    return written if metadata is None else {**written, 'metadata': metadata}


def _own_name(match: re.Match[str]) -> str:
    return f'{match[1]}file.{_FILE_NAMES[match[2]]}'


class V0_3(OlderCodec):
    """A2A 0.3."""

    dialect: ClassVar[str] = '0.3'
    extensions_header: ClassVar[str] = 'X-A2A-Extensions'
    refusals: ClassVar[Mapping[Capability, tuple[type[A2AError], str | None]]] = {
        **REFUSALS,
        'extendedAgentCard': (ExtendedAgentCardNotConfiguredError, 'This agent has no extended agent card.'),
    }
    push_media_type: ClassVar[str] = 'application/json'
    pushes_tasks: ClassVar[bool] = True
    _task_begin: ClassVar[Mapping[str, str]] = {'kind': 'task'}

    def decode(self, body: bytes) -> RpcRequest:
        """Read a JSON-RPC request."""
        return _REQUESTS.read(body)

    def method(self, operation: Operation) -> str:
        """Return the 0.3 name."""
        return operation.v0_3

    def params(self, params: Params) -> dict[str, Any]:
        """Return the params in the form of 0.3."""
        return older_params(params, self._message, push_field='pushNotificationConfig', nested=True)

    def result_pieces(self, task: StoredTask) -> Iterator[bytes]:
        """Write a bare `Task`: 0.3 has no wrapper."""
        return self.task_pieces(task)

    def encode_message_result(self, message: bytes) -> bytes:
        """Write a bare `Message`."""
        return to_json(self._message(from_json(message)))

    def encode_event(self, event: TaskEvent, last: bool) -> bytes:
        """Write a bare update event; the last of a stream is marked as `final`."""
        payload = from_json(event.payload)
        if event.state is None:
            update = payload['artifactUpdate']
            return to_json({'kind': 'artifact-update', **update, 'artifact': self._artifact(update['artifact'])})
        update = payload['statusUpdate']
        return to_json({'kind': 'status-update', **update, 'status': self._status(update['status']), 'final': last})

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        parts = [_wire_part(part) for part in message['parts']]
        return {'kind': 'message', **message, 'role': stored_values.ROLES[message['role']], 'parts': parts}

    def _artifact(self, artifact: Mapping[str, Any]) -> dict[str, Any]:
        return {**artifact, 'parts': [_wire_part(part) for part in artifact['parts']]}

    def encode_push_config(self, registered: Registered) -> bytes:
        """Write a `TaskPushNotificationConfig`."""
        config = push_targets.target_json(registered.target, nested=True)
        return to_json({'taskId': registered.task_id, 'pushNotificationConfig': config})

    def encode_push_configs(self, configs: Iterable[Registered], next_page: str = '') -> bytes:
        """Write a list: 0.3 has no wrapper."""
        return b'[%s]' % b','.join(map(self.encode_push_config, configs))

    def encode_error(self, error: A2AError, correlation_id: str) -> bytes:
        """Write JSON-RPC's error object. The correlation id is in the HTTP header only: 0.3 has no field for it."""
        message = _NEWER_NAME.sub(_own_name, error.message.removesuffix('.'))
        return to_json({'code': older_code(error), 'message': message})
