"""Apps that hand their runs back as soon as a block ends, and what happens to the tasks that are left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import Agent

from pydantic_ai_a2a import Workers, to_a2a
from pydantic_ai_a2a.errors import LeaseLost
from pydantic_ai_a2a.server.store.ports import Claim, Finish, Slot, TaskQueue
from pydantic_ai_a2a.store import WrappedQueue

from ..app_client import LIMIT, Client, lifespan, message
from .steps import Steps

ALL_POINTS = ('model 1', 'tool 1', 'tool 11', 'model 2', 'tool 2', 'tool 12', 'model 3')
"""The points that a run of `Steps` comes to."""


@asynccontextmanager
async def serving_until_handover(agent: Agent[Any, Any], **options: Any) -> AsyncGenerator[Client]:
    """A client of an app that hands its runs back as soon as the block ends.

    Args:
        agent: The agent.
        options: Arguments of `to_a2a`, and `headers` of the client's requests.
    """
    headers = options.pop('headers', None)
    settings: dict[str, Any] = {'name': 'agent', 'workers': Workers(drain_grace=0.01), **options}
    app = to_a2a(agent, **settings)
    async with lifespan(app), asyncio.timeout(LIMIT):
        yield Client(app, headers=headers)


async def start_task(client: Client, text: str, context: str = 'c') -> str:
    """The id of a task that nobody waits for."""
    return (await client.send(message(text, contextId=context), returnImmediately=True))['id']


async def run_until_handover(point: str, steps: Steps, **options: Any) -> str:
    """The id of a task whose process ends when the run has come to a point."""
    held = steps.hold(point)
    async with serving_until_handover(steps.agent, **options) as client:
        task_id = await start_task(client, 'one')
        await held.wait()
    return task_id


class Gate:
    """A tool that waits for the test."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.opened.wait()


class LosesTaskAtFinish(WrappedQueue):
    """Loses the task of the first end, as if the process were killed just before it stores the end."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.asked = asyncio.Event()
        self._lost = False

    async def claim(self, slot: Slot, **options: Any) -> list[Claim]:
        return [] if self._lost else await super().claim(slot, **options)

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        self._lost = True  # another process has the task next
        await self.release(claim)
        self.asked.set()
        raise LeaseLost
