"""The JSON of FastA2A 2.1: 0.3's method names, 1.0's shapes, and FastA2A's own behaviour.

FastA2A's client reads answers strictly, so answers are in FastA2A's form: no media type on text and data of the agent,
only the schema in a data part's metadata, chunks that all append, the whole artifact at the end, and errors by
FastA2A's names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, PlainValidator, with_config
from pydantic_core import PydanticCustomError, from_json, to_json

from ...errors import A2AError
from ...types.a2a_objects import TaskState
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from . import push_params, push_targets, stored, stored_values
from .older_codec import TASKS, Configuration, OlderCodec, SendRequest, TaskParams, older_code, role, send_params
from .operations import OPERATIONS, Operation, Params
from .request_fields import CAMEL_CASE, FlatPart, ListFields, MessageFields, Parts, list_params, names_of
from .rpc_requests import RpcRequest, RpcRequests
from .sent_params import older_params

METHODS: Mapping[str, Operation] = MappingProxyType(
    {operation.fasta2a: operation for operation in OPERATIONS.values() if operation.fasta2a}
)
"""The operations by FastA2A's method names."""

_MESSAGES = {
    -32700: 'Invalid JSON payload',
    -32600: 'Request payload validation error',
    -32601: 'Method not found',
    -32602: 'Invalid parameters',
    -32603: 'Internal error',
    -32001: 'Task not found',
    -32002: 'Task not cancelable',
    -32003: 'Push notification not supported',
    -32004: 'This operation is not supported',
    -32005: 'Incompatible content types',
}
"""FastA2A's errors; its client reads no other errors."""


@with_config(CAMEL_CASE)
class _Message(MessageFields):
    role: Annotated[str, PlainValidator(role)]
    parts: Parts


def _task_state(value: object) -> TaskState:
    if isinstance(value, str) and value in stored.STATE_NAMES:
        return value
    raise PydanticCustomError('state', 'must be one of {names}', {'names': ', '.join(stored.STATE_NAMES)})


@with_config(CAMEL_CASE)
class _ListParams(ListFields, total=False):
    status: Annotated[TaskState, PlainValidator(_task_state)] | None


_Send = Annotated[SendRequest[_Message, push_targets.Target], AfterValidator(partial(send_params, wait=False))]


_List = Annotated[_ListParams, AfterValidator(list_params)]


_FIELDS = names_of(FlatPart, _Message, Configuration, SendRequest, TaskParams, _ListParams)


_REQUESTS = RpcRequests(
    METHODS,
    {
        'SendMessage': _Send,
        'SendStreamingMessage': _Send,
        'ListTasks': _List,
        **TASKS,
        **push_params.flat(tenants=False),
    },
    _FIELDS,
)


def own_part(part: Mapping[str, Any], media_type: str = 'mediaType') -> dict[str, Any]:
    """Return a part of the agent: only the schema in a data part's metadata, and media types of files only.

    Args:
        part: The part, as JSON or as a value.
        media_type: Name of the field with the media type.
    """
    written = dict(part)
    if 'text' in part or 'data' in part:
        written.pop(media_type, None)
    if 'data' in part and 'json_schema' in (metadata := part.get('metadata', {})):
        written['metadata'] = {'json_schema': metadata['json_schema']}
    return written


class FastA2ADialect(OlderCodec):
    """The dialect of FastA2A 2.1's own client."""

    dialect: ClassVar[str] = 'fasta2a'

    def decode(self, body: bytes) -> RpcRequest:
        """Read a JSON-RPC request."""
        return _REQUESTS.read(body)

    def method(self, operation: Operation) -> str:
        """Return FastA2A's name."""
        return operation.fasta2a

    def params(self, params: Params) -> dict[str, Any]:
        """Return the params in FastA2A's form."""
        return older_params(params, self._message, push_field='taskPushNotificationConfig', nested=False)

    def result_pieces(self, task: StoredTask) -> Iterator[bytes]:
        """Write a task under the key `task`."""
        yield b'{"task":'
        yield from self.task_pieces(task)
        yield b'}'

    def encode_message_result(self, message: bytes) -> bytes:
        """Write a message under the key `message`."""
        return b'{"message":' + to_json(self._message(from_json(message))) + b'}'

    def encode_event(self, event: TaskEvent, last: bool) -> bytes:
        """Write an update under its key. All chunks before the last append."""
        payload = from_json(event.payload)
        if event.state is not None:
            update = payload['statusUpdate']
            return to_json({'statusUpdate': {**update, 'status': self._status(update['status'])}})
        update = payload['artifactUpdate']
        last = bool(update.get('lastChunk'))
        flags = {'append': not last or bool(update.get('append')), 'lastChunk': last}
        return to_json({'artifactUpdate': {**update, 'artifact': self._artifact(update['artifact']), **flags}})

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        written = {**message, 'role': stored_values.ROLES[message['role']]}
        return written if written['role'] == 'user' else self._artifact(written)

    def _artifact(self, artifact: Mapping[str, Any]) -> dict[str, Any]:
        return {**artifact, 'parts': [own_part(part) for part in artifact['parts']]}

    def encode_error(self, error: A2AError, correlation_id: str) -> bytes:
        """Write JSON-RPC's error object: the message is FastA2A's, and the data has the details."""
        code = older_code(error)
        text = error.message.removesuffix('.')
        message = _MESSAGES.get(code, text)
        written: dict[str, Any] = {'code': code, 'message': message}
        if missing := error.metadata.get('requiredExtensions'):
            written['data'] = {'missing_required_extensions': missing.split(', ')}
        elif text != message:
            written['data'] = {'detail': error.message}
        return to_json(written)
