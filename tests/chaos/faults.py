"""What goes wrong in a run: each fault by its name, and what has been counted and measured.

Each fault brings a task of its own, and strikes at a moment of it: so none of them hits nothing. Those of one kind, of
workers, servers or the database, come one after the other; those of different kinds may overlap. One that came too late
is tried again, with another task.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import count
from random import Random
from signal import SIGCONT
from typing import Any, Literal, TypeAlias

from ..bounds import LIMIT
from .facts import LedgerRow, Outage, Recovery
from .ledger import Ledger
from .plan import Fault, Plan, Turn
from .processes import Fleet, FleetProcess
from .stores import Store

__all__ = ('OF_PROCESSES', 'Faults')

OF_PROCESSES = (
    'kill a worker',
    'stop a worker in a tool',
    'stop a worker between steps',
    'stop a worker that speaks',
    'stop a worker and kill its heir',
    'end a worker',
    'kill a server',
)
"""What can go wrong over every database."""
_Moment: TypeAlias = Literal['in a tool', 'between steps', 'speaking']
_TO_WRITE = 0.1
"""Seconds in which a worker that goes on comes to writing what it has."""


class Faults:
    """Makes things go wrong as the ledger grows.

    Args:
        lease: Seconds of the workers' leases.
        send: Sends a task, and reads it to its end.
    """

    def __init__(
        self,
        plan: Plan,
        fleet: Fleet,
        ledger: Ledger,
        store: Store,
        *,
        lease: float,
        send: Callable[[Turn], Coroutine[Any, Any, None]],
    ) -> None:
        self._plan = plan
        self._fleet = fleet
        self._ledger = ledger
        self._store = store
        self._lease = lease
        self._send = send
        self._workers, self._servers, self._database = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._random = Random(f'{plan.seed} faults')
        self._sending: dict[str, asyncio.Task[None]] = {}
        """The tasks that faults have brought, by the names of their turns."""
        self._kinds: Mapping[str, Callable[[Turn], Awaitable[bool]]] = {
            'kill a worker': self._kill_worker,
            'stop a worker in a tool': lambda prey: self._stop_worker(prey, 'in a tool'),
            'stop a worker between steps': lambda prey: self._stop_worker(prey, 'between steps'),
            'stop a worker that speaks': lambda prey: self._stop_worker(prey, 'speaking'),
            'stop a worker and kill its heir': self._kill_heir,
            'end a worker': self._end_worker,
        }
        self.done = Counter[str]()
        self.away: list[Outage] = []
        self.recoveries: list[Recovery] = []

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Begin each when its time has come, as a task of its own."""
        for fault in self._plan.faults:
            await self._ledger.find(lambda _: True, after=fault.at - 1)
            group.create_task(self._do(fault, group))

    async def _do(self, fault: Fault, group: asyncio.TaskGroup) -> None:
        kind = fault.kind
        strike = self._kinds.get(kind) or (self._kill_server if kind == 'kill a server' else self._strike_store(kind))
        async with self._lock(kind):
            for number in count(fault.prey.number):
                prey = replace(fault.prey, number=number)
                self._sending[prey.name] = group.create_task(self._send(prey))
                hit = await strike(prey)
                await self._sending[prey.name]  # now: the next one might put right what this one has done
                if hit:
                    break
        self.done[kind] += 1

    def _lock(self, kind: str) -> asyncio.Lock:
        if kind in self._store.faults:
            return self._database
        return self._servers if kind == 'kill a server' else self._workers

    # --- workers ------------------------------------------------------------------------------------------------------

    async def _kill_worker(self, prey: Turn) -> bool:
        victim, row = await self._catch(prey, 'in a tool')
        return await self._kill(victim, row)

    async def _stop_worker(self, prey: Turn, moment: _Moment) -> bool:
        victim, row = await self._catch(prey, moment)
        return await self._stop(victim, row) is not None

    async def _kill_heir(self, prey: Turn) -> bool:
        """Stop a worker, let it go on, and kill the one that took over: nothing of the first one may be left."""
        victim, row = await self._catch(prey, 'in a tool')
        taken = await self._stop(victim, row)
        heir = None if taken is None else self._worker(taken)
        return heir is not None and taken is not None and await self._kill(heir, taken)

    async def _end_worker(self, prey: Turn) -> bool:
        victim, row = await self._catch(prey, 'in a tool')
        self.away.append(Outage(row.pid, time.monotonic()))
        await victim.end()
        await victim.start()
        return True

    async def _catch(self, prey: Turn, moment: _Moment) -> tuple[FleetProcess, LedgerRow]:
        """The worker that does a task, at this moment of it."""
        step = 0 if moment == 'speaking' else 2
        after = 0
        while True:
            row = await self._ledger.find(lambda row: _turn(row) == prey.name and row.step == step, after=after)
            after = self._ledger.rows.index(row) + 1
            victim = self._worker(row)
            if victim is not None:
                await asyncio.sleep(row.until - time.monotonic() if moment == 'between steps' else 0.0)
                return victim, row

    def _worker(self, row: LedgerRow) -> FleetProcess | None:
        return next((each for each in self._fleet.workers if each.process.pid == row.pid), None)

    async def _kill(self, victim: FleetProcess, row: LedgerRow) -> bool:
        known, lost = len(self._ledger.rows), time.monotonic()
        self.away.append(Outage(row.pid, lost))
        async with asyncio.TaskGroup() as both:
            taken = both.create_task(self._recovery(row, lost, known))
            await victim.kill()
            await victim.start()
        return taken.result() is not None

    async def _stop(self, victim: FleetProcess, row: LedgerRow) -> LedgerRow | None:
        """Stop a worker until its task has gone to another one; what the other one began with."""
        begin = await self._halt(victim)
        try:
            taken = await self._recovery(row, begin, len(self._ledger.rows))
            await asyncio.sleep(row.until - time.monotonic())  # by now it has something to write
            return taken
        finally:
            async with AsyncExitStack() as held:
                with suppress(TimeoutError):  # else it hears that it has lost its tasks before it comes to writing
                    await held.enter_async_context(self._store.hold())
                self.away.append(Outage(row.pid, begin, time.monotonic() + self._lease))
                victim.process.signal(SIGCONT)
                await asyncio.sleep(_TO_WRITE)

    async def _halt(self, victim: FleetProcess) -> float:
        """Stop a worker, but not while it writes: nobody else could."""
        while True:
            begin = time.monotonic()
            victim.process.stop()
            try:
                async with self._store.hold():
                    return begin
            except TimeoutError:
                # Several stops one after another leave no time to renew leases.
                self.away.append(Outage(victim.process.pid, begin, time.monotonic() + self._lease))
                victim.process.signal(SIGCONT)
            async with self._database:  # what went wrong with it is over
                pass

    async def _recovery(self, lost: LedgerRow, at: float, known: int) -> LedgerRow | None:
        """Wait until another process goes on with a task; None if it ended without, since the fault came too late."""
        finding = asyncio.create_task(self._ledger.find(lambda row: _taken(row, lost), after=known))
        ending = self._sending[_turn(lost)]
        done, _ = await asyncio.wait([finding, ending], timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
        finding.cancel()
        row = finding.result() if finding in done else None
        if row is not None or ending not in done:
            self.recoveries.append(Recovery(_turn(lost), at, None if row is None else row.at))
        return row

    # --- servers and the database -------------------------------------------------------------------------------------

    async def _kill_server(self, prey: Turn) -> bool:
        await self._ledger.find(lambda row: _turn(row) == prey.name)
        victim = self._random.choice(self._fleet.webs)
        await victim.kill()
        await victim.start()
        return True

    def _strike_store(self, kind: str) -> Callable[[Turn], Awaitable[bool]]:
        async def strike(prey: Turn) -> bool:
            await self._ledger.find(lambda row: _turn(row) == prey.name)
            begin = time.monotonic()
            await self._store.faults[kind]()
            self.away.append(Outage(None, begin, time.monotonic() + self._lease))
            return True

        return strike


def _turn(row: LedgerRow) -> str:
    return f'{row.context}/{row.turn}'


def _taken(row: LedgerRow, lost: LedgerRow) -> bool:
    """Whether another process than that of a row goes on with its task; not one that lost the task before it."""
    return _turn(row) == _turn(lost) and row.pid != lost.pid and (row.step == 0 or row.attempt > lost.attempt)
