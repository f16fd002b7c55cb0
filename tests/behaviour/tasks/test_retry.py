"""A task that was started too often, and the one that is made of it: what clients and tools see of both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, Limits, Workers, to_a2a
from pydantic_ai_a2a.app.stores import open_store
from pydantic_ai_a2a.store.ports import Slot

from ...client import LIMIT, Client, lifespan, message, state_of, texts
from ...suites.values import OVER
from ..asking import Tools, answers, approve, model
from ..stage import ended
from ..steps import Steps


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f'sqlite:///{tmp_path}/agent.db?synchronous=normal'


@asynccontextmanager
async def served(steps: Steps | Tools, url: str, **options: Any) -> AsyncGenerator[tuple[Client, A2AApp]]:
    """An app that starts a task once and no second time, and hands its runs back as soon as the block ends."""
    workers = Workers(attempts=1, drain_grace=0.01)
    app = to_a2a(steps.agent, name='agent', backend=url, workers=workers, **options)
    async with lifespan(app), asyncio.timeout(LIMIT):
        yield Client(app), app


async def lose_a_process(url: str) -> None:
    """Take the task that was handed back, as a process does that is killed then."""
    backend = open_store(url, 'agent', Limits())
    assert await backend.queue.claim(Slot('a process that is killed', OVER), at=backend.now(), limit=1)
    backend.close()


async def test_a_retry_goes_on_after_the_last_step_of_the_dead_letter(url: str) -> None:
    steps = Steps()
    held = steps.hold('model 3')
    async with served(steps, url) as (client, _):
        task_id = (await client.send(message('one', contextId='c'), returnImmediately=True))['id']
        await held.wait()
    await lose_a_process(url)
    async with served(steps, url) as (client, app):
        dead = await ended(client, task_id)
        [letter] = await app.backend.housekeeping.dead_letters()
        assert letter.correlation_id == dead['status']['message']['metadata']['correlationId']
        assert (state_of(dead), letter.failure, letter.attempts) == ('FAILED', 'attempts', 1)
        await app.backend.housekeeping.retry(task_id, new_id='again', at=app.backend.now())
        again = await ended(client, 'again')
        usage = await app.conversations().read_record('c')
    assert texts(again) == ['Read 5 messages.']
    assert again['history'][0]['referenceTaskIds'] == [task_id]
    assert {step: count for step, count in Counter(steps.done).items() if count > 1} == {'model 3': 2}
    assert {metadata['a2a']['idempotency_key'] for _, _, metadata in steps.told} == {f'{task_id}.1'}
    assert usage is not None
    assert (usage.usage.requests, usage.usage.tool_calls) == (3, 4)


async def test_a_retry_that_is_asked_for_again_begins_anew(url: str) -> None:
    steps = Steps()
    held = steps.hold('tool 2')
    async with served(steps, url) as (client, _):
        task_id = (await client.send(message('one', contextId='c'), returnImmediately=True))['id']
        await held.wait()
    await lose_a_process(url)
    async with served(steps, url) as (client, app):
        await ended(client, task_id)
        for new_id, again in (('second', False), ('third', True)):
            await app.backend.housekeeping.retry(task_id, new_id=new_id, at=app.backend.now(), again=again)
            assert state_of(await ended(client, new_id)) == 'COMPLETED'
    assert Counter(steps.done)['model 1'] == 2
    assert {metadata['a2a']['idempotency_key'] for _, _, metadata in steps.told} == {f'{task_id}.1', 'third.1'}


async def test_a_retry_of_a_task_that_was_approved_goes_on_from_there(url: str) -> None:
    tools, held = Tools(), asyncio.Event()

    async def held_once(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if tools.deleted and not held.is_set():
            held.set()
            await asyncio.Event().wait()
        return model(messages, info)

    async with served(tools, url, model=FunctionModel(held_once)) as (client, _):
        task = await client.send(message('delete', contextId='c'))
        await client.send(answers(task, approve()), returnImmediately=True)
        await held.wait()
    await lose_a_process(url)
    async with served(tools, url, model=FunctionModel(held_once)) as (client, app):
        assert state_of(await ended(client, task['id'])) == 'FAILED'
        await app.backend.housekeeping.retry(task['id'], new_id='again', at=app.backend.now())
        again = await ended(client, 'again')
        conversation = await app.conversations().load('c')
    assert texts(again) == ['delete + deleted a']
    assert tools.deleted == [('a', True)]
    assert conversation is not None
    assert [message.kind for message in conversation.messages] == ['request', 'response', 'request', 'response']
