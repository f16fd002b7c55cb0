"""The JSON of A2A 1.0, as its a2a.proto defines it, to the vocabulary and back.

Requests are read as ProtoJSON: camelCase or the proto's own names, enums by name or number, integers also as strings,
null and empty strings as unset, unknown fields ignored. Answers are written canonically.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, NotRequired, cast
from urllib.parse import quote, urlencode

from pydantic import AfterValidator, PlainValidator, StrictBool, TypeAdapter, with_config
from pydantic_core import PydanticCustomError, to_json
from typing_extensions import TypedDict

from ...errors import JSON_RPC_ERRORS, A2AError
from ...types.a2a_objects import TaskState
from ...types.operation_params import CancelParams, CardParams, GetParams, SendParams, SubscribeParams
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from ...types.webhook_targets import PushTarget
from . import joined_bytes, push_params, push_targets, stored
from .codec import HttpCodec
from .http_requests import HttpRequest, check_params, read_params, read_query
from .operations import OPERATIONS, Operation, Params
from .request_fields import (
    PROTO_JSON,
    Count,
    FlatPart,
    Id,
    Lines,
    ListFields,
    MessageFields,
    Parts,
    Struct,
    Tenanted,
    list_params,
    names_of,
    params_of,
    read_message,
)
from .rpc_requests import RpcRequest, RpcRequests
from .sent_params import newer_params

_STATES: Mapping[object, TaskState | None] = {
    'TASK_STATE_UNSPECIFIED': None,
    0: None,
    **stored.STATES,
    **dict(enumerate(stored.STATE_NAMES, 1)),
}
"""The states by their proto names and numbers."""
_FLAGS = frozenset({'includeArtifacts'})

_MANY = 8
"""Messages or artifacts from which they are joined: of few, the joining takes more calls."""
_PUSH_PATH = {'id': 'taskId', 'configId': 'id'}
"""Names of path params in the operations on push notification configurations, and their params (§11.3)."""
_PLACE = re.compile(r'\{(\w+)\}')
"""A param in the path of an operation."""
_DOMAIN = 'a2a-protocol.org'
_REASONS = {error.code: reason for reason, error in JSON_RPC_ERRORS.items()}


def _role(value: object) -> str:
    if value == 'ROLE_USER' or (type(value) is int and value == 1):
        return 'user'
    raise PydanticCustomError('role', 'must be ROLE_USER: clients speak as users')


def _task_state(value: object) -> TaskState | None:
    if type(value) in (str, int) and value in _STATES:
        return _STATES[value]
    raise PydanticCustomError('state', 'must be one of {names}', {'names': ', '.join(stored.STATES)})


# The messages of a2a.proto that requests consist of.
@with_config(PROTO_JSON)
class _Message(MessageFields):
    role: Annotated[str, PlainValidator(_role)]
    parts: Parts


@with_config(PROTO_JSON)
class _Configuration(TypedDict, total=False):
    accepted_output_modes: Lines | None
    task_push_notification_config: push_targets.Target | None
    history_length: Count | None
    return_immediately: StrictBool | None


class _SendMessageRequest(Tenanted):
    message: Annotated[_Message, AfterValidator(read_message)]
    configuration: NotRequired[_Configuration | None]
    metadata: NotRequired[Struct | None]


def _send_params(wire: _SendMessageRequest) -> SendParams:
    message: Any = wire['message']
    tenant = (wire['tenant'] if 'tenant' in wire else '') or ''  # noqa: SIM401 - a call for each request
    metadata = wire['metadata'] if 'metadata' in wire else None  # noqa: SIM401 - likewise
    configuration = wire['configuration'] if 'configuration' in wire else None  # noqa: SIM401 - likewise
    if not configuration:
        return SendParams(message=message, metadata=metadata, tenant=tenant)
    return SendParams(
        message=message,
        return_immediately=configuration.get('return_immediately') or False,
        history_length=configuration.get('history_length'),
        accepted_output_modes=tuple(configuration.get('accepted_output_modes') or ()),
        push_config=cast('PushTarget | None', configuration.get('task_push_notification_config')),
        metadata=metadata,
        tenant=tenant,
    )


class _SubscribeToTaskRequest(Tenanted):
    id: Id


class _GetTaskRequest(_SubscribeToTaskRequest):
    history_length: NotRequired[Count | None]


@with_config(PROTO_JSON)
class _ListTasksRequest(ListFields, Tenanted, total=False):
    status: Annotated[TaskState, PlainValidator(_task_state)] | None


class _CancelTaskRequest(_SubscribeToTaskRequest):
    metadata: NotRequired[Struct | None]


_Send = Annotated[_SendMessageRequest, AfterValidator(_send_params)]


_Get = Annotated[_GetTaskRequest, params_of(GetParams)]


_List = Annotated[_ListTasksRequest, AfterValidator(list_params)]


_Cancel = Annotated[_CancelTaskRequest, params_of(CancelParams)]


_Subscribe = Annotated[_SubscribeToTaskRequest, params_of(SubscribeParams)]


_PARAMS: Mapping[str, Any] = {
    'SendMessage': _Send,
    'SendStreamingMessage': _Send,
    'GetTask': _Get,
    'ListTasks': _List,
    'CancelTask': _Cancel,
    'SubscribeToTask': _Subscribe,
    'GetExtendedAgentCard': Annotated[Tenanted, params_of(CardParams)],
    **push_params.flat(tenants=True),
}
"""The params of the operations."""


_FIELDS = names_of(FlatPart, _Message, _Configuration, _SendMessageRequest, _GetTaskRequest, _ListTasksRequest)


_REQUESTS = RpcRequests(OPERATIONS, _PARAMS, _FIELDS)


_QUERY = names_of(_GetTaskRequest, _ListTasksRequest)


_PUSH_QUERY = {name: _QUERY[name] for name in ('tenant', 'pageSize', 'page_size', 'pageToken', 'page_token')}


@cache
def _reads(operation: str) -> TypeAdapter[Any]:
    return TypeAdapter(_PARAMS[operation])


def _details(error: A2AError, correlation_id: str) -> list[dict[str, Any]]:
    """Return the error's details in google.rpc form; errors that are not A2A's own get a reason, too (§9.5)."""
    info = {
        '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
        'reason': error.reason or _REASONS.get(error.code, error.status),
        'domain': _DOMAIN,
        'metadata': {'correlationId': correlation_id, **error.metadata},
    }
    if not error.violations:
        return [info]
    violations = [{'field': violation.field, 'description': violation.description} for violation in error.violations]
    return [info, {'@type': 'type.googleapis.com/google.rpc.BadRequest', 'fieldViolations': violations}]


class V1_0(HttpCodec):
    """A2A 1.0. The stored form is its JSON, so encoding joins bytes."""

    dialect: ClassVar[str] = '1.0'

    def decode(self, body: bytes) -> RpcRequest:
        """Read a JSON-RPC request."""
        return _REQUESTS.read(body)

    def decode_params(
        self, operation: Operation, *, path: Mapping[str, str], query: bytes, body: bytes | None
    ) -> Params | None:
        """Read the params of an operation from the path, and from the body or the query."""
        names = _QUERY
        if operation.capability == 'pushNotifications':
            names, path = _PUSH_QUERY, {_PUSH_PATH.get(name, name): value for name, value in path.items()}
        params = _reads(operation.name)
        if body is not None:
            return read_params(body, path, params, _FIELDS)
        return check_params(read_query(query, names, _FLAGS), path, params, _FIELDS)

    def method(self, operation: Operation) -> str:
        """Return the 1.0 name."""
        return operation.name

    def params(self, params: Params) -> dict[str, Any]:
        """Return the params in the form of 1.0."""
        return newer_params(params)

    def http_request(self, operation: Operation, params: Params) -> HttpRequest:
        """Return the verb, path, query and body of a request (§11.3). A tenant is the first segment of the path."""
        (verb, template), *_ = operation.http
        names: Mapping[str, str] = _PUSH_PATH if operation.capability == 'pushNotifications' else {}
        rest, path = self.params(params), template
        for name in _PLACE.findall(template):
            path = path.replace(f'{{{name}}}', quote(rest.pop(names.get(name) or name), safe=''))
        if tenant := rest.pop('tenant', ''):
            path = f'/{quote(tenant, safe="")}{path}'
        if verb == 'POST' and operation.name != 'SubscribeToTask':
            return HttpRequest(verb, path, '', to_json(rest))
        values = ((name, str(value).lower() if value is True else value) for name, value in rest.items())
        return HttpRequest(verb, path, urlencode([*values]), None)

    def task_pieces(self, task: StoredTask) -> list[bytes]:
        """Write a bare `Task` (§4.1.1), whose messages and artifacts are the stored bytes."""
        header = task.header
        status = stored.status(header.state, header.status_at, header.status_message)
        pieces = [b'{"id":%s,"contextId":%s,"status":%s' % (to_json(header.id), to_json(header.context_id), status)]
        for name, values in ((b'artifacts', task.artifacts), (b'history', task.history)):
            before = b',"%b":[' % name
            if values and values[_MANY:]:
                pieces += (before, *joined_bytes.joined(values, b','))
            else:
                for value in values or ():
                    pieces += (before, value)
                    before = b','
            if values:
                pieces += (b']',)
        pieces += (b'}' if header.metadata is None else b',"metadata":%s}' % header.metadata,)
        return pieces

    def result_pieces(self, task: StoredTask) -> list[bytes]:
        """Write a `SendMessageResponse`, the same as a `StreamResponse`, with a task (§3.2.3)."""
        return [b'{"task":', *self.task_pieces(task), b'}']

    def encode_message_result(self, message: bytes) -> bytes:
        """Write a `SendMessageResponse`, the same as a `StreamResponse`, with a message."""
        return b'{"message":' + message + b'}'

    def encode_event(self, event: TaskEvent, last: bool) -> bytes:
        """Return the `StreamResponse` as stored."""
        return event.payload

    def encode_error(self, error: A2AError, correlation_id: str) -> bytes:
        """Write JSON-RPC's error object; `data` is always an array (§9.5)."""
        return to_json({'code': error.code, 'message': error.message, 'data': _details(error, correlation_id)})

    def encode_status(self, error: A2AError, correlation_id: str) -> bytes:
        """Write the `google.rpc.Status` of a refused request (§11.6)."""
        described = {'code': error.http_status, 'status': error.status, 'message': error.message}
        return to_json({'error': {**described, 'details': _details(error, correlation_id)}})
