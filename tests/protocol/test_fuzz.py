"""Whatever is sent, decoding answers with a request or a refusal, and both can be written as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_ai_a2a.protocol.envelope import request_id
from pydantic_ai_a2a.protocol.fasta2a import FastA2ADialect
from pydantic_ai_a2a.protocol.operations import Codec, RpcRefused, RpcRequest
from pydantic_ai_a2a.protocol.stored import dump_message
from pydantic_ai_a2a.protocol.v0_3 import V0_3
from pydantic_ai_a2a.protocol.v1_0 import V1_0
from pydantic_ai_a2a.types import SendParams

from ..long import size
from .fuzzing import JSON, REQUESTS, changed

every_codec = pytest.mark.parametrize('codec', [V1_0(), V0_3(), FastA2ADialect()], ids=lambda codec: codec.dialect)


def outcome(codec: Codec, body: bytes) -> RpcRequest | RpcRefused:
    try:
        return codec.decode(body)
    except RpcRefused as refused:
        return refused


def check(codec: Codec, body: bytes) -> None:
    result = outcome(codec, body)

    id, notification = request_id(body)
    assert result.id in {id, b'null'}
    assert result.notification == notification
    if isinstance(result, RpcRefused):
        json.loads(codec.encode_error(result.error, 'c'))
    elif isinstance(result.params, SendParams):
        json.loads(dump_message(result.params.message))


@every_codec
def test_the_requests_that_are_changed_are_valid(codec: Codec) -> None:
    for request in REQUESTS[codec.dialect]:
        assert isinstance(outcome(codec, json.dumps(request).encode()), RpcRequest)


@every_codec
@given(body=st.binary() | st.text().map(str.encode))
def test_any_bytes(codec: Codec, body: bytes) -> None:
    check(codec, body)


@every_codec
@given(value=JSON)
def test_any_json(codec: Codec, value: Any) -> None:
    check(codec, json.dumps(value).encode())


@every_codec
@given(id=JSON, params=JSON, data=st.data())
def test_any_params(codec: Codec, id: Any, params: Any, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(REQUESTS[codec.dialect]))['method']
    check(codec, json.dumps({'jsonrpc': '2.0', 'id': id, 'method': method, 'params': params}).encode())


@every_codec
@given(data=st.data())
@settings(max_examples=size(200, 500))
def test_valid_requests_with_changed_values(codec: Codec, data: st.DataObject) -> None:
    check(codec, json.dumps(data.draw(changed(codec.dialect))).encode())


@every_codec
@given(data=st.data())
@settings(max_examples=size(120, 300))
def test_valid_requests_with_changed_bytes(codec: Codec, data: st.DataObject) -> None:
    body = json.dumps(data.draw(st.sampled_from(REQUESTS[codec.dialect]))).encode()
    start = data.draw(st.integers(min_value=0, max_value=len(body)))
    end = data.draw(st.integers(min_value=start, max_value=min(start + 4, len(body))))
    new = data.draw(st.binary(max_size=4) | st.sampled_from([b'"', b'}', b'\\u0000', b'NaN']))
    check(codec, body[:start] + new + body[end:])
