"""Runs that wait for another agent: other runs have their slots meanwhile, and the chain of agents has an end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from pydantic_ai_a2a import A2AClient, Workers, to_a2a
from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...agents import GatedAgent, scripted_model, user_prompts
from ...app_client import LIMIT, Client, RpcError, lifespan, state_of, texts
from ...serving import serving, wait_until_ended
from ...suites import values
from .test_claiming import BlockedSubmit, HeldEnds

DEPTH_HEADER = {'X-A2A-Depth': '1'}


class CallingAgent(GatedAgent):
    """Its model asks a peer if the prompt says so, and then waits at the gate of the peer's answer."""

    def __init__(self) -> None:
        super().__init__()
        self.peer = GatedAgent()
        self.left_behind: list[asyncio.Task[object]] = []
        self.client = A2AClient(to_a2a(self.peer.agent))
        self.agent.tool_plain(self.ask)
        self.agent.tool_plain(self.leave)

    async def ask(self, text: str) -> str:
        await self.client.send(text)
        return text

    async def answered(self, *texts: str) -> None:
        """Let the peer answer, and the run get the answers: nothing of it leaves the event loop."""
        self.peer.open(*texts)
        for _ in range(1_000):
            await asyncio.sleep(0)

    async def leave(self, text: str) -> str:
        """Ask the peer, and do not wait."""
        self.left_behind.append(asyncio.create_task(self.ask(text)))
        await self.peer.reached(text)
        return text

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[TextPart(str(last.content))])
        tool, _, text = user_prompts(messages)[-1].partition(' ')
        if tool in ('ask', 'leave'):
            return ModelResponse(parts=[ToolCallPart(tool, {'text': each}) for each in text.split()])
        return await super().answer(messages, info)


class CallingThenWaitingAgent(CallingAgent):
    """Its model also waits at the gate of the prompt, once it has the answer of the peer."""

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return await GatedAgent.answer(self, messages, info)
        return await super().answer(messages, info)


async def send(client: Client, text: str) -> str:
    return (await client.send(text, returnImmediately=True))['id']


async def test_run_awaiting_agent_lends_slot_and_resumes_first() -> None:
    gates = CallingAgent()
    async with gates.client, serving(gates.agent, workers=Workers(running=1)) as client:
        asks = await send(client, 'ask one two')
        await gates.peer.reached('one', 'two')
        plain, third = await send(client, 'plain'), await send(client, 'third')
        await gates.reached('plain')
        await gates.answered('one', 'two')
        gates.open('plain')
        assert texts(await wait_until_ended(client, plain)) == ['plain']
        assert texts(await wait_until_ended(client, asks)) == ['two']  # before the third task
        gates.open('third')
        assert texts(await wait_until_ended(client, third)) == ['third']
    assert gates.began == ['plain', 'third']


async def test_run_canceled_while_waiting_for_slot_takes_no_slot() -> None:
    gates = CallingAgent()
    async with gates.client, serving(gates.agent, workers=Workers(running=1)) as client:
        asks = await send(client, 'ask one')
        await gates.peer.reached('one')
        plain = await send(client, 'plain')
        await gates.reached('plain')
        await gates.answered('one')
        await client.call('CancelTask', {'id': asks})
        others = [await send(client, text) for text in ('second', 'third')]
        gates.open('plain', 'second')
        assert texts(await wait_until_ended(client, plain)) == ['plain']
        assert texts(await wait_until_ended(client, others[0])) == ['second']
        await gates.reached('third')
        assert await client.get_task(asks)
        assert state_of(await client.get_task(asks)) == 'CANCELED'
        gates.open('third')
        assert texts(await wait_until_ended(client, others[1])) == ['third']


async def test_remote_call_outliving_its_run_frees_no_slot() -> None:
    gates = CallingAgent()
    async with gates.client, serving(gates.agent, workers=Workers(running=1)) as client:
        assert texts(await client.send('leave one')) == ['one']
        first, second = await send(client, 'first'), await send(client, 'second')
        await gates.reached('first')
        gates.peer.open('one')
        await asyncio.wait(gates.left_behind)
        assert gates.began == ['first']
        gates.open('first', 'second')
        assert [texts(await wait_until_ended(client, each)) for each in (first, second)] == [['first'], ['second']]


async def test_resumed_run_gets_slot_before_next_queued_task(backend: MemoryBackend) -> None:
    gates, queue = CallingAgent(), HeldEnds(backend.queue)
    backend.queue = queue
    async with gates.client, serving(gates.agent, backend=backend, workers=Workers(running=1)) as client:
        asks = await send(client, 'ask one')
        await gates.peer.reached('one')
        plain, third = await send(client, 'plain'), await send(client, 'third')
        await gates.reached('plain')
        gates.open('plain')
        await queue.took.wait()
        await gates.answered('one')
        queue.returns.set()
        assert texts(await wait_until_ended(client, asks)) == ['one']
        assert queue.released == [third]
        gates.open('third')
        assert [texts(await wait_until_ended(client, each)) for each in (plain, third)] == [['plain'], ['third']]


