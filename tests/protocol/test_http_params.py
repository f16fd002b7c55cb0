"""Params without an envelope are read as those of JSON-RPC are, and refused in the same words."""

from __future__ import annotations

import json
from typing import Any, cast

from hypothesis import assume, given

from pydantic_ai_a2a.errors import A2AError, FieldViolation
from pydantic_ai_a2a.protocol.operations import OPERATIONS, Params, RpcRefused
from pydantic_ai_a2a.protocol.v1_0 import V1_0

from ..long import drawn, size
from .fuzzing import changed

CODEC = V1_0()
READ = ('SendMessage', 'SendStreamingMessage', 'GetTask', 'ListTasks', 'CancelTask', 'SubscribeToTask')
"""Those of the others are not looked at: they are refused for what they ask."""

Outcome = Params | tuple[int, str, tuple[FieldViolation, ...]] | None


def refusal(error: A2AError) -> tuple[int, str, tuple[FieldViolation, ...]]:
    return error.code, error.message, error.violations


def over_json_rpc(method: str, params: dict[str, Any]) -> Outcome:
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()
    try:
        return CODEC.decode(body).params
    except RpcRefused as refused:
        return refusal(refused.error)


def over_http(method: str, params: dict[str, Any], path: dict[str, str] | None = None) -> Outcome:
    body = json.dumps(params).encode()
    try:
        return CODEC.decode_params(OPERATIONS[method], path=path or {}, query=b'', body=body)
    except A2AError as error:
        return refusal(error)


def with_params(request: Any) -> bool:
    return isinstance(request, dict) and isinstance(cast('dict[str, Any]', request).get('params'), dict)


@drawn(size(120, 300), 3_000)
@given(changed('1.0').filter(with_params))
def test_a_body_is_read_as_the_params_of_json_rpc_are(request: dict[str, Any]) -> None:
    method: Any = request.get('method')
    assume(isinstance(method, str) and method in READ)
    assert over_http(method, request['params']) == over_json_rpc(method, request['params'])


@drawn(size(40, 100), 1_000)
@given(changed('1.0').filter(with_params))
def test_what_the_path_says_may_be_missing_in_the_body(request: dict[str, Any]) -> None:
    rest = {name: value for name, value in request['params'].items() if name != 'id'}
    for method in ('GetTask', 'CancelTask', 'SubscribeToTask'):
        assert over_http(method, rest, {'id': 't'}) == over_json_rpc(method, {**rest, 'id': 't'})
