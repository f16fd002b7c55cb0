"""Agents of durable engines: which of them are served, what is refused at once, and what is peculiar to DBOS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS, SetWorkflowID
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent, RunContext
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.durable_exec.dbos import (
    DBOSAgent,  # pyright: ignore[reportDeprecated]
    DBOSDurability,
)
from pydantic_ai.exceptions import PydanticAIDeprecationWarning
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import AgentWorker, Workers, to_a2a
from pydantic_ai_a2a.engines import dbos as engine
from pydantic_ai_a2a.errors import BackendUnusable

from ...app_client import LIMIT, message, state_of, texts
from ...engines import DbosSetup, skip_without_dbos
from ...serving import serving, wait_until_ended
from ..durable_handover import serving_until_handover, start_task
from ..fasta2a.test_worker import ScriptedWorker
from ..pending_calls import ApprovalAgent, answer_message, approve


@asynccontextmanager
async def launched(folder: Path) -> AsyncGenerator[None]:
    """DBOS with the workflows that there are, on a file of the test's."""
    skip_without_dbos()
    DBOS(config={'name': 'test', 'system_database_url': f'sqlite:///{folder}/dbos.db', 'log_level': 'ERROR'})
    DBOS.launch()
    try:
        yield
    finally:
        await asyncio.to_thread(DBOS.destroy)


async def test_durable_agent_without_engine_starts_no_workflow(tmp_path: Path) -> None:
    tools = ApprovalAgent(name='agent', capabilities=[DBOSDurability()])
    url = f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    async with launched(tmp_path):
        async with serving_until_handover(tools.agent, backend=url) as client:
            async with client.send_streaming('hello') as stream:
                events = await stream.rest()
            task = await client.send('delete')
        async with serving_until_handover(tools.agent, backend=url) as client:
            done = await client.send(answer_message(task, approve()))
        assert await DBOS.list_workflows_async() == []
    assert [next(iter(event.result)) for event in events] == ['task', 'statusUpdate', 'artifactUpdate', 'statusUpdate']
    assert (state_of(task), texts(done)) == ('INPUT_REQUIRED', ['delete + deleted a'])


async def test_cancel_stops_run_of_durable_agent(tmp_path: Path) -> None:
    running, stopped = asyncio.Event(), asyncio.Event()
    agent = Agent(TestModel(), name='agent', capabilities=[DBOSDurability()])

    @agent.tool_plain
    async def wait() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with launched(tmp_path), serving(agent) as client:
        task = await client.send('hello', returnImmediately=True)
        await running.wait()
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
    assert stopped.is_set()


async def test_workflow_of_repeated_tool_call_runs_once(tmp_path: Path) -> None:
    done, paying, paid = list[str](), asyncio.Event(), asyncio.Event()
    agent = Agent(TestModel(custom_output_text='Booked.'), name='agent')

    @DBOS.step()
    async def pay(room: str) -> str:
        done.append('pay')
        paying.set()
        await paid.wait()
        return f'{room} is paid'

    @DBOS.workflow()
    async def book(room: str) -> str:
        return await pay(room)

    @agent.tool
    async def book_room(ctx: RunContext[object], room: str) -> str:
        done.append('tool')
        with SetWorkflowID(f'{(ctx.metadata or {})["a2a"]["idempotency_key"]}/{ctx.tool_call_id}'):
            handle = await DBOS.start_workflow_async(book, room)
        return await handle.get_result()

    url = f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    async with launched(tmp_path):
        async with serving_until_handover(agent, backend=url) as client:
            task_id = await start_task(client, 'one')
            await paying.wait()
        async with serving_until_handover(agent, backend=url) as client:
            paid.set()
            assert texts(await wait_until_ended(client, task_id)) == ['Booked.']
        [workflow] = await DBOS.list_workflows_async()
    assert workflow.workflow_id.startswith(f'{task_id}.1/')
    assert done == ['tool', 'pay', 'tool']


