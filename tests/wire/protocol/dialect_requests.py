"""Requests of each dialect, and what its codec makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pydantic_ai_a2a.types import Message, SendParams, TaskState
from pydantic_ai_a2a.wire.protocol.codec import Codec
from pydantic_ai_a2a.wire.protocol.fasta2a_dialect import FastA2ADialect
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS, Params
from pydantic_ai_a2a.wire.protocol.refused_requests import RpcRefused
from pydantic_ai_a2a.wire.protocol.v0_3 import V0_3
from pydantic_ai_a2a.wire.protocol.v1_0 import V1_0

WAITING_STATES: frozenset[TaskState] = frozenset({'input-required', 'auth-required'})
"""States that end a blocking send in the older dialects."""


def rpc(method: str, params: Any) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()


@dataclass(frozen=True)
class DialectRequests:
    """Requests of a dialect, with its smallest message."""

    codec: Codec
    smallest: Mapping[str, Any]

    def method(self, operation: str) -> str:
        return self.codec.method(OPERATIONS[operation])

    def minimal(self, **fields: Any) -> dict[str, Any]:
        """The smallest message, with more fields."""
        return {**self.smallest, **fields}

    def part(self, name: str, value: Any, **fields: Any) -> dict[str, Any]:
        """A part with content in this field of 1.0; a part of 0.3 also names its kind."""
        if self.codec.dialect != '0.3':
            return {name: value, **fields}
        if name == 'raw':
            return {'kind': 'file', 'file': {'bytes': value}, **fields}
        return {'kind': name, name: value, **fields}

    def decoded(self, method: str, params: Any) -> Params | None:
        return self.codec.decode(rpc(method, params)).params

    def sent(self, **params: Any) -> SendParams:
        """A send with these params, and the smallest message if they have none."""
        request = self.decoded(self.method('SendMessage'), {'message': self.minimal(), **params})
        assert isinstance(request, SendParams)
        return request

    def message(self, **fields: Any) -> Message:
        """The message of a send whose smallest message was given more fields."""
        return self.sent(message=self.minimal(**fields)).message

    def refused(self, body: bytes) -> tuple[int, bytes, str]:
        with pytest.raises(RpcRefused) as info:
            self.codec.decode(body)
        return info.value.error.code, info.value.id, info.value.error.message

    def bad(self, method: str, params: Any) -> dict[str, str]:
        """The fields that the params are refused for."""
        with pytest.raises(RpcRefused) as info:
            self.codec.decode(rpc(method, params))
        assert (info.value.error.code, info.value.id) == (-32602, b'1')
        return {violation.field: violation.description for violation in info.value.error.violations}


REQUESTS_1_0 = DialectRequests(V1_0(), {'messageId': 'm', 'role': 'ROLE_USER', 'parts': [{'text': 'Hi'}]})
REQUESTS_0_3 = DialectRequests(
    V0_3(), {'kind': 'message', 'messageId': 'm', 'role': 'user', 'parts': [{'kind': 'text', 'text': 'Hi'}]}
)
REQUESTS_FASTA2A = DialectRequests(FastA2ADialect(), {'messageId': 'm', 'role': 'user', 'parts': [{'text': 'Hi'}]})
DIALECTS = [REQUESTS_1_0, REQUESTS_0_3, REQUESTS_FASTA2A]


def dialect_name(requests: DialectRequests) -> str:
    return requests.codec.dialect
