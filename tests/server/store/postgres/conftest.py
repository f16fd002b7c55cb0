"""Backends of several processes over one PostgreSQL database."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.server.store.postgres import backend as postgres_backend
from pydantic_ai_a2a.server.store.postgres import pool
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend

from ....bounds import LIMIT
from ....clocks import skip_time
from ....suites import READER_LAG
from ....suites.values import WAIT_LIMIT

Open = Callable[..., PostgresBackend]


@pytest.fixture
def three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call with the `acquire_timeout` of `WAIT_LIMIT` try three times while its database is away.

    The time of an attempt does not depend on the machine.
    """
    times = count(0.0, WAIT_LIMIT / 2)
    monkeypatch.setattr(pool, 'time', SimpleNamespace(monotonic=lambda: next(times)))


@pytest.fixture
def exceed_client_limits(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """Sets the clock of the thread with the connections forward: all that waits there has waited too long.

    For a single backend that the test opens. The thread asks `uvloop` for its event loop.
    """
    loops: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        loops.append(asyncio.new_event_loop())
        return loops[-1]

    async def skip() -> None:
        skip_time(LIMIT)
        await asyncio.sleep(0)  # the loop finds the timers that are over,
        await asyncio.sleep(0)  # and those who wait for them go on

    def exceed() -> Awaitable[None]:
        [loop] = loops
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(skip(), loop))

    monkeypatch.setitem(sys.modules, 'uvloop', SimpleNamespace(new_event_loop=new_event_loop))
    return exceed


@pytest.fixture
def open_backend(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the database once more, as another process would."""
    monkeypatch.setattr(postgres_backend, 'shared_pool', pool.SharedPool)
    backends: list[PostgresBackend] = []

    def make(url: str = postgres_url, namespace: str = 'agent', **options: Any) -> PostgresBackend:
        backends.append(PostgresBackend(Postgres(url, **options), namespace, reader_lag=READER_LAG))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()
