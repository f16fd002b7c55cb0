"""Tasks that wait for their client: what they block, what they remember, and how they go on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import AuthRequired, InputRequired, to_a2a

from ...agents import echo_prompts, user_prompts
from ...app_client import LIMIT, Client, Event, RpcError, lifespan, message, state_of, texts
from ...dialects import only_in
from ...serving import list_tasks, serving, wait_until_ended
from ..promised_behaviours import covers

ROW = 'new task while another waits for input in the context'
ASKS: dict[str, tuple[type[InputRequired | AuthRequired], str]] = {
    'book': (InputRequired, 'Where to?'),
    'pay': (AuthRequired, 'Sign in.'),
}
"""Prompts that are answered with a question."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    prompt = user_prompts(messages)[-1]
    if prompt not in ASKS:
        return echo_prompts(messages, info)
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'prompt': prompt})])


def ask(prompt: str) -> InputRequired | AuthRequired:
    state, question = ASKS[prompt]
    return state(question)


def asking(model: FunctionModel) -> Agent[object, Any]:
    return Agent(model, output_type=[str, ask])


AGENT = asking(FunctionModel(answer))


def agent_waiting_at(prompt: str) -> tuple[Agent[object, Any], asyncio.Event, asyncio.Event]:
    """An agent whose run of a prompt waits: it, that the run has begun, and that it may go on."""
    began, release = asyncio.Event(), asyncio.Event()

    async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if user_prompts(messages)[-1] == prompt:
            began.set()
            await release.wait()
        return answer(messages, info)

    return asking(FunctionModel(slow)), began, release


def event_kinds(events: list[Event]) -> list[str]:
    """States of status updates, and `artifact` for the others."""
    return [
        event.result['statusUpdate']['status']['state'].removeprefix('TASK_STATE_')
        if 'statusUpdate' in event.result
        else next(iter(event.result)).removesuffix('Update')
        for event in events
    ]


def history_texts(task: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each['role'].removeprefix('ROLE_'), each['parts'][0]['text']) for each in task.get('history', ())]


@covers(ROW, 'blocking (1.0 default) / `returnImmediately` / 0.3 `blocking`')
@pytest.mark.parametrize(('prompt', 'state'), [('book', 'INPUT_REQUIRED'), ('pay', 'AUTH_REQUIRED')])
async def test_blocking_send_returns_when_task_waits_for_client(prompt: str, state: str) -> None:
    async with serving(AGENT) as client:
        task = await client.send(prompt)
        assert await client.get_task(task['id']) == task
        [listed] = await list_tasks(client, state=state.lower().replace('_', '-'))
    assert state_of(task) == state
    assert [part['text'] for part in task['status']['message']['parts']] == [ASKS[prompt][1]]
    assert history_texts(task) == [('USER', prompt)]
    assert 'artifacts' not in task
    assert listed['id'] == task['id']


@covers(ROW)
async def test_new_task_skips_waiting_turn_of_context() -> None:
    async with serving(AGENT) as client:
        first = await client.send('one')
        context = first['contextId']
        waiting = await client.send(message('book', contextId=context))
        between = await client.send(message('two', contextId=context))
        resumed = await client.send(message('Rome', taskId=waiting['id']))
        after = await client.send(message('three', contextId=context))
    assert texts(between) == ['one + two']
    assert texts(resumed) == ['one + book + Rome']
    assert texts(after) == ['one + two + book + Rome + three']
    assert (resumed['id'], state_of(resumed)) == (waiting['id'], 'COMPLETED')


@covers(ROW)
async def test_answered_question_moves_into_history() -> None:
    async with serving(AGENT) as client:
        waiting = await client.send('book')
        resumed = await client.send(message('Rome', taskId=waiting['id'], contextId=waiting['contextId']))
    assert history_texts(resumed) == snapshot(
        [('USER', 'book'), ('AGENT', 'Where to?'), ('USER', 'Rome'), ('AGENT', 'book + Rome')]
    )
    assert 'message' not in resumed['status']
    assert len({each['messageId'] for each in resumed['history']}) == 4
    whose = [(each['taskId'], each['contextId']) for each in resumed['history']]
    assert whose == [(waiting['id'], waiting['contextId'])] * 4


@covers(ROW)
async def test_task_asking_twice_keeps_whole_conversation() -> None:
    async with serving(AGENT) as client:
        waiting = await client.send('book')
        again = await client.send(message('pay', taskId=waiting['id']))
        assert state_of(again) == 'AUTH_REQUIRED'
        other = await client.send(message('other', contextId=waiting['contextId']))
        done = await client.send(message('paid', taskId=waiting['id']))
        kept = await client.messages_of(waiting['contextId'])
    assert texts(other) == ['other']
    assert texts(done) == ['book + pay + paid']
    assert user_prompts(kept) == ['other', 'book', 'pay', 'paid']


@only_in('1.0', '0.3 closes both')
@covers(ROW)
async def test_message_stream_ends_at_question_but_subscription_stays_open() -> None:
    async with serving(AGENT) as client:
        async with client.send_streaming('book') as stream:
            sent = await stream.rest()
        task_id = sent[0].result['task']['id']
        async with client.subscribe(task_id) as subscribed:
            assert state_of((await anext(subscribed)).result['task']) == 'INPUT_REQUIRED'
            async with client.send_streaming(message('Rome', taskId=task_id)) as stream:
                answered = await stream.rest()
            events = await subscribed.rest()
    assert event_kinds(sent) == snapshot(['task', 'WORKING', 'INPUT_REQUIRED'])
    assert event_kinds(answered) == snapshot(['task', 'artifact', 'COMPLETED'])
    assert event_kinds(events) == snapshot(['WORKING', 'artifact', 'COMPLETED'])
    assert [event.id for event in events] == [*range(3, 6)]
    assert state_of(answered[0].result['task']) == 'WORKING'


