"""Requests of A2A 1.0, and what its codec makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pydantic_ai_a2a.errors import A2AError
from pydantic_ai_a2a.protocol.operations import Params, RpcRefused
from pydantic_ai_a2a.protocol.v1_0 import V1_0
from pydantic_ai_a2a.types import Message, SendParams

CODEC = V1_0()


def rpc(method: str, params: Any) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()


def decoded(method: str, params: Any) -> Params | None:
    return CODEC.decode(rpc(method, params)).params


def message(**fields: Any) -> Message:
    """The message of a request whose minimal message was given more fields."""
    params = decoded('SendMessage', {'message': minimal(**fields)})
    assert isinstance(params, SendParams)
    return params.message


def minimal(**fields: Any) -> dict[str, Any]:
    return {'messageId': 'm', 'role': 'ROLE_USER', 'parts': [{'text': 'Hi'}], **fields}


def refused(body: bytes) -> tuple[int, bytes, str]:
    with pytest.raises(RpcRefused) as info:
        CODEC.decode(body)
    return info.value.error.code, info.value.id, info.value.error.message


def bad(method: str, params: Any) -> dict[str, str]:
    """The fields that the params are refused for."""
    with pytest.raises(RpcRefused) as info:
        CODEC.decode(rpc(method, params))
    error: A2AError = info.value.error
    assert (error.code, info.value.id) == (-32602, b'1')
    return {violation.field: violation.description for violation in error.violations}
