"""The processes: two servers and two workers of the command line, replaced when they die."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

from ..bounds import LIMIT
from ..e2e.server import Process

__all__ = ('Fleet', 'FleetProcess', 'fleet')

_APP = 'tests.chaos.agent:app'
_TRIES = 5
"""How many processes may end before one does its work."""


class FleetProcess:
    """A place in the fleet, with the process that has it now."""

    def __init__(self, *arguments: str, ready: str, env: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._ready = ready
        self._env = env
        self.processes: list[Process] = []
        """The newest last."""
        self.busy = False
        """Whether something goes wrong with it already."""
        self.url = ''
        """Of a server: where its newest process answers, or the one before as long as that does not."""

    @property
    def process(self) -> Process:
        return self.processes[-1]

    async def start(self) -> None:
        """Have a new process that does its work; one that ends, as where there is no database, is replaced."""
        for tries_left in reversed(range(_TRIES)):
            self.processes.append(Process('-m', 'pydantic_ai_a2a', *self._arguments, env=self._env))
            try:
                ready = await asyncio.to_thread(self.process.wait_for, self._ready)
            except AssertionError:
                if not tries_left:
                    raise
            else:
                self.url = ready[1]
                return

    async def kill(self) -> None:
        """Kill the process, and wait until it has gone."""
        self.process.signal(signal.SIGKILL)
        await self.process.ended()

    async def end(self) -> None:
        """Ask the process to end, and wait until it has."""
        self.process.signal(signal.SIGTERM)
        await self.process.ended()

    def close(self) -> None:
        """End what is left of it."""
        for process in self.processes:
            process.signal(signal.SIGCONT)
            process.close()


class Fleet:
    """All processes."""

    def __init__(self, env: Mapping[str, str]) -> None:
        serve, listens = ('serve', _APP, '--no-worker', '--port', '0'), r'Uvicorn running on (http://\S+)'
        self.webs: Sequence[FleetProcess] = [FleetProcess(*serve, ready=listens, env=env) for _ in range(2)]
        work = ('worker', _APP)
        self.workers: Sequence[FleetProcess] = [
            FleetProcess(*work, ready='(the worker runs)', env=env) for _ in range(2)
        ]

    @property
    def members(self) -> list[FleetProcess]:
        return [*self.webs, *self.workers]

    def url(self, random: Random) -> str:
        """A server's; it may be gone."""
        return random.choice(self.webs).url

    @property
    def output(self) -> str:
        """What all processes have said."""
        return ''.join(process.output for member in self.members for process in member.processes)


@asynccontextmanager
async def fleet(env: Mapping[str, str]) -> AsyncGenerator[Fleet]:
    """All processes, for the block."""
    made = Fleet(env)
    try:
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as starting:
            for member in made.members:
                starting.create_task(member.start())
        yield made
    finally:
        async with asyncio.TaskGroup() as ending:
            for member in made.members:
                ending.create_task(asyncio.to_thread(member.close))
