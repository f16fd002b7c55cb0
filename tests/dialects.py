"""What the tests' client writes and reads: A2A 1.0's vocabulary on this side, a version's JSON on the wire.

A behaviour is tested by one body for all versions and bindings; what differs between them is here, as data. 0.3 is
written by hand and checked with the official SDK, whose models and conversions also read whatever the server says:
never our own codec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import pytest
from a2a.compat.v0_3 import conversions, types
from a2a.types import Message, Part, StreamResponse, Task
from a2a.utils.errors import A2A_ERROR_REASONS, JSON_RPC_ERROR_CODE_MAP
from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic import BaseModel

Json = dict[str, Any]
Model = TypeVar('Model', bound=BaseModel)

ENDED = frozenset({'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED'})
WAITING = frozenset({'TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED'})


class Call(bytes):
    """The body of a request, and where it goes."""

    verb = 'POST'
    path = ''
    """Relative to the agent's URL."""

    @classmethod
    def to(cls, verb: str, path: str, body: bytes) -> Call:
        call = cls(body)
        call.verb, call.path = verb, path
        return call

    def replace(self, old: Any, new: Any, count: Any = -1) -> Call:
        """The call with something else in the body and the path."""
        path = self.path.replace(old.decode(), new.decode()) if old in self.path.encode() else self.path
        return Call.to(self.verb, path, super().replace(old, new, count))


class Dialect:
    """A2A 1.0 over JSON-RPC, in which the tests are written: everything stays as it is."""

    version = '1.0'
    has_envelope = True
    """Whether requests and answers are JSON-RPC's; else they are HTTP's."""
    media_type = 'application/json'
    """Of answers that are no streams."""
    extensions_header = 'A2A-Extensions'
    """Names extensions, both ways."""
    has_lists = True
    """Whether tasks can be listed."""
    has_details = True
    """Whether errors say more than code and message."""
    refuses_ended = True
    """Whether a task that has ended cannot be subscribed to."""
    zero_history_is_none = True
    """Whether a history of 0 messages is none; else it is all."""
    refuses_in_streams = False
    """Whether what refuses a stream is the one event of a stream."""
    ends_send = ENDED | {'TASK_STATE_INPUT_REQUIRED'}
    """States that end the stream of a message."""
    ends_subscription = ENDED
    """States that end the stream of a subscriber."""

    def call(self, method: Any, params: Any, **fields: Any) -> Call:
        """A request: the operation, its params, other fields of the envelope."""
        request = {'jsonrpc': '2.0', 'id': 'r-1', 'method': self.method(method), 'params': self.params(params)}
        return Call(json.dumps(request | fields).encode())

    def method(self, name: str) -> str:
        """An operation's name on the wire; what is none stays as it is."""
        return name

    def params(self, params: Any) -> Any:
        """What a request says, on the wire; what is wrong with it stays wrong."""
        return params

    def check(self, method: str, params: Any) -> None:
        """See that a request which is meant to be right has been written rightly."""

    def result(self, method: str, frame: Json) -> Any:
        """What an operation answers, from the whole JSON-RPC answer."""
        return frame['result']

    def event(self, frame: Json) -> Json:
        """What an event of a stream says, from the whole JSON-RPC answer."""
        return frame['result']

    def final(self, frame: Json) -> bool | None:
        """Whether an event says that it is the last; None if it says nothing of it."""
        return None

    def error(self, frame: Json) -> Json:
        """An error with details, from the whole JSON-RPC answer."""
        return frame['error']

    def field(self, name: str) -> str:
        """What this version calls a field of a request."""
        return name

    def text(self, message: str) -> str:
        """The message of an error, as this version ends it."""
        return message

    def parts(self, parts: Sequence[Json]) -> list[Json]:
        """What this version can tell of these parts."""
        return [*parts]


METHODS = {
    'SendMessage': 'message/send',
    'SendStreamingMessage': 'message/stream',
    'GetTask': 'tasks/get',
    'CancelTask': 'tasks/cancel',
    'SubscribeToTask': 'tasks/resubscribe',
    'CreateTaskPushNotificationConfig': 'tasks/pushNotificationConfig/set',
    'GetTaskPushNotificationConfig': 'tasks/pushNotificationConfig/get',
    'ListTaskPushNotificationConfigs': 'tasks/pushNotificationConfig/list',
    'DeleteTaskPushNotificationConfig': 'tasks/pushNotificationConfig/delete',
    'GetExtendedAgentCard': 'agent/getAuthenticatedExtendedCard',
}
"""The operations that 0.3 has over JSON-RPC, and their names there."""

