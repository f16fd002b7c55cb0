"""What a conversation holds, in which order, and whose it is."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Caller, Workers

from ...agents import GatedAgent, echo_prompts, user_prompts
from ...app_client import RpcError, message, state_of, texts
from ...serving import list_tasks, serving, wait_until_ended
from ..callers import caller_from_header, client_of_caller
from ..promised_behaviours import covers


async def test_message_in_context_sees_whole_conversation() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        first = await client.send('one')
        second = await client.send(message('two', contextId=first['contextId']))
        third = await client.send(message('three', contextId=first['contextId']))
        other = await client.send('four')
    assert texts(second) == ['one + two']
    assert texts(third) == ['one + two + three']
    assert texts(other) == ['four']
    assert len({task['id'] for task in (first, second, third)}) == 3
    assert {first['contextId'], second['contextId'], third['contextId']} == {first['contextId']}


async def test_changes_by_history_processor_are_not_stored() -> None:
    def shout(messages: list[ModelMessage]) -> list[ModelMessage]:
        for part in (part for each in messages[:-1] for part in each.parts):
            if isinstance(part, UserPromptPart):
                part.content = f'{part.content}!'
        return messages

    async with serving(Agent(FunctionModel(echo_prompts), capabilities=[ProcessHistory(shout)])) as client:
        first = await client.send('one')
        for text, said in (('two', 'one! + two'), ('three', 'one! + two! + three')):
            assert texts(await client.send(message(text, contextId=first['contextId']))) == [said]


@covers('`contextId: ""`')
async def test_empty_context_id_starts_new_context() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        one, two = [await client.send(message(text, contextId='', taskId='')) for text in ('one', 'two')]
    assert (texts(one), texts(two)) == (['one'], ['two'])
    assert one['contextId'] != two['contextId']
    assert one['contextId'] != ''
    assert one['id'] != two['id']


@covers('same contextId from two callers')
async def test_same_context_id_of_two_callers_is_two_conversations() -> None:
    async with serving(Agent(FunctionModel(echo_prompts)), auth=caller_from_header) as client:
        known = [Caller(id='ada'), Caller(id='bob'), Caller(id='ada', tenant='acme')]
        callers = [client_of_caller(client.app, each.id, tenant=each.tenant) for each in known]
        for n, each in enumerate(callers):
            assert texts(await each.send(message(f'hi {n}', contextId='shared'))) == [f'hi {n}']
        assert texts(await callers[0].send(message('again', contextId='shared'))) == ['hi 0 + again']
        listed = [await list_tasks(client, caller=each, context_id='shared') for each in known]
        assert [len(each) for each in listed] == [2, 1, 1]


@covers('same contextId from two callers')
async def test_same_context_id_of_two_callers_runs_concurrently() -> None:
    barrier = asyncio.Barrier(2)

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await barrier.wait()
        return echo_prompts(messages, info)

    async with serving(Agent(FunctionModel(answer)), auth=caller_from_header) as client:
        sends = [client_of_caller(client.app, name).send(message(contextId='shared')) for name in ('ada', 'bob')]
        assert [state_of(task) for task in await asyncio.gather(*sends)] == ['COMPLETED'] * 2


@covers('two tasks at once in one context')
@pytest.mark.parametrize('running', [1, 3, 256])
async def test_concurrent_tasks_of_context_run_in_sequence(running: int) -> None:
    names = [f'{n}' for n in range(50)]
    working: set[str] = set()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = user_prompts(messages)[-1]
        working.add(prompt)
        for _ in range(3):
            await asyncio.sleep(0)
        assert working == {prompt}
        working.remove(prompt)
        return echo_prompts(messages, info)

    async with serving(Agent(FunctionModel(answer)), workers=Workers(running=running)) as client:
        tasks = await asyncio.gather(*(client.send(message(name, contextId='c')) for name in names))
    assert [state_of(task) for task in tasks] == ['COMPLETED'] * 50
    turns = [texts(task)[0].split(' + ') for task in tasks]
    assert [turn[-1] for turn in turns] == names
    longest = max(turns, key=len)
    assert sorted(turns, key=len) == [longest[: n + 1] for n in range(50)]


async def test_tasks_of_context_run_in_message_order() -> None:
    names = [f'{n}' for n in range(10)]
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        tasks = [await client.send(message(name, contextId='c'), returnImmediately=True) for name in names]
        gates.open(*names)
        answers = [texts(await wait_until_ended(client, task['id'])) for task in tasks]
    assert answers == [[' + '.join(names[: n + 1])] for n in range(10)]


@covers('two tasks at once in one context')
async def test_busy_context_does_not_block_other_contexts() -> None:
    gates = GatedAgent()
    gates.open('elsewhere')
    async with serving(gates.agent) as client:
        first = await client.send('first', returnImmediately=True)
        context = first['contextId']
        second = await client.send(message('second', contextId=context), returnImmediately=True)
        elsewhere = [await client.send('elsewhere') for _ in range(5)]
        assert [state_of(task) for task in elsewhere] == ['COMPLETED'] * 5
        assert state_of(await client.get_task(second['id'])) == 'SUBMITTED'
        gates.open('first', 'second')
        third = await wait_until_ended(client, second['id'])
    assert texts(third) == ['first + second']


@covers('message to a finished / unknown / other-context task')
async def test_message_to_working_task_becomes_next_prompt() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        first = asyncio.ensure_future(client.send('one'))
        await gates.reached('one')
        [working] = await list_tasks(client)
        async with client.send_streaming(message('two', taskId=working['id'])) as second:
            accepted = await anext(second)
            assert state_of(accepted.result['task']) == 'WORKING'
            gates.open('one')
            await gates.reached('two')
            assert not first.done()
            assert state_of(await client.get_task(working['id'])) == 'WORKING'
            gates.open('two')
            await second.until('TASK_STATE_COMPLETED')
        tasks = [await first, await client.get_task(working['id'])]
        after = await client.send(message('three', contextId=working['context_id']), returnImmediately=True)
        gates.open('three')
        assert texts(await wait_until_ended(client, after['id'])) == ['one + two + three']
    assert [(task['id'], texts(task)) for task in tasks] == [(working['id'], ['one', 'one + two'])] * 2
    said = [(each['role'], part['text']) for each in tasks[0]['history'] for part in each['parts']]
    assert said == [
        ('ROLE_USER', 'one'),
        ('ROLE_USER', 'two'),
        ('ROLE_AGENT', 'one'),
        ('ROLE_AGENT', 'one + two'),
    ]


@covers('message to a finished / unknown / other-context task')
async def test_all_messages_to_working_task_run_in_order() -> None:
    gates = GatedAgent()
    names = [f'{n}' for n in range(20)]
    async with serving(gates.agent) as client:
        task = await client.send(names[0], returnImmediately=True)
        await gates.reached(names[0])
        for name in names[1:]:
            await client.send(message(name, taskId=task['id']), returnImmediately=True)
        gates.open(*names)
        done = await wait_until_ended(client, task['id'])
    assert gates.began == names
    assert texts(done) == [' + '.join(names[: n + 1]) for n in range(len(names))]


@covers('message to a finished / unknown / other-context task')
async def test_message_to_queued_task_runs_after_its_first_message() -> None:
    gates = GatedAgent()
    gates.open('one', 'two')
    async with serving(gates.agent, workers=Workers(running=1)) as client:
        running = await client.send('running', returnImmediately=True)
        await gates.reached('running')
        queued = await client.send('one', returnImmediately=True)
        assert state_of(queued) == 'SUBMITTED'
        more = await client.send(message('two', taskId=queued['id']), returnImmediately=True)
        assert (more['id'], state_of(more)) == (queued['id'], 'SUBMITTED')
        gates.open('running')
        await wait_until_ended(client, running['id'])
        assert texts(await wait_until_ended(client, queued['id'])) == ['one', 'one + two']


# --- messages that name a task which cannot take them -----------------------------------------------------------------


ROW = 'message to a finished / unknown / other-context task'


@covers(ROW)
async def test_message_to_finished_task_is_refused() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        done = await client.send('one')
        with pytest.raises(RpcError) as refused:
            await client.send(message('two', taskId=done['id']))
        with pytest.raises(RpcError) as refused_stream:
            async with client.send_streaming(message('two', taskId=done['id'], contextId=done['contextId'])):
                pass
        assert await client.get_task(done['id']) == done
        assert len(await list_tasks(client)) == 1
        following = await client.send(message('three', contextId=done['contextId']))
    assert texts(following) == ['one + three']
    assert [(each.value.code, each.value.reason) for each in (refused, refused_stream)] == [
        (-32004, 'UNSUPPORTED_OPERATION')
    ] * 2
    assert 'completed' in refused.value.message


@covers(ROW)
async def test_message_to_unknown_or_foreign_task_is_refused() -> None:
    async with serving(Agent(FunctionModel(echo_prompts)), auth=caller_from_header) as client:
        ada, bob = (client_of_caller(client.app, name) for name in ('ada', 'bob'))
        task = await bob.send()
        for task_id in ('nowhere', task['id']):
            with pytest.raises(RpcError) as refused:
                await ada.send(message(taskId=task_id))
            assert (refused.value.code, refused.value.reason) == (-32001, 'TASK_NOT_FOUND')
        assert await list_tasks(client, caller=Caller(id='ada')) == []


@covers(ROW)
async def test_message_to_task_of_another_context_is_refused() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        with pytest.raises(RpcError) as refused:
            await client.send(message('more', taskId=task['id'], contextId='elsewhere'))
        assert (refused.value.code, refused.value.fields) == (-32602, ['message.contextId'])
        assert len((await client.get_task(task['id']))['history']) == 1
        more = message('more', taskId=task['id'], contextId=task['contextId'])
        assert (await client.send(more, returnImmediately=True))['id'] == task['id']
        gates.open('hi', 'more')
        done = await wait_until_ended(client, task['id'])
    assert (state_of(done), texts(done)) == ('COMPLETED', ['hi', 'hi + more'])
