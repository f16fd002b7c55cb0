"""The steady clock begins anew when a machine starts: leases of the boot before have expired."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_ai_a2a.clock import SYSTEM, Clock
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.settings import Retention

from ....clocks import HOUR, SetClock
from ....suites import READER_LAG
from ....suites.push import lease_deliveries, register
from ....suites.values import OWNER, START, claim_all, claim_task, message, submit


@pytest.fixture
def file_with_leased_task(tmp_path: Path) -> SqliteFile:
    """A file with a task whose holder has a lease."""
    file = SqliteFile(path=tmp_path / 'agent.db', synchronous='normal')

    async def take() -> None:
        backend = SqliteFileBackend(file, 'agent', reader_lag=READER_LAG)
        await submit(backend, message(new='t'))
        await claim_task(backend, 't')
        backend.close()

    asyncio.run(take())
    return file


def attempts_claimed_after_start(file: SqliteFile, clock: Clock = SYSTEM) -> list[int]:
    """The attempts of what a process claims that opens the file now."""

    async def take() -> list[int]:
        backend = SqliteFileBackend(file, 'agent', reader_lag=READER_LAG, clock=clock)
        claims = await claim_all(backend, 'another')
        backend.close()
        return [each.attempt for each in claims]

    return asyncio.run(take())


def test_lease_outlives_process(file_with_leased_task: SqliteFile) -> None:
    assert attempts_claimed_after_start(file_with_leased_task) == []


def test_leases_expire_after_reboot(file_with_leased_task: SqliteFile, tmp_path: Path) -> None:
    boot_id = tmp_path / 'boot_id'
    boot_id.write_text('another boot\n')
    assert attempts_claimed_after_start(file_with_leased_task, Clock(boot_id)) == [2]
    assert attempts_claimed_after_start(file_with_leased_task, Clock(boot_id)) == []


def test_webhook_delivery_is_repeated_after_reboot(tmp_path: Path) -> None:
    file, boot_id = SqliteFile(path=tmp_path / 'agent.db', synchronous='normal'), tmp_path / 'boot_id'
    boot_id.write_text('another boot\n')

    async def tell() -> None:
        backend = SqliteFileBackend(file, 'agent', reader_lag=READER_LAG)
        await submit(backend, message(new='t'))
        await register(backend, 'c')
        await backend.queue.cancel('t', OWNER, at=START)
        backend.close()

    async def take(clock: Clock) -> int:
        backend = SqliteFileBackend(file, 'agent', reader_lag=READER_LAG, clock=clock)
        await claim_all(backend, 'another')  # as a server does when it starts
        deliveries = await lease_deliveries(backend)
        backend.close()
        return len(deliveries)

    asyncio.run(tell())
    clocks = (SYSTEM, SYSTEM, Clock(boot_id), Clock(boot_id))
    assert [asyncio.run(take(clock)) for clock in clocks] == [1, 0, 1, 0]


def test_subscribers_are_forgotten_after_reboot(tmp_path: Path) -> None:
    file, boot_id = SqliteFile(path=tmp_path / 'agent.db', synchronous='normal'), tmp_path / 'boot_id'
    boot_id.write_text('another boot\n')

    async def read_and_stop() -> None:
        backend = SqliteFileBackend(file, 'agent', reader_lag=READER_LAG)
        reader = backend.events.subscribe('t', print)
        await submit(backend, message(new='t'))
        while not marked():
            await backend.queued()
        backend.close()
        reader.close()

    def marked() -> int:
        with closing(sqlite3.connect(file.path)) as connection:
            return connection.execute('SELECT COUNT(*) FROM process').fetchone()[0]

    asyncio.run(read_and_stop())
    assert marked() == 1
    assert attempts_claimed_after_start(file, Clock(boot_id)) == [1]
    assert marked() == 0


def test_without_boot_id_clock_going_back_means_reboot(tmp_path: Path) -> None:
    nowhere = tmp_path / 'nowhere'
    file, before, after = SqliteFile(path=tmp_path / 'agent.db'), SetClock(HOUR, nowhere), SetClock(0, nowhere)
    assert (before.boot, after.boot) == ('', '')

    async def take() -> None:
        backend = SqliteFileBackend(file, 'agent', reader_lag=READER_LAG, clock=before)
        await submit(backend, message(new='t'))
        await claim_task(backend, 't')
        backend.close()

    asyncio.run(take())
    assert attempts_claimed_after_start(file, before) == []
    assert attempts_claimed_after_start(file, after) == [2]
    assert attempts_claimed_after_start(file, after) == []


def test_reboot_is_noticed_for_file_created_soon_after_boot(tmp_path: Path) -> None:
    file, nowhere = SqliteFile(path=tmp_path / 'agent.db'), tmp_path / 'nowhere'
    clock = SetClock(0, nowhere)

    async def work_for_hours() -> None:
        backend = SqliteFileBackend(file, 'agent', reader_lag=READER_LAG, clock=clock)
        await submit(backend, message(new='t'))
        clock.passed = 3 * HOUR
        await claim_task(backend, 't')
        await backend.housekeeping.sweep(Retention(), at=START)
        backend.close()

    asyncio.run(work_for_hours())
    assert attempts_claimed_after_start(file, clock) == []
    assert attempts_claimed_after_start(file, SetClock(HOUR, nowhere)) == [2]
