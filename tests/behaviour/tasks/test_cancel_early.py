"""A cancel in the first moments of a run, or of a stream of the model, leaves nothing of the run in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from pydantic_ai import Agent
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


@pytest.mark.parametrize('watched', [False, True])
async def test_a_run_that_is_canceled_at_once_leaves_no_asyncio_task_behind(watched: bool) -> None:
    async with serving(Agent(FunctionModel(answer, stream_function=stream))) as client:
        await client.send()
        before = asyncio.all_tasks()
        for turns in range(TURNS):
            await cancel_after(client, turns, watched=watched)
        left = asyncio.all_tasks() - before
        await asyncio.wait(left, timeout=1) if left else None
        assert [task for task in left if not task.done()] == []