async def test_run_ending_with_lent_slot_starts_no_task() -> None:
    gates = CallingThenWaitingAgent()
    async with gates.client, serving(gates.agent, workers=Workers(running=1)) as client:
        leaves = await send(client, 'leave one')
        await gates.reached('leave one')
        first, second = await send(client, 'first'), await send(client, 'second')
        await gates.reached('first')
        gates.open('leave one')
        await wait_until_ended(client, leaves)
        assert state_of(await client.get_task(second)) == 'SUBMITTED'
        gates.open('first', 'second')
        assert [texts(await wait_until_ended(client, each)) for each in (first, second)] == [['first'], ['second']]
        gates.peer.open('one')
        await asyncio.wait(gates.left_behind)


async def test_depth_header_gives_no_priority_in_queue() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, workers=Workers(running=1)) as client:
        texts_sent = ('running', 'plain', 'deep')
        for text in texts_sent:
            await send(client if text != 'deep' else Client(client.app, headers=DEPTH_HEADER), text)
        await gates.reached('running')
        gates.open(*texts_sent)
        await gates.reached('deep')
    assert gates.began == [*texts_sent]


async def test_only_agent_tasks_start_at_waiting_run_limit() -> None:
    gates = CallingAgent()
    async with gates.client, serving(gates.agent, workers=Workers(running=1)) as client:
        asking = [await send(client, f'ask {n}') for n in range(4)]
        await gates.peer.reached(*'0123')
        plain = await send(client, 'plain')
        deep = Client(client.app, headers=DEPTH_HEADER)
        urgent = [await send(deep, text) for text in ('first', 'second', 'third')]
        await gates.reached('first')
        await client.call('CancelTask', {'id': urgent[1]})
        gates.open('first', 'third')
        assert texts(await wait_until_ended(client, urgent[2])) == ['third']
        assert gates.began == ['first', 'third']
        gates.peer.open(*'0123')
        gates.open('plain')
        for task_id in (*asking, plain):
            assert state_of(await wait_until_ended(client, task_id)) == 'COMPLETED'


async def test_plain_task_starts_when_fewer_runs_wait_for_agents() -> None:
    gates, asked = CallingThenWaitingAgent(), [str(n) for n in range(8)]
    async with gates.client, serving(gates.agent, workers=Workers(running=2, lease=3600)) as client:
        asking = [await send(client, f'ask {text}') for text in asked]
        await gates.peer.reached(*asked)
        plain = await send(client, 'plain')
        gates.peer.open('0')
        await gates.reached('ask 0', 'plain')  # both slots are in use
        gates.peer.open(*asked)
        gates.open('plain', *(f'ask {text}' for text in asked))
        for task_id in (*asking, plain):
            assert state_of(await wait_until_ended(client, task_id)) == 'COMPLETED'


async def test_run_takes_slot_of_message_stored_during_drain(file_backend: SqliteFileBackend) -> None:
    gates, queue = CallingAgent(), BlockedSubmit(file_backend.queue)
    queue.stored.set()
    file_backend.queue = queue
    app = to_a2a(gates.agent, backend=file_backend, workers=Workers(running=1, lease=3600, drain_grace=LIMIT))
    client = Client(app)
    async with asyncio.timeout(LIMIT), gates.client:
        async with lifespan(app):
            asks = asyncio.create_task(client.send('ask one'))
            await gates.peer.reached('one')
            queue.stored.clear()
            late = asyncio.create_task(client.send('late', returnImmediately=True))
            await queue.stored.wait()  # the message has the only slot, and its task is claimed
            await gates.answered('one')
            app.hosting.drain(asyncio.get_running_loop())
            queue.answers.set()
            assert texts(await asks) == ['one']
            await late
        [claimed] = await values.claim_up_to(file_backend, 1, 'another', limit=1, at=SYSTEM.now())
    assert (claimed.header.id, gates.began) == ((await late)['id'], [])


@pytest.mark.parametrize('depth', ['1', 'x', '²', '-1', '9' * 5000])
async def test_invalid_depth_header_is_ignored(depth: str) -> None:
    async with serving(Agent('test')) as client:
        assert state_of(await Client(client.app, headers={'X-A2A-Depth': depth}).send()) == 'COMPLETED'


async def test_message_through_more_than_ten_agents_is_refused() -> None:
    async with serving(Agent('test')) as client:
        assert state_of(await Client(client.app, headers={'X-A2A-Depth': '10'}).send()) == 'COMPLETED'
        with pytest.raises(RpcError, match='more than 10 agents'):
            await Client(client.app, headers={'X-A2A-Depth': '11'}).send()


async def test_message_depth_is_stored_with_task(tmp_path: Path) -> None:
    refused: list[str] = []
    agent, peer, backend = (
        Agent(scripted_model(ToolCallPart('ask', {}), 'no'), name='agent'),
        to_a2a(Agent('test')),
        f'sqlite:///{tmp_path}/agent.db',
    )

    @agent.tool_plain
    async def ask() -> None:
        async with A2AClient(peer) as client:
            try:
                await client.send('hello')
            except Exception as error:
                refused.append(str(error))

    app = to_a2a(agent, backend=backend)
    app.hosting.runs_tasks = False
    task_id = await send(Client(app, headers={'X-A2A-Depth': '10'}), 'hello')
    await app.hosting.stop()
    async with serving(agent, backend=backend) as client:
        assert texts(await wait_until_ended(client, task_id)) == ['no']
    assert ['more than 10 agents' in text for text in refused] == [True]
