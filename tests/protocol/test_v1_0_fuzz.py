"""Whatever is sent, decoding answers with a request or a refusal, and both can be written as JSON."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_ai_a2a.protocol.codec import RpcRefused, RpcRequest, request_id
from pydantic_ai_a2a.protocol.operations import OPERATIONS
from pydantic_ai_a2a.protocol.stored import dump_message
from pydantic_ai_a2a.protocol.v1_0 import V1_0
from pydantic_ai_a2a.types import SendParams

CODEC = V1_0()

SEND: dict[str, Any] = {
    'tenant': 'acme',
    'message': {
        'messageId': 'm',
        'contextId': 'c',
        'taskId': 't',
        'role': 'ROLE_USER',
        'parts': [{'text': 'Hi', 'metadata': {}}, {'raw': 'AAEC', 'filename': 'a'}, {'url': 'x'}, {'data': [1]}],
        'metadata': {'k': 'v'},
        'extensions': ['e'],
        'referenceTaskIds': ['t0'],
    },
    'configuration': {
        'acceptedOutputModes': ['text/plain'],
        'taskPushNotificationConfig': {'url': 'x'},
        'historyLength': 0,
        'returnImmediately': True,
    },
    'metadata': {},
}
LIST = {
    'contextId': 'c',
    'status': 1,
    'pageSize': 1,
    'pageToken': 'p',
    'historyLength': 2,
    'statusTimestampAfter': '2026-01-01T00:00:00Z',
    'includeArtifacts': True,
}
TASK = {'id': 't', 'historyLength': 1, 'metadata': {'k': 1}}
PARAMS = {'SendMessage': SEND, 'SendStreamingMessage': SEND, 'ListTasks': LIST}
REQUESTS = [{'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': PARAMS.get(method, TASK)} for method in OPERATIONS]

ODD: list[Any] = ['\ud800', '\x00', '', 'ROLE_USER', '2026-01-01T00:00:00Z', 0, 1, -1, 2**31, [], {}]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None, codec=None))
    | st.sampled_from(ODD),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=6,
)


def keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast('dict[str, Any]', value))
    return list(range(len(cast('list[Any]', value)))) if isinstance(value, list) else []


def containers(value: Any) -> list[Any]:
    """Everything in a JSON value that holds something, itself included."""
    items = [container for key in keys(value) for container in containers(value[key])]
    return [value, *items] if keys(value) else []


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """A valid request with some values in it replaced, removed or added."""
    request = deepcopy(draw(st.sampled_from(REQUESTS)))
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        target = draw(st.sampled_from(containers(request)))
        key = draw(st.sampled_from(keys(target)))
        if isinstance(target, dict) and draw(st.booleans()):
            target[draw(st.text() | st.sampled_from(['message_id', 'history_length', 'data', 'text']))] = draw(JSON)
        elif target is request or draw(st.booleans()):
            target[key] = draw(JSON)
        else:
            del target[key]
    return request


def outcome(body: bytes) -> RpcRequest | RpcRefused:
    try:
        return CODEC.decode(body)
    except RpcRefused as refused:
        return refused


def check(body: bytes) -> None:
    result = outcome(body)

    assert result.id in {request_id(body), b'null'}
    if isinstance(result, RpcRefused):
        json.loads(CODEC.encode_error(result.error, 'c'))
    elif isinstance(result.params, SendParams):
        json.loads(dump_message(result.params.message))


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes(body: bytes) -> None:
    check(body)


@given(JSON)
def test_any_json(value: Any) -> None:
    check(json.dumps(value).encode())


@given(st.sampled_from(list(OPERATIONS)), JSON, JSON)
def test_any_params(method: str, id: Any, params: Any) -> None:
    check(json.dumps({'jsonrpc': '2.0', 'id': id, 'method': method, 'params': params}).encode())


@given(changed())
@settings(max_examples=500)
def test_valid_requests_with_changed_values(request: Any) -> None:
    check(json.dumps(request).encode())


@given(st.sampled_from(REQUESTS), st.data())
@settings(max_examples=300)
def test_valid_requests_with_changed_bytes(request: Any, data: st.DataObject) -> None:
    body = json.dumps(request).encode()
    start = data.draw(st.integers(min_value=0, max_value=len(body)))
    end = data.draw(st.integers(min_value=start, max_value=min(start + 4, len(body))))
    check(
        body[:start] + data.draw(st.binary(max_size=4) | st.sampled_from([b'"', b'}', b'\\u0000', b'NaN'])) + body[end:]
    )