ROLES = {'ROLE_USER': 'user', 'ROLE_AGENT': 'agent'}
FILE = {'raw': 'bytes', 'url': 'uri', 'filename': 'name', 'mediaType': 'mimeType'}
ANSWERS: Mapping[str, type[Any]] = {
    'SendMessage': types.SendMessageSuccessResponse,
    'GetTask': types.GetTaskSuccessResponse,
    'CancelTask': types.CancelTaskSuccessResponse,
}
REQUESTS: Mapping[str, type[Any]] = {
    'SendMessage': types.MessageSendParams,
    'SendStreamingMessage': types.MessageSendParams,
    'GetTask': types.TaskQueryParams,
    'CancelTask': types.TaskIdParams,
    'SubscribeToTask': types.TaskIdParams,
}
JSON_RPC_REASONS = {
    -32700: 'PARSE_ERROR',
    -32600: 'INVALID_REQUEST',
    -32601: 'METHOD_NOT_FOUND',
    -32602: 'INVALID_PARAMS',
    -32603: 'INTERNAL_ERROR',
    -32000: 'UNAUTHENTICATED',
}
REASONS: Mapping[int, str] = JSON_RPC_REASONS | {
    JSON_RPC_ERROR_CODE_MAP[error]: reason for error, reason in A2A_ERROR_REASONS.items()
}
"""What an error's code means."""

FIELDS = (
    ('.file.bytes', '.raw'),
    ('.file.uri', '.url'),
    ('.file.mimeType', '.mediaType'),
    ('.file.name', '.filename'),
    ('configuration.blocking', 'configuration.returnImmediately'),
)
"""What 0.3 calls a field, and its name in 1.0."""
NAMED = re.compile(r'(?:^Invalid parameters: |; )([\w.\[\]]+): ')
"""The fields that a message names."""
NEWER = re.compile(rf'parts\[\d+\]\.({"|".join(FILE)})\b')
"""Names that 0.3 does not have."""


def strictly(model: type[Model], wire: Json) -> Model:
    """Read JSON that must hold nothing but what the official model knows."""
    read = model.model_validate(wire)
    assert read.model_dump(mode='json', by_alias=True, exclude_unset=True) == wire
    return read