@only_in('1.0', '0.3 closes it')
@covers(ROW)
async def test_message_stream_stays_open_at_auth_required() -> None:
    async with serving(AGENT) as client, client.send_streaming('pay') as stream:
        task_id = (await anext(stream)).result['task']['id']
        await stream.until('TASK_STATE_AUTH_REQUIRED')
        await client.send(message('signed in', taskId=task_id))
        assert event_kinds(await stream.rest()) == ['WORKING', 'artifact', 'COMPLETED']


@only_in('0.3', '1.0 keeps some of them open')
@covers(ROW)
@pytest.mark.parametrize(('prompt', 'state'), [('book', 'INPUT_REQUIRED'), ('pay', 'AUTH_REQUIRED')])
async def test_0_3_streams_end_at_waiting_task(prompt: str, state: str) -> None:
    agent, began, release = agent_waiting_at(prompt)
    async with serving(agent) as client:
        async with client.send_streaming(prompt) as stream:
            sent = [await anext(stream)]
            await began.wait()
            async with client.subscribe(sent[0].result['task']['id']) as subscribed:
                followed = [await anext(subscribed)]
                release.set()
                sent += await stream.rest()
                followed += await subscribed.rest()
        async with client.subscribe(sent[0].result['task']['id']) as late:
            [snapshot_] = await late.rest()
    assert event_kinds(sent) == ['task', 'WORKING', state]
    assert event_kinds(followed) == ['task', state]
    assert state_of(snapshot_.result['task']) == state


@covers(ROW)
async def test_canceled_waiting_task_keeps_its_turn_in_context() -> None:
    async with serving(AGENT) as client:
        waiting = await client.send('book')
        async with client.subscribe(waiting['id']) as stream:
            canceled = await client.call('CancelTask', {'id': waiting['id']})
            last = event_kinds(await stream.rest())[-1]
        assert last == ('task' if 'TASK_STATE_INPUT_REQUIRED' in client.dialect.ends_subscription else 'CANCELED')
        with pytest.raises(RpcError) as refused:
            await client.send(message('Rome', taskId=waiting['id']))
        after = await client.send(message('after', contextId=waiting['contextId']))
    assert (state_of(canceled), refused.value.code) == ('CANCELED', -32004)
    assert history_texts(canceled) == [('USER', 'book'), ('AGENT', 'Where to?')]
    assert texts(after) == ['book + after']


@covers(ROW)
async def test_answered_task_is_working_while_queued_in_its_context() -> None:
    agent, began, release = agent_waiting_at('slow')
    async with serving(agent) as client:
        waiting = await client.send('book')
        other = await client.send(message('slow', contextId=waiting['contextId']), returnImmediately=True)
        await began.wait()
        async with client.send_streaming(message('Rome', taskId=waiting['id'])) as stream:
            resumed = (await anext(stream)).result['task']
            assert (state_of(resumed), await client.get_task(resumed['id'])) == ('WORKING', resumed)
            assert {task['id'] for task in await list_tasks(client, state='working')} == {resumed['id'], other['id']}
            assert await list_tasks(client, state='submitted') == []
            release.set()
            assert event_kinds(await stream.rest()) == ['artifact', 'COMPLETED']
        assert texts(await client.get_task(resumed['id'])) == ['book + Rome']
        assert texts(await client.get_task(other['id'])) == ['slow']


@covers(ROW)
async def test_answered_task_queued_in_its_context_can_be_canceled() -> None:
    agent, began, release = agent_waiting_at('slow')
    async with serving(agent) as client:
        waiting = await client.send('book')
        other = await client.send(message('slow', contextId=waiting['contextId']), returnImmediately=True)
        await began.wait()
        await client.send(message('Rome', taskId=waiting['id']), returnImmediately=True)
        canceled = await client.call('CancelTask', {'id': waiting['id']})
        assert (state_of(canceled), state_of(await client.get_task(other['id']))) == ('CANCELED', 'WORKING')
        release.set()
        assert texts(await wait_until_ended(client, other['id'])) == ['slow']


@covers(ROW)
async def test_message_sent_before_question_runs_after_answer() -> None:
    agent, began, release = agent_waiting_at('book')
    async with serving(agent) as client:
        task = await client.send('book', returnImmediately=True)
        await began.wait()
        async with client.send_streaming(message('quickly', taskId=task['id'])) as early:
            await anext(early)
            release.set()
            assert event_kinds(await early.rest()) == ['INPUT_REQUIRED']
        done = await client.send(message('Rome', taskId=task['id']))
    assert texts(done) == ['book + Rome', 'book + Rome + quickly']


@covers('SIGTERM')
async def test_shutdown_closes_streams_of_waiting_task_and_keeps_task() -> None:
    app = to_a2a(AGENT)
    async with AsyncExitStack() as stack, asyncio.timeout(LIMIT):
        await stack.enter_async_context(lifespan(app))
        task = await Client(app).send('book')
        async with Client(app).subscribe(task['id']) as stream:
            await anext(stream)
            await stack.aclose()
            assert await stream.rest() == []
        done = await Client(app).send(message('Rome', taskId=task['id']))
    assert texts(done) == ['book + Rome']
