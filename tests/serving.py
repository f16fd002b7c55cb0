"""Apps that serve agents in this process, and what tests ask them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from fasta2a.schema import Task
from pydantic_ai.agent import AbstractAgent

from pydantic_ai_a2a import A2AApp, Retention, Workers, to_a2a

from .app_client import Client, RpcError, lifespan, state_of
from .bounds import LIMIT, LOGS


def each_backend(*kinds: str) -> pytest.MarkDecorator:
    """Run a test with the URL `backend` of an empty store of each kind: `memory`, `sqlite` or `postgres`."""
    return pytest.mark.parametrize('backend', kinds, indirect=True)


@asynccontextmanager
async def running_app(agent: AbstractAgent[Any, Any], **options: Any) -> AsyncGenerator[A2AApp]:
    """An app that serves the agent, with more arguments of `to_a2a`. Everything in the block is bounded."""
    app = to_a2a(agent, **options)
    async with lifespan(app), asyncio.timeout(LIMIT):
        yield app


@asynccontextmanager
async def serving(
    agent: AbstractAgent[Any, Any],
    *,
    headers: Mapping[str, str] | None = None,
    workers: Workers | None = None,
    drain_grace: float = LIMIT,
    **options: Any,
) -> AsyncGenerator[Client]:
    """A client of an app that serves the agent. Everything in the block is bounded.

    Args:
        agent: The agent.
        headers: Headers of the client's requests.
        workers: How runs are done.
        drain_grace: Seconds that the shutdown waits for runs and hooks. A test that leaves some of them unended gives
            a short time, and gives it here.
        options: More arguments of `to_a2a`.
    """
    assert workers is None or workers.drain_grace == Workers().drain_grace
    options.setdefault('retention', Retention(events=LOGS))
    async with running_app(agent, workers=replace(workers or Workers(), drain_grace=drain_grace), **options) as app:
        try:
            yield Client(app, headers=headers)
        except BaseException:
            app.hosting.drain_grace = 0.0  # the test has failed, perhaps before it let its runs end
            raise


async def list_tasks(client: Client, **query: Any) -> list[Task]:
    """The tasks of the app, by its method `list_tasks`."""
    return await client.a2a_app.list_tasks(**query)


async def wait_until_ended(client: Client, task_id: str) -> dict[str, Any]:
    """The task once it has ended."""
    with suppress(RpcError):  # an ended task has no stream in A2A 1.0
        async with client.subscribe(task_id) as stream:
            await stream.rest()
    task = await client.get_task(task_id)
    assert state_of(task) in ('COMPLETED', 'FAILED', 'CANCELED', 'REJECTED')
    return task
