"""The limit of queued tasks, which each process checks against a count of the last seconds and its own changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from pydantic_ai_a2a.errors import OverloadedError
from pydantic_ai_a2a.store.ports import Accepted, Slot
from pydantic_ai_a2a.store.sql import ports
from pydantic_ai_a2a.store.sqlite.backend import SqliteFile, SqliteFileBackend

from ...clocks import SetClock
from ...suites.values import LEASE, READER_LAG, claim, message, submit

SLOT = Slot('holder', LEASE)


async def test_a_process_counts_what_others_have_queued_after_ten_seconds_and_a_full_queue_after_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock()
    monkeypatch.setattr(ports, 'time', SimpleNamespace(monotonic=lambda: clock.steady() / 1000))
    here, there = (
        SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=READER_LAG, clock=clock)
        for _ in range(2)
    )

    async def send(backend: SqliteFileBackend, name: str) -> Accepted:
        return await submit(backend, message(new=name), queue_limit=2)

    await send(here, 'a')
    await send(here, 'b')
    with pytest.raises(OverloadedError):
        await send(here, 'refused')
    await send(there, 'c')  # the count of the first process, before its first task
    with clock.later(9_000):
        await send(there, 'd')
        with pytest.raises(OverloadedError):
            await send(there, 'refused')
        assert [task.header.id for task in await claim(here, limit=3)] == ['a', 'b', 'c']
        with pytest.raises(OverloadedError):
            await send(there, 'refused')
        with clock.later(1_100):
            await send(there, 'e')
            with pytest.raises(OverloadedError):
                await send(there, 'refused')
    here.close()
    there.close()


async def test_messages_at_the_same_time_do_not_pass_the_limit(tmp_path: Path) -> None:
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=READER_LAG)
    await submit(backend, message(new='first'), slot=SLOT)
    sent = [submit(backend, message(new=f't{n}'), queue_limit=3) for n in range(9)]
    results = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(result) for result in results] == [Accepted] * 3 + [OverloadedError] * 6
    backend.close()
