from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import serve, to_a2a


def test_an_app_that_does_not_start_says_so() -> None:
    @asynccontextmanager
    async def broken(app: Any) -> AsyncGenerator[None]:
        raise ValueError('no database')
        yield

    with pytest.raises(RuntimeError, match=r'The app did not start; its log says why\.'):
        serve(to_a2a(Agent(TestModel()), lifespan=broken))


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        with pytest.raises(OSError, match='in use'):
            serve(to_a2a(Agent(TestModel())), port=taken.getsockname()[1])


async def test_an_app_that_has_not_begun_has_nothing_to_drain() -> None:
    app = to_a2a(Agent(TestModel()))
    app.hosting.drain(asyncio.get_running_loop())
    assert app.hosting.accepting()
