"""Messages to a task that runs, where they enter its run, or are refused; and what becomes of them if it ends badly."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent, CallToolsNode, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from examples import steering
from pydantic_ai_a2a import Access, AgentWorker, Approvals, Messages, Rejected, Workers, a2a, to_a2a

from ...agents import GatedAgent, LookupAgent, user_prompts
from ...app_client import LIMIT, Client, RpcError, lifespan, message, state_of, texts
from ...serving import list_tasks, serving, wait_until_ended
from ...sizes import short_or_long
from ..callers import caller_from_header, client_of_caller
from ..durable_handover import serving_until_handover
from ..fasta2a_parts import plain_worker

TIMES = short_or_long(15, 50)
"""Messages of each of twenty clients."""


async def send_in_background(client: Client, text: str = 'one') -> str:
    """The id of a task that nobody waits for."""
    return (await client.send(text, returnImmediately=True))['id']


async def send_to_task(client: Client, task_id: str, *said: str) -> None:
    for text in said:
        await client.send(message(text, taskId=task_id), returnImmediately=True)


async def wait_until_waiting_or_ended(client: Client, task_id: str) -> dict[str, Any]:
    """The task once it waits or is over."""
    await client.a2a_app.backend.events.wait(task_id, 0)
    return await client.get_task(task_id)


def artifact_parts(event: dict[str, Any]) -> list[Any]:
    """The parts of the artifact that an event updates."""
    return event.get('artifactUpdate', {}).get('artifact', {}).get('parts', [])


def history_texts(task: dict[str, Any]) -> list[str]:
    return [part['text'] for each in task['history'] for part in each['parts']]


async def test_steering_messages_reach_next_model_request() -> None:
    desk = LookupAgent()
    async with serving(desk.agent, messages=Messages(while_working='steer')) as client:
        async with client.send_streaming('one') as stream:
            task_id = (await anext(stream)).result['task']['id']
            await desk.looking.wait()
            await send_to_task(client, task_id, 'two', 'three')
            desk.found.set()
            await stream.rest()
        task = await client.get_task(task_id)
        loaded = await client.messages_of(task['contextId'])
    assert (state_of(task), texts(task)) == ('COMPLETED', ['one + two + three'])
    assert desk.seen == [['one'], ['one', 'two', 'three']]
    assert history_texts(task) == ['one', 'two', 'three', 'one + two + three']
    assert user_prompts(loaded) == ['one', 'two', 'three']


@pytest.mark.parametrize('backend', ['memory', 'sqlite'])
async def test_message_of_another_caller_gets_own_run(backend: str, tmp_path: Path) -> None:
    callers: list[str] = []
    desk = LookupAgent()

    @desk.agent.instructions
    def note(ctx: RunContext[object]) -> str:
        callers.append(a2a(ctx).caller.id)
        return ''

    async with serving(
        desk.agent,
        auth=caller_from_header,
        access=Access(owner=lambda _: 'team'),
        messages=Messages(while_working='steer'),
        backend='memory' if backend == 'memory' else f'sqlite:///{tmp_path}/agent.db',
    ) as client:
        ann, bob = (client_of_caller(client.app, name) for name in ('ann', 'bob'))
        async with ann.send_streaming('one') as stream:
            task_id = (await anext(stream)).result['task']['id']
            await desk.looking.wait()
            await send_to_task(ann, task_id, 'two')
            await send_to_task(bob, task_id, 'three')
            await send_to_task(ann, task_id, 'four')
            desk.found.set()
            await stream.rest()
    assert [(name, said[-1]) for name, said in zip(callers, desk.seen, strict=True)] == [
        ('ann', 'one'),
        ('ann', 'two'),
        ('bob', 'three'),
        ('ann', 'four'),
    ]


async def test_message_during_final_model_request_becomes_next_prompt() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, messages=Messages(while_working='steer')) as client:
        task_id = await send_in_background(client)
        await gates.reached('one')
        await send_to_task(client, task_id, 'two')
        gates.open('one', 'two')
        task = await wait_until_ended(client, task_id)
    assert (gates.began, texts(task)) == (['one', 'two'], ['one', 'one + two'])
    assert history_texts(task) == ['one', 'two', 'one', 'one + two']


async def test_blocking_send_returns_task_with_steering_message() -> None:
    desk = LookupAgent()
    async with serving(desk.agent, messages=Messages(while_working='steer')) as client:
        sending = asyncio.create_task(client.send('one'))
        await desk.looking.wait()
        [task] = await list_tasks(client)
        await send_to_task(client, task['id'], 'two')
        desk.found.set()
        assert history_texts(await sending) == ['one', 'two', 'one + two']


async def test_message_skipped_by_capability_enters_next_request() -> None:
    came, goes, answered = asyncio.Event(), asyncio.Event(), list[Any]()

    class Waits(AbstractCapability[Any]):
        async def before_run(self, ctx: Any) -> None:
            came.set()
            await goes.wait()

    class AnswersFirst(AbstractCapability[Any]):
        """Answers the first request in place of the model."""

        async def wrap_node_run(self, ctx: Any, *, node: Any, handler: Any) -> Any:
            if not Agent.is_model_request_node(node) or answered:
                return await handler(node)
            answered.append(node)
            response = ModelResponse(parts=[ToolCallPart('look', {'n': 1})])
            ctx.messages.extend([node.request, response])
            return CallToolsNode[Any, Any](response)

    desk = LookupAgent()
    desk.found.set()
    options: dict[str, Any] = {'messages': Messages(while_working='steer'), 'capabilities': [Waits(), AnswersFirst()]}
    async with serving(desk.agent, **options) as client:
        task_id = await send_in_background(client)
        await came.wait()
        await send_to_task(client, task_id, 'two')
        goes.set()
        task = await wait_until_ended(client, task_id)
    assert (texts(task), desk.seen) == (['one + two'], [['one', 'two']])


@pytest.mark.parametrize('how', ['storage', 'broker', 'worker'])
async def test_steering_works_with_custom_storage_broker_or_agent_worker(how: str) -> None:
    class Polite(AgentWorker):
        def build_message_history(self, history: list[Any]) -> list[ModelMessage]:
            return [part for part in super().build_message_history(history) if part]

    desk, storage, broker = LookupAgent(), InMemoryStorage(), InMemoryBroker()
    own: dict[str, dict[str, Any]] = {
        'storage': {'storage': storage},
        'broker': {'broker': broker},
        'worker': {'workers': Workers(worker=Polite(agent=desk.agent, storage=storage, broker=broker))},
    }
    async with serving(desk.agent, messages=Messages(while_working='steer'), **own[how]) as client:
        task_id = await send_in_background(client)
        await desk.looking.wait()
        await send_to_task(client, task_id, 'two')
        desk.found.set()
        task = await wait_until_waiting_or_ended(client, task_id)
    assert (texts(task), desk.seen) == (['one + two'], [['one'], ['one', 'two']])


def test_steering_with_custom_worker_or_unknown_mode_is_refused() -> None:
    worker = plain_worker()
    with pytest.raises(TypeError, match="while_working='steer' cannot be combined"):
        to_a2a(LookupAgent().agent, workers=Workers(worker=worker), messages=Messages(while_working='steer'))
    with pytest.raises(ValueError, match="'queue', 'steer' or 'reject', not the string 'steered'"):
        to_a2a(LookupAgent().agent, messages=Messages(while_working='steered'))  # pyright: ignore[reportArgumentType]


async def test_reject_mode_refuses_messages_to_working_task() -> None:
    desk = LookupAgent()
    async with serving(desk.agent, messages=Messages(while_working='reject')) as client:
        first = message('one')
        task_id = (await client.send(first, returnImmediately=True))['id']
        await desk.looking.wait()
        before = await client.get_task(task_id)
        with pytest.raises(RpcError) as refused:
            await send_to_task(client, task_id, 'two')
        assert (refused.value.code, refused.value.reason) == (-32004, 'UNSUPPORTED_OPERATION')
        assert 'working' in refused.value.message
        assert await client.get_task(task_id) == before
        again = await client.send(first, returnImmediately=True)  # is no other message
        assert again['id'] == task_id
        desk.found.set()
        assert texts(await wait_until_ended(client, task_id)) == ['one']


async def test_steering_example_stops_counting_on_stop_message(monkeypatch: pytest.MonkeyPatch) -> None:
    said = asyncio.Event()

    async def sleep(_: float) -> None:
        await said.wait()

    monkeypatch.setattr(steering, 'asyncio', SimpleNamespace(sleep=sleep))
    async with lifespan(steering.app), asyncio.timeout(LIMIT):
        client = Client(steering.app)
        async with client.send_streaming('count') as stream:
            task_id = (await anext(stream)).result['task']['id']
            await send_to_task(client, task_id, 'stop')
            said.set()
            events = await stream.rest()
        task = await client.get_task(task_id)
    [answer] = texts(task)
    assert answer in [f'Counted to {n}. I was told: count, stop.' for n in range(2)]
    assert answer in ''.join(part['text'] for each in events for part in artifact_parts(each.result))


# --- approvals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('while_working', ['queue', 'steer'])
async def test_earlier_message_neither_answers_nor_supersedes_approval(
    while_working: Any,
) -> None:
    gates, desk = asyncio.Event(), LookupAgent()
    reached = asyncio.Event()

    async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        response = await desk.answer(messages, info)
        reached.set()
        await gates.wait()
        return response

    options: dict[str, Any] = {
        'messages': Messages(while_working=while_working),
        'approvals': Approvals(plain_text_answers='all'),
    }
    async with serving(desk.agent, model=FunctionModel(slow), **options) as client:
        task_id = await send_in_background(client, 'delete')
        await reached.wait()
        await send_to_task(client, task_id, 'yes')
        gates.set()
        task = await wait_until_waiting_or_ended(client, task_id)
        assert state_of(task) == 'INPUT_REQUIRED'
        assert desk.seen == [['delete']]
        [call] = task['status']['message']['parts'][1]['data']['pending']
        denied = {'callAnswers': [{'id': call['id'], 'decision': 'deny', 'reason': 'No!'}]}
        task = await client.send(message(parts=[{'data': denied}], taskId=task_id))
    assert state_of(task) == 'COMPLETED'
    assert desk.seen[1:] == ([['delete', 'yes']] if while_working == 'steer' else [['delete'], ['delete', 'yes']])


async def test_approval_made_without_model_request_is_not_superseded() -> None:
    came, goes = asyncio.Event(), asyncio.Event()

    class Knows(AbstractCapability[Any]):
        """Knows what the model would say first."""

        async def wrap_node_run(self, ctx: Any, *, node: Any, handler: Any) -> Any:
            if not Agent.is_model_request_node(node) or ctx.run_step > 0:
                return await handler(node)
            response = ModelResponse(parts=[ToolCallPart('delete', {})])
            ctx.messages.extend([node.request, response])
            return CallToolsNode[Any, Any](response)

    class Waits(AbstractCapability[Any]):
        async def before_run(self, ctx: Any) -> None:
            came.set()
            await goes.wait()

    desk = LookupAgent()
    async with serving(desk.agent, messages=Messages(while_working='steer'), capabilities=[Waits(), Knows()]) as client:
        task_id = await send_in_background(client)
        await came.wait()
        await send_to_task(client, task_id, 'two')
        goes.set()
        task = await wait_until_waiting_or_ended(client, task_id)
        assert (state_of(task), desk.seen) == ('INPUT_REQUIRED', [])


# --- runs that end badly --------------------------------------------------------------------------------------------


@pytest.mark.parametrize('while_working', ['queue', 'steer'])
@pytest.mark.parametrize('how', ['fails', 'rejects'])
async def test_unread_message_runs_after_failed_or_rejected_run(how: str, while_working: Any) -> None:
    came, goes = asyncio.Event(), asyncio.Event()

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if user_prompts(messages) != ['one']:
            return ModelResponse(parts=[TextPart(' + '.join(user_prompts(messages)))])
        came.set()
        await goes.wait()
        if how == 'fails':
            raise RuntimeError('broken')
        return ModelResponse(parts=[ToolCallPart('refuse', {})])

    agent: Agent[object, Any] = Agent(FunctionModel(model), name='agent')

    @agent.tool_plain
    async def refuse() -> str:
        raise Rejected('Not that.')

    async with serving(agent, messages=Messages(while_working=while_working)) as client:
        task_id = await send_in_background(client)
        await came.wait()
        await send_to_task(client, task_id, 'two')
        goes.set()
        task = await wait_until_ended(client, task_id)
    assert (state_of(task), texts(task)) == ('COMPLETED', ['two'])
    why = 'The agent failed with an internal error.' if how == 'fails' else 'Not that.'
    assert history_texts(task) == ['one', 'two', why, 'two']


async def test_steering_message_of_failed_model_request_runs_next() -> None:
    desk, failed = LookupAgent(), list[list[str]]()

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(said := user_prompts(messages)) == 2:
            failed.append(said)
            raise RuntimeError('broken')
        return await desk.answer(messages, info)

    async with serving(desk.agent, model=FunctionModel(model), messages=Messages(while_working='steer')) as client:
        task_id = await send_in_background(client)
        await desk.looking.wait()
        await send_to_task(client, task_id, 'two')
        desk.found.set()
        task = await wait_until_ended(client, task_id)
    assert failed == [['one', 'two']]
    assert (state_of(task), texts(task)) == ('COMPLETED', ['two'])


async def test_canceled_task_keeps_unread_messages_without_run() -> None:
    desk = LookupAgent()
    async with serving(desk.agent, messages=Messages(while_working='steer')) as client:
        task_id = await send_in_background(client)
        await desk.looking.wait()
        await send_to_task(client, task_id, 'two')
        task = await client.call('CancelTask', {'id': task_id})
    assert (state_of(task), history_texts(task), desk.seen) == ('CANCELED', ['one', 'two'], [['one']])


# --- many -----------------------------------------------------------------------------------------------------------


class RandomClients:
    """Says many things at random moments to an agent that works, answers and fails at random, and counts what it heard.

    Args:
        seed: Of what is random.
        works_on: How often it works on after an answer of the model.
    """

    def __init__(self, seed: int, works_on: float) -> None:
        self.random = Random(seed)
        self.said = 0
        self.heard: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        """Prompts of runs that failed before the model had answered: their tasks tell of it."""
        self.agent: Agent[object, Any] = Agent(FunctionModel(self.answer), name='agent')
        self.agent.tool_plain(self.work)
        self._works_on = works_on

    async def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        spoke = [n for n, each in enumerate(messages) if isinstance(each, ModelResponse)]
        new = [part for each in messages[spoke[-1] + 1 if spoke else 0 :] for part in each.parts]
        said = [str(part.content) for part in new if isinstance(part, UserPromptPart)]
        await self.work()
        if self.random.random() < 0.05:
            if not any(isinstance(part, ToolReturnPart) for part in new):
                self.failed[said[0]] += 1
            raise RuntimeError('broken')
        self.heard.update(said)
        works_on = self.random.random() < self._works_on
        return ModelResponse(parts=[ToolCallPart('work', {}) if works_on else TextPart('done')])

    async def work(self) -> str:
        for _ in range(self.random.randrange(30)):
            await asyncio.sleep(0)
        return 'worked'

    async def talk(self, client: Client, times: int) -> None:
        """Say something to one task, or to another one once it is over or has too much to read; wait for all."""
        tasks: list[str] = []
        for _ in range(times):
            self.said += 1
            text = f'message {self.said}'
            try:
                task_id = {'taskId': tasks[-1]} if tasks else {}
                sent = await client.send(message(text, **task_id), returnImmediately=True)
            except RpcError:  # and this one is not refused
                sent = await client.send(text, returnImmediately=True)
            tasks.append(sent['id'])
            await self.work()
        for task_id in dict.fromkeys(tasks):
            await wait_until_ended(client, task_id)


@pytest.mark.long
@pytest.mark.parametrize(('while_working', 'works_on'), [('queue', 0.1), ('steer', 0.6)])
async def test_messages_at_random_moments_are_each_run_exactly_once(while_working: Any, works_on: float) -> None:
    crowd = RandomClients(seed=7, works_on=works_on)
    async with serving(crowd.agent, messages=Messages(while_working=while_working)) as client:
        await asyncio.gather(*(crowd.talk(client, TIMES) for _ in range(20)))
    count = 20 * TIMES
    assert crowd.heard + crowd.failed == Counter(f'message {n + 1}' for n in range(count))
    assert crowd.heard.total() > 0.9 * count


# --- runs whose process ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize('point', ['tool 1', 'model 2', 'tool 2', 'model 3', 'tool 3', 'model 4'])
async def test_resumed_run_contains_each_steering_message_once(point: str, tmp_path: Path) -> None:
    desk = LookupAgent(steps=3)
    options: dict[str, Any] = {
        'backend': f'sqlite:///{tmp_path}/agent.db?synchronous=normal',
        'messages': Messages(while_working='steer'),
    }
    desk.hold(point)
    async with serving_until_handover(desk.agent, **options) as client:
        task_id = (await client.send('one', returnImmediately=True))['id']
        await desk.looking.wait()
        await client.send(message('two', taskId=task_id), returnImmediately=True)
        desk.found.set()
        await desk.reached.wait()
        await client.send(message('three', taskId=task_id), returnImmediately=True)
    async with serving_until_handover(desk.agent, **options) as client:
        task = await wait_until_ended(client, task_id)
        assert user_prompts(await client.messages_of(task['contextId'])) == ['one', 'two', 'three']
    assert desk.seen[-1] == ['one', 'two', 'three']
    assert texts(task) == ['one + two + three']
    said = [part['text'] for each in task['history'] for part in each['parts']]
    assert said == ['one', 'two', 'three', 'one + two + three']