def test_dbos_agent_wrapper_is_refused() -> None:
    with pytest.warns(PydanticAIDeprecationWarning):
        agent = DBOSAgent(Agent(TestModel(), name='agent'))  # pyright: ignore[reportDeprecated]
    told = r'DBOSAgent takes no cancellation: give to_a2a\(\) .* capability DBOSDurability\.'
    with pytest.raises(TypeError, match=told):
        to_a2a(WrapperAgent(agent))
    with pytest.raises(TypeError, match=told):
        AgentWorker(agent=agent, broker=InMemoryBroker(), storage=InMemoryStorage())


class PrefectAgent(WrapperAgent[Any, Any]):
    """Stands for Pydantic AI's, which cannot be imported without Prefect, and refuses the same."""

    __module__ = 'pydantic_ai.durable_exec.prefect._agent'


class TemporalAgent(WrapperAgent[Any, Any]):
    """Stands for Pydantic AI's, which cannot be imported without Temporal, and refuses the same."""

    __module__ = 'pydantic_ai.durable_exec.temporal._agent'


def test_prefect_and_temporal_agent_wrappers_are_refused() -> None:
    agent = Agent(TestModel(), name='agent')
    with pytest.raises(TypeError, match=r'PrefectAgent takes no cancellation: .* PrefectDurability'):
        to_a2a(PrefectAgent(agent))
    with pytest.raises(TypeError, match=r'TemporalAgent takes no timeout=: .* TemporalDurability'):
        to_a2a(TemporalAgent(agent), timeout=5.0)


async def test_custom_worker_may_run_prefect_agent() -> None:
    async with serving(
        PrefectAgent(Agent(TestModel(), name='agent')), workers=Workers(worker=ScriptedWorker())
    ) as client:
        assert state_of(await client.send('complete')) == 'COMPLETED'


async def test_temporal_agent_wrapper_without_timeout_is_served() -> None:
    async with serving(TemporalAgent(Agent(TestModel(custom_output_text='Hi.'), name='agent'))) as client:
        assert texts(await client.send(message('hello'))) == ['Hi.']


# --- workflows of tasks -----------------------------------------------------------------------------------------------


@pytest.fixture
def kit(tmp_path: Path) -> DbosSetup:
    return DbosSetup(tmp_path)


async def test_forked_dbos_workflow_without_task_stays_pending(kit: DbosSetup) -> None:
    async with serving(kit.agent(TestModel()), **kit.options()) as client:
        task = await client.send('hello')
        fork = await DBOS.fork_workflow_async(f'{task["id"]}.1', 1)
        async with asyncio.timeout(LIMIT):
            while (await fork.get_status()).status == 'ENQUEUED':  # noqa: ASYNC110 - DBOS tells nobody
                await asyncio.sleep(0.01)
        await client.send('again')  # a later workflow: when it has ended, the function of the fork has been called
        assert (await fork.get_status()).status == 'PENDING'


async def test_second_dbos_engine_in_process_is_refused(kit: DbosSetup, tmp_path: Path) -> None:
    shared = kit.options()
    other: dict[str, Any] = {
        'backend': f'sqlite:///{tmp_path}/other.db',
        'engine': engine.DBOS(f'sqlite:///{tmp_path}/another.db'),
    }
    agent = Agent(TestModel(custom_output_text='Hi.'), name='second', capabilities=[DBOSDurability()])
    async with serving_until_handover(kit.agent(TestModel(custom_output_text='Hello.')), **shared) as client:
        assert texts(await client.send('hello')) == ['Hello.']
        async with serving_until_handover(agent, **{**other, 'engine': shared['engine']}) as second:
            assert texts(await second.send('hello')) == ['Hi.']
        assert texts(await client.send('hello')) == ['Hello.']
        refused = to_a2a(agent, **other)
        with pytest.raises(BackendUnusable, match='give all apps the same engine'):
            async with refused.router.lifespan_context(refused):
                pytest.fail('it has started')
