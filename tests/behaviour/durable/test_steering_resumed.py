"""Messages that entered a run whose process ends: they are in what goes on elsewhere, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pydantic_ai_a2a import A2AApp, Messages, Workers, to_a2a

from ...client import LIMIT, Client, lifespan, message, texts
from ..stage import Desk, ended, prompts


@asynccontextmanager
async def served(desk: Desk, folder: Path) -> AsyncGenerator[Client]:
    """A client of an app that hands its runs back as soon as the block ends."""
    url, workers = f'sqlite:///{folder}/agent.db?synchronous=normal', Workers(drain_grace=0.01)
    app = to_a2a(desk.agent, name='agent', workers=workers, backend=url, messages=Messages(while_working='steer'))
    async with lifespan(app), asyncio.timeout(LIMIT):
        yield Client(app)


@pytest.mark.parametrize('point', ['tool 1', 'model 2', 'tool 2', 'model 3', 'tool 3', 'model 4'])
async def test_a_message_is_once_in_a_run_that_was_handed_back_wherever_that_was(point: str, tmp_path: Path) -> None:
    desk = Desk(steps=3)
    desk.hold(point)
    async with served(desk, tmp_path) as client:
        task_id = (await client.send('one', returnImmediately=True))['id']
        await desk.looking.wait()
        await client.send(message('two', taskId=task_id), returnImmediately=True)
        desk.found.set()
        await desk.reached.wait()
        await client.send(message('three', taskId=task_id), returnImmediately=True)
    async with served(desk, tmp_path) as client:
        task = await ended(client, task_id)
        assert isinstance(client.app, A2AApp)
        loaded = await client.app.conversations().load(task['contextId'])
    assert loaded is not None
    assert prompts(loaded.messages) == ['one', 'two', 'three']
    assert desk.seen[-1] == ['one', 'two', 'three']
    assert texts(task) == ['one + two + three']
    said = [part['text'] for each in task['history'] for part in each['parts']]
    assert said == ['one', 'two', 'three', 'one + two + three']
