from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_core import to_json
from starlette.types import Message

from pydantic_ai_a2a import to_a2a


class Lost(OSError):
    """The connection is lost."""


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures('no_collections')
async def test_the_exception_of_a_broken_stream_is_not_kept() -> None:
    """The frames of its traceback hold parts of the request and of the answer."""
    message = {'role': 'ROLE_USER', 'messageId': '1', 'parts': [{'text': 'Hi'}]}
    request = {'type': 'http.request', 'body': to_json({'message': message})}
    received, sent = iter([request, {'type': 'http.disconnect'}]), list[Message]()
    kept = list[weakref.ref[Lost]]()
    scope: dict[str, Any] = {
        'type': 'http',
        'method': 'POST',
        'path': '/message:stream',
        'query_string': b'',
        'headers': [(b'a2a-version', b'1.0'), (b'content-type', b'application/json')],
    }

    async def receive() -> Message:
        return next(received)

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) == 2:
            raise Lost

    app = to_a2a(Agent(TestModel()))
    async with app.router.lifespan_context(app):
        try:
            await app(scope, receive, send)
        except Lost as lost:
            kept.append(weakref.ref(lost))
        assert [reference() for reference in kept] == [None]
