"""Whatever is sent, decoding answers with a request or a refusal, over every binding in the same words."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pydantic_ai_a2a.errors import A2AError, FieldViolation
from pydantic_ai_a2a.types import SendParams
from pydantic_ai_a2a.wire.protocol.codec import Codec
from pydantic_ai_a2a.wire.protocol.fasta2a_dialect import FastA2ADialect
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS, Params
from pydantic_ai_a2a.wire.protocol.refused_requests import RpcRefused
from pydantic_ai_a2a.wire.protocol.rpc_requests import RpcRequest, request_id
from pydantic_ai_a2a.wire.protocol.stored_values import dump_message
from pydantic_ai_a2a.wire.protocol.v0_3 import V0_3
from pydantic_ai_a2a.wire.protocol.v1_0 import V1_0

from ...sizes import examples, short_or_long
from .fuzzing import ANY_JSON, REQUESTS, mutated_requests

every_codec = pytest.mark.parametrize('codec', [V1_0(), V0_3(), FastA2ADialect()], ids=lambda codec: codec.dialect)


def decode_or_refusal(codec: Codec, body: bytes) -> RpcRequest | RpcRefused:
    try:
        return codec.decode(body)
    except RpcRefused as refused:
        return refused


def check_decodes_or_refuses(codec: Codec, body: bytes) -> None:
    result = decode_or_refusal(codec, body)

    id, notification = request_id(body)
    assert result.id in {id, b'null'}
    assert result.notification == notification
    if isinstance(result, RpcRefused):
        json.loads(codec.encode_error(result.error, 'c'))
    elif isinstance(result.params, SendParams):
        json.loads(dump_message(result.params.message))


@every_codec
def test_unmutated_fuzz_requests_are_valid(codec: Codec) -> None:
    for request in REQUESTS[codec.dialect]:
        assert isinstance(decode_or_refusal(codec, json.dumps(request).encode()), RpcRequest)


@every_codec
@given(body=st.binary() | st.text().map(str.encode))
def test_random_bytes_are_decoded_or_refused(codec: Codec, body: bytes) -> None:
    check_decodes_or_refuses(codec, body)


@every_codec
@given(value=ANY_JSON)
def test_random_json_is_decoded_or_refused(codec: Codec, value: Any) -> None:
    check_decodes_or_refuses(codec, json.dumps(value).encode())


@every_codec
@given(id=ANY_JSON, params=ANY_JSON, data=st.data())
def test_random_params_are_decoded_or_refused(codec: Codec, id: Any, params: Any, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(REQUESTS[codec.dialect]))['method']
    check_decodes_or_refuses(
        codec, json.dumps({'jsonrpc': '2.0', 'id': id, 'method': method, 'params': params}).encode()
    )


@every_codec
@given(data=st.data())
@settings(max_examples=short_or_long(200, 500))
def test_requests_with_mutated_values_are_decoded_or_refused(codec: Codec, data: st.DataObject) -> None:
    check_decodes_or_refuses(codec, json.dumps(data.draw(mutated_requests(codec.dialect))).encode())


@every_codec
@given(data=st.data())
@settings(max_examples=short_or_long(120, 300))
def test_requests_with_mutated_bytes_are_decoded_or_refused(codec: Codec, data: st.DataObject) -> None:
    body = json.dumps(data.draw(st.sampled_from(REQUESTS[codec.dialect]))).encode()
    start = data.draw(st.integers(min_value=0, max_value=len(body)))
    end = data.draw(st.integers(min_value=start, max_value=min(start + 4, len(body))))
    new = data.draw(st.binary(max_size=4) | st.sampled_from([b'"', b'}', b'\\u0000', b'NaN']))
    check_decodes_or_refuses(codec, body[:start] + new + body[end:])


CODEC = V1_0()
SHARED_METHODS = ('SendMessage', 'SendStreamingMessage', 'GetTask', 'ListTasks', 'CancelTask', 'SubscribeToTask')
"""Those of the others are not looked at: they are refused for what they ask."""

Outcome = Params | tuple[int, str, tuple[FieldViolation, ...]] | None


def refusal_values(error: A2AError) -> tuple[int, str, tuple[FieldViolation, ...]]:
    return error.code, error.message, error.violations


def over_json_rpc(method: str, params: dict[str, Any]) -> Outcome:
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()
    try:
        return CODEC.decode(body).params
    except RpcRefused as refused:
        return refusal_values(refused.error)


def over_http(method: str, params: dict[str, Any], path: dict[str, str] | None = None) -> Outcome:
    body = json.dumps(params).encode()
    try:
        return CODEC.decode_params(OPERATIONS[method], path=path or {}, query=b'', body=body)
    except A2AError as error:
        return refusal_values(error)


def with_params(request: Any) -> bool:
    return isinstance(request, dict) and isinstance(cast('dict[str, Any]', request).get('params'), dict)


@examples(short_or_long(120, 300), 3_000)
@given(mutated_requests('1.0').filter(with_params))
def test_http_json_and_json_rpc_decode_alike(request: dict[str, Any]) -> None:
    method: Any = request.get('method')
    assume(isinstance(method, str) and method in SHARED_METHODS)
    assert over_http(method, request['params']) == over_json_rpc(method, request['params'])


@examples(short_or_long(40, 100), 1_000)
@given(mutated_requests('1.0').filter(with_params))
def test_http_path_id_replaces_id_in_body(request: dict[str, Any]) -> None:
    rest = {name: value for name, value in request['params'].items() if name != 'id'}
    for method in ('GetTask', 'CancelTask', 'SubscribeToTask'):
        assert over_http(method, rest, {'id': 't'}) == over_json_rpc(method, {**rest, 'id': 't'})
