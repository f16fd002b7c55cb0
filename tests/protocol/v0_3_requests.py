"""Requests of A2A 0.3, and what its codec makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pydantic_ai_a2a.protocol.operations import Params, RpcRefused
from pydantic_ai_a2a.protocol.v0_3 import V0_3
from pydantic_ai_a2a.types import Message, SendParams, TaskState

CODEC = V0_3()
WAITS: frozenset[TaskState] = frozenset({'input-required', 'auth-required'})


def rpc(method: str, params: Any) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()


def decoded(method: str, params: Any) -> Params | None:
    return CODEC.decode(rpc(method, params)).params


def minimal(**fields: Any) -> dict[str, Any]:
    return {'kind': 'message', 'messageId': 'm', 'role': 'user', 'parts': [{'kind': 'text', 'text': 'Hi'}], **fields}


def sent(**params: Any) -> SendParams:
    """A request with these params, and a minimal message if they have none."""
    request = decoded('message/send', {'message': minimal(), **params})
    assert isinstance(request, SendParams)
    return request


def message(**fields: Any) -> Message:
    """The message of a request whose minimal message was given more fields."""
    return sent(message=minimal(**fields)).message


def refused(body: bytes) -> tuple[int, bytes, str]:
    with pytest.raises(RpcRefused) as info:
        CODEC.decode(body)
    return info.value.error.code, info.value.id, info.value.error.message


def bad(method: str, params: Any) -> dict[str, str]:
    """The fields that the params are refused for."""
    with pytest.raises(RpcRefused) as info:
        CODEC.decode(rpc(method, params))
    assert (info.value.error.code, info.value.id) == (-32602, b'1')
    return {violation.field: violation.description for violation in info.value.error.violations}


def bad_part(part: Any) -> dict[str, str]:
    return bad('message/send', {'message': minimal(parts=[{'kind': 'text', 'text': 'x'}, part])})
