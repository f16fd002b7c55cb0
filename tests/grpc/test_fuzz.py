"""Whatever is sent over gRPC is served or refused, and never breaks the server; what is refused leaves nothing.

`make fuzz` sends more than ten thousand calls, and others each time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_core import from_json

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.grpc.messages import SERVICE, Messages, methods
from pydantic_ai_a2a.protocol.versions import HTTP
from pydantic_ai_a2a.types import StoredTask

from ..client import LIMIT
from ..long import LONG, drawn, size
from ..protocol.fuzzing import EVERYTHING, stored, stored_tasks
from .calls import Refused, serving
from .strategies import calls

ERRORS = {'INVALID_ARGUMENT', 'NOT_FOUND', 'FAILED_PRECONDITION', 'RESOURCE_EXHAUSTED', 'UNAUTHENTICATED'}


@pytest.mark.parametrize('round_', range(5 if LONG else 1))
@drawn(size(10, 40), 200)
@given(sent=st.lists(calls, min_size=10, max_size=10))
async def test_any_calls_are_served_or_refused_without_a_trace(
    round_: int, sent: list[tuple[str, bytes, list[tuple[str, Any]]]]
) -> None:
    app = to_a2a(Agent('test'), **EVERYTHING)
    async with asyncio.timeout(LIMIT), serving(app, anonymous=True) as agent:
        before = await stored(app)
        for method, body, metadata in sent:
            answer = await agent.raw(f'/{SERVICE}/{method}', body, metadata=metadata)
            after = await stored(app)
            if isinstance(answer, Refused):
                assert answer.code in ERRORS, (answer, method, body)
                assert answer.details
                assert after == before
            else:
                GetMessageClass(methods()[method].output_type).FromString(answer)
            before = after


@given(task=stored_tasks())
def test_any_task_is_the_message_that_the_official_conversion_makes_of_its_json(task: StoredTask) -> None:
    """Numbers are doubles on both ways."""
    json = b''.join(HTTP.task_pieces(task))
    method = methods()['GetTask']
    message = GetMessageClass(method.output_type).FromString(Messages(method, 1_000).encode(json))
    expected = ParseDict(from_json(json), GetMessageClass(method.output_type)(), ignore_unknown_fields=True)
    assert MessageToDict(message) == MessageToDict(expected)
    assert message == expected
