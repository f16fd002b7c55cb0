"""What goes wrong in a run: each fault by its name, and what has been counted and measured."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from random import Random

from .ledger import Ledger
from .plan import Plan
from .processes import Fleet, Member

__all__ = ('OF_PROCESSES', 'Faults', 'lock_file')

OF_PROCESSES = ('kill a worker', 'stop a worker', 'end a worker', 'kill a server')
"""What can go wrong over every database."""
_TRIES = 10.0
"""Seconds for which a worker is to be caught inside a tool."""
_PATIENCE = 8.0
"""Seconds in which somebody else takes over what a worker was in: the others may just be starting."""


class Faults:
    """Makes things go wrong as the ledger grows.

    Args:
        lease: Seconds of the workers' leases.
        store: Faults of the database, by their names.
    """

    def __init__(
        self,
        plan: Plan,
        fleet: Fleet,
        ledger: Ledger,
        *,
        lease: float,
        store: Mapping[str, Callable[[], Awaitable[None]]],
    ) -> None:
        self._plan = plan
        self._fleet = fleet
        self._ledger = ledger
        self._lease = lease
        self._well_workers, self._well_servers = (
            asyncio.Semaphore(len(members)) for members in (fleet.workers, fleet.webs)
        )
        self._random = Random(f'{plan.seed} faults')
        self._kinds: Mapping[str, Callable[[], Awaitable[None]]] = {
            'kill a worker': self._kill_worker,
            'stop a worker': self._stop_worker,
            'end a worker': self._end_worker,
            'kill a server': self._kill_server,
            **store,
        }
        self.done = Counter[str]()
        self.recovered: list[float] = []
        """Seconds from the loss of a worker until a task that it was in was begun anew in another one."""

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Begin each when its time has come, as a task of its own: they may overlap."""
        for fault in self._plan.faults:
            await self._ledger.find(lambda _: True, after=fault.at - 1)
            group.create_task(self._do(fault.kind))

    async def _do(self, kind: str) -> None:
        await self._kinds[kind]()
        self.done[kind] += 1

    @asynccontextmanager
    async def _stopped(self) -> AsyncGenerator[tuple[Member, str | None]]:
        """A worker that is stopped for the block, and the task in whose tool it is then."""
        async with self._well_workers:
            victim, task = await self._stop()
            with _busy(victim):
                try:
                    yield victim, task
                finally:
                    victim.process.signal(signal.SIGCONT)

    async def _stop(self) -> tuple[Member, str | None]:
        """Stop a worker that is inside a tool, or just any if none can be caught there."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TRIES):
                while True:
                    row = await self._ledger.find(lambda _: True, after=len(self._ledger.rows))
                    victim = next((each for each in self._fleet.workers if each.process.pid == row.pid), None)
                    if victim is None or victim.busy:
                        continue
                    victim.process.stop()
                    if time.monotonic() < row.until:
                        return victim, row.task
                    victim.process.signal(signal.SIGCONT)
        victim = self._any(self._fleet.workers)
        victim.process.stop()
        return victim, None

    def _any(self, members: Sequence[Member]) -> Member:
        return self._random.choice([each for each in members if not each.busy])

    async def _kill_worker(self) -> None:
        async with self._stopped() as (victim, task), asyncio.TaskGroup() as both:
            both.create_task(self._recovery(victim.process.pid, task))
            await victim.kill()
            await victim.start()

    async def _stop_worker(self) -> None:
        """Stop it until what it was in has gone to somebody else, as far as anybody can take it."""
        async with self._stopped() as (victim, task):
            await self._recovery(victim.process.pid, task)

    async def _end_worker(self) -> None:
        async with self._well_workers:
            with _busy(victim := self._any(self._fleet.workers)):
                await victim.end()
                await victim.start()

    async def _kill_server(self) -> None:
        async with self._well_servers:
            with _busy(victim := self._any(self._fleet.webs)):
                await victim.kill()
                await victim.start()

    async def _recovery(self, pid: int, task: str | None) -> None:
        """Wait until another process has begun the task anew; not for ever: it may have been canceled."""
        lost, known = time.monotonic(), len(self._ledger.rows)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE if task else self._lease * 2):
                row = await self._ledger.find(lambda row: row.task == task and row.pid != pid, after=known)
            self.recovered.append(row.at - lost)


@contextmanager
def _busy(victim: Member) -> Generator[None]:
    victim.busy = True
    try:
        yield
    finally:
        victim.busy = False


async def lock_file(path: Path, seconds: float) -> None:
    """Keep a SQLite file from all who would write it; unless somebody who is stopped does so already."""
    await asyncio.to_thread(_lock_file, path, seconds)


def _lock_file(path: Path, seconds: float) -> None:
    connection = sqlite3.connect(path, timeout=seconds, isolation_level=None)
    with closing(connection), suppress(sqlite3.OperationalError):
        connection.execute('BEGIN IMMEDIATE')
        time.sleep(seconds)