def write_message(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    written: Json = {'kind': 'message', **cast('Json', message)}
    if (role := written.get('role')) in ROLES:
        written['role'] = ROLES[role]
    if isinstance(written.get('parts'), list):
        written['parts'] = [write_part(part) for part in written['parts']]
    return written


def write_part(part: Json) -> Json:
    metadata: Json = part.get('metadata', {})
    if 'text' in part:
        written: Json = {'kind': 'text', 'text': part['text']}
    elif 'data' not in part:
        written = {'kind': 'file', 'file': {FILE[key]: value for key, value in part.items() if key in FILE}}
    elif isinstance(part['data'], dict):
        written = {'kind': 'data', 'data': part['data']}
    else:
        written, metadata = {'kind': 'data', 'data': {'value': part['data']}}, {**metadata, 'data_part_compat': True}
    return {**written, 'metadata': metadata} if metadata else written


def write_configuration(configuration: Any) -> Any:
    if not isinstance(configuration, dict):
        return configuration
    written: Json = {**cast('Json', configuration)}
    if 'returnImmediately' in written:
        at_once = written.pop('returnImmediately')
        written['blocking'] = not at_once if isinstance(at_once, bool) else at_once
    if 'taskPushNotificationConfig' in written:
        written['pushNotificationConfig'] = written.pop('taskPushNotificationConfig')
    return written


def read_field(name: str) -> str:
    for old, new in FIELDS:
        name = name.replace(old, new)
    return name.removesuffix('.file')


class V0_3(Dialect):
    """A2A 0.3 over JSON-RPC."""

    version = '0.3'
    extensions_header = 'X-A2A-Extensions'
    has_lists = False
    has_details = False
    refuses_ended = False
    refuses_in_streams = True
    zero_history_is_none = False
    ends_send = ENDED | WAITING
    ends_subscription = ENDED | WAITING

    def method(self, name: str) -> str:
        return METHODS.get(name, name)

    def params(self, params: Any) -> Any:
        if not isinstance(params, dict):
            return params
        written: Json = {key: value for key, value in cast('Json', params).items() if key != 'tenant'}
        if 'message' in written:
            written['message'] = write_message(written['message'])
        if 'configuration' in written:
            written['configuration'] = write_configuration(written['configuration'])
        return written

    def check(self, method: str, params: Any) -> None:
        if (model := REQUESTS.get(method)) is None:
            return
        read = strictly(model, self.params(params))
        if isinstance(read, types.MessageSendParams):
            assert conversions.to_core_message(read.message) == ParseDict(params['message'], Message())

    def result(self, method: str, frame: Json) -> Any:
        answer = strictly(ANSWERS[method], frame).result
        assert isinstance(answer, types.Task)
        task: Task = conversions.to_core_task(answer)
        return {'task': MessageToDict(task)} if method == 'SendMessage' else MessageToDict(task)

    def event(self, frame: Json) -> Json:
        read = strictly(types.SendStreamingMessageSuccessResponse, frame)
        event: StreamResponse = conversions.to_core_stream_response(read)
        return MessageToDict(event)

    def final(self, frame: Json) -> bool | None:
        return frame['result'].get('final')

    def error(self, frame: Json) -> Json:
        error = strictly(types.JSONRPCErrorResponse, frame).error
        assert error.data is None
        assert NEWER.search(error.message or '') is None
        fields = [{'field': read_field(name)} for name in NAMED.findall(error.message or '')]
        return {
            'code': error.code,
            'message': error.message,
            'data': [{'reason': REASONS[error.code]}, {'fieldViolations': fields}],
        }

    def field(self, name: str) -> str:
        inside, _, last = name.rpartition('.')
        return f'{inside}.file.{FILE[last]}' if last in FILE else name

    def text(self, message: str) -> str:
        return message.removesuffix('.')

    def parts(self, parts: Sequence[Json]) -> list[Json]:
        there = [conversions.to_compat_part(ParseDict(part, Part())) for part in parts]
        return [MessageToDict(conversions.to_core_part(part)) for part in there]


PATHS = {
    'SendMessage': ('POST', '/message:send'),
    'SendStreamingMessage': ('POST', '/message:stream'),
    'GetTask': ('GET', '/tasks/{id}'),
    'ListTasks': ('GET', '/tasks'),
    'CancelTask': ('POST', '/tasks/{id}:cancel'),
    'SubscribeToTask': ('POST', '/tasks/{id}:subscribe'),
    'CreateTaskPushNotificationConfig': ('POST', '/tasks/{taskId}/pushNotificationConfigs'),
    'GetTaskPushNotificationConfig': ('GET', '/tasks/{taskId}/pushNotificationConfigs/{id}'),
    'ListTaskPushNotificationConfigs': ('GET', '/tasks/{taskId}/pushNotificationConfigs'),
    'DeleteTaskPushNotificationConfig': ('DELETE', '/tasks/{taskId}/pushNotificationConfigs/{id}'),
    'GetExtendedAgentCard': ('GET', '/extendedAgentCard'),
}
"""The verb and path of each operation (§11.3)."""
CODES = {reason: code for code, reason in REASONS.items()} | dict.fromkeys(
    ('PERMISSION_DENIED', 'RESOURCE_EXHAUSTED', 'UNAVAILABLE'), -32000
)
"""What JSON-RPC has for the reason of an error."""


def write_query(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


class HttpJson(Dialect):
    """A2A 1.0 over HTTP+JSON: paths and verbs, no envelope."""

    has_envelope = False
    media_type = 'application/a2a+json'

    def call(self, method: Any, params: Any, **fields: Any) -> Call:
        verb, template = PATHS[method]
        given: Json = params or {}
        named = {name: given.get(name, 'any') for name in re.findall(r'{(\w+)}', template)}
        path = template.format_map({name: quote(str(value), safe='') for name, value in named.items()})
        rest = {name: value for name, value in given.items() if name not in named}
        if verb == 'POST':
            return Call.to(verb, path, json.dumps(rest).encode())
        query = urlencode({name: write_query(value) for name, value in rest.items() if not isinstance(value, dict)})
        return Call.to(verb, f'{path}?{query}' if query else path, b'')

    def result(self, method: str, frame: Json) -> Any:
        return frame

    def event(self, frame: Json) -> Json:
        return frame

    def error(self, frame: Json) -> Json:
        assert frame.keys() == {'error'}
        error = frame['error']
        assert error.keys() == {'code', 'status', 'message', 'details'}
        reason = error['details'][0]['reason']
        return {'code': CODES[reason], 'message': error['message'], 'data': error['details']}


DIALECTS: Mapping[str, Dialect] = {dialect.version: dialect for dialect in (Dialect(), V0_3())}
"""The protocol versions that the behaviour tests run over, as JSON-RPC has them."""

BINDINGS: Mapping[str, Dialect] = {**DIALECTS, 'HTTP+JSON': HttpJson()}
"""All that the behaviour tests run over."""

_spoken = [DIALECTS['1.0']]


def current_dialect() -> Dialect:
    """What clients speak in this test."""
    return _spoken[-1]


@contextmanager
def use_dialect(name: str) -> Generator[Dialect]:
    """Let new clients speak a version, or over a binding."""
    _spoken.append(BINDINGS[name])
    try:
        yield current_dialect()
    finally:
        _spoken.pop()


def only_in(version: str, reason: str) -> pytest.MarkDecorator:
    """Run a test in one version, over each of its bindings, or over one binding: the others do not have it."""
    return pytest.mark.versions(version, reason=reason)


def json_rpc(reason: str) -> pytest.MarkDecorator:
    """Run a test over JSON-RPC only: it is about what HTTP+JSON does not have."""
    return pytest.mark.json_rpc(reason=reason)


def in_no_version(reason: str) -> pytest.MarkDecorator:
    """Run a test once, without a version in its id: no version changes anything in what it is about."""
    return pytest.mark.versions(reason=reason)
