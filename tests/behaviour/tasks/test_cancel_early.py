"""A cancel in the first moments of a run, or of a stream of the model, leaves nothing of the run in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ...client import Client, RpcError, state_of
from ..stage import ended, serving

TURNS = 60
"""Turns of the event loop of a run, from its start to its end at least."""


async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart('hello')])


async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    yield 'hel'
    yield 'lo'


async def cancel_after(client: Client, turns: int, *, watched: bool) -> None:
    async with client.send_streaming() as reader:
        task_id = (await anext(reader)).result['task']['id']
        if watched:
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancel(client, task_id)
            await reader.rest()
    if not watched:
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancel(client, task_id)
    assert state_of(await ended(client, task_id)) in ('CANCELED', 'COMPLETED')


async def cancel(client: Client, task_id: str) -> None:
    with suppress(RpcError):  # the task has ended
        await client.call('CancelTask', {'id': task_id})


async def left_since(before: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """The asyncio tasks that do not end in time."""
    left = asyncio.all_tasks() - before
    await asyncio.wait(left, timeout=1) if left else None
    return [task for task in left if not task.done()]


@pytest.mark.parametrize('watched', [False, True])
async def test_a_run_that_is_canceled_at_once_leaves_no_asyncio_task_behind(watched: bool) -> None:
    async with serving(Agent(FunctionModel(answer, stream_function=stream))) as client:
        await client.send()
        before = asyncio.all_tasks()
        for turns in range(TURNS):
            await cancel_after(client, turns, watched=watched)
        assert await left_since(before) == []


def block_after(turns: int) -> None:
    """Hold up the event loop some turns later, as a busy machine does."""
    if turns:
        asyncio.get_running_loop().call_soon(block_after, turns - 1)
    else:
        time.sleep(0.15)


async def test_a_cancel_on_a_busy_machine_leaves_no_asyncio_task_behind() -> None:
    async def busy(ctx: RunContext[object]) -> None:
        entered.set()
        for _ in range(20):  # for the cancel
            await asyncio.sleep(0)
        block_after(next(turns))

    entered, turns = asyncio.Event(), count()
    agent = Agent(FunctionModel(answer), capabilities=[Hooks(before_run=busy)])
    async with serving(agent) as client:
        await client.send()
        before = asyncio.all_tasks()
        for _ in range(7):
            entered.clear()
            task = await client.send(returnImmediately=True)
            await entered.wait()
            await cancel(client, task['id'])
        assert await left_since(before) == []


async def test_a_repeated_cancel_waits_for_the_start_of_the_run_too() -> None:
    async with serving(Agent(FunctionModel(answer))) as client:
        await client.send()
        before = asyncio.all_tasks()
        for turns in range(TURNS):
            task = await client.send(returnImmediately=True)
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(*(cancel(client, task['id']) for _ in range(3)))
        assert await left_since(before) == []
