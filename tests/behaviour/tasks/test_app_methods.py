"""Tasks and conversations from Python: of whoever owns them, also from another thread than the server's."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Caller, serve, to_a2a
from pydantic_ai_a2a.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from ...agents import GatedAgent, echo_prompts, user_prompts
from ...app_client import LIMIT, Client, RpcError, message, rpc, state_of, texts
from ...dialects import current_dialect, json_rpc
from ...serving import serving
from ..callers import caller_from_header, client_of_caller


async def test_get_task_returns_stored_task() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        sent = await client.send('hi')
        task = await client.a2a_app.get_task(sent['id'])
        with pytest.raises(TaskNotFoundError):
            await client.a2a_app.get_task('nowhere')
    assert (task['id'], task['context_id'], task['status']['state']) == (sent['id'], sent['contextId'], 'completed')
    assert [(each.get('name'), each['parts']) for each in task.get('artifacts', ())] == snapshot(
        [('result', [{'text': 'hi', 'media_type': 'text/plain'}])]
    )
    assert [each['parts'] for each in task.get('history', ())] == snapshot(
        [[{'text': 'hi'}], [{'text': 'hi', 'media_type': 'text/plain'}]]
    )


async def test_list_tasks_filters_by_caller_context_and_state() -> None:
    async with serving(Agent(FunctionModel(echo_prompts)), auth=caller_from_header) as client:
        app = client.a2a_app
        ada, bob = (client_of_caller(app, name) for name in ('ada', 'bob'))
        one = await ada.send(message('one', contextId='c'))
        two = await bob.send(message('two', contextId='c'))
        three = await bob.send('three')
        found = [
            await app.list_tasks(),
            await app.list_tasks(limit=2),
            await app.list_tasks(caller=Caller(id='bob')),
            await app.list_tasks(context_id='c'),
            await app.list_tasks(caller=Caller(id='ada'), context_id=three['contextId']),
            await app.list_tasks(state='completed', context_id=three['contextId']),
            await app.list_tasks(state='failed'),
        ]
    names = {task['id']: name for task, name in ((one, 'one'), (two, 'two'), (three, 'three'))}
    assert [sorted(names[task['id']] for task in tasks) for tasks in found[2:]] == [
        ['three', 'two'],
        ['one', 'two'],
        [],
        ['three'],
        [],
    ]
    assert (len(found[0]), len(found[1])) == (3, 2)
    assert all(task.get('artifacts') and task.get('history') for task in found[0])


async def test_cancel_task_cancels_only_running_task() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        sent = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        task = await client.a2a_app.cancel_task(sent['id'])
        with pytest.raises(TaskNotCancelableError):
            await client.a2a_app.cancel_task(sent['id'])
        with pytest.raises(TaskNotFoundError):
            await client.a2a_app.cancel_task('nowhere')
    assert task['status']['state'] == 'canceled'


async def test_erase_task_erases_only_ended_task() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        sent = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        with pytest.raises(UnsupportedOperationError):
            await client.a2a_app.erase_task(sent['id'])
        await client.a2a_app.cancel_task(sent['id'])
        assert await client.a2a_app.erase_task(sent['id'])
        assert not await client.a2a_app.erase_task(sent['id'])
        with pytest.raises(RpcError) as refused:
            await client.get_task(sent['id'])
    assert refused.value.code == -32001


async def test_erase_context_erases_tasks_and_conversation() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        app = client.a2a_app
        tasks = [await client.send(message(text, contextId='c')) for text in ('one', 'two')]
        other = await client.send('other')
        assert await app.erase_context('c')
        assert not await app.erase_context('c')
        assert not await app.erase_context('c', caller=Caller(id='ada'))
        assert [task['id'] for task in await app.list_tasks()] == [other['id']]
        assert await app.conversations().load('c') is None
        anew = await client.send(message('three', contextId='c'))
    assert texts(tasks[1]) == ['one + two']
    assert texts(anew) == ['three']


async def test_conversation_can_be_loaded_forked_continued_and_deleted() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        store = client.a2a_app.conversations()
        for text in ('one', 'two'):
            await client.send(message(text, contextId='c'))
        loaded = await store.load('c')
        assert loaded is not None
        assert user_prompts(loaded.messages) == ['one', 'two']
        assert loaded.usage.requests == 2
        await store.fork('c', at=2, new_conversation_id='fork')
        forked = await client.send(message('three', contextId='fork'))
        await store.delete('c')
        anew = await client.send(message('four', contextId='c'))
        again = await client.send(message('five', contextId='fork'))
    assert texts(forked) == ['one + three']
    assert texts(anew) == ['four']
    assert texts(again) == ['one + three + five']


async def test_conversation_saved_in_python_is_continued_over_a2a() -> None:
    agent = Agent(FunctionModel(echo_prompts))
    async with serving(agent) as client:
        result = await agent.run('before')
        await client.a2a_app.conversations().save(result)
        task = await client.send(message('after', contextId=result.conversation.conversation_id))
    assert texts(task) == ['before + after']


def post(http: httpx.Client, url: str, method: str, **params: Any) -> Any:
    """What an operation answers over a socket."""
    headers = {'Content-Type': 'application/json', 'A2A-Version': current_dialect().version}
    return current_dialect().result(method, http.post(url, content=rpc(method, params), headers=headers).json())


@json_rpc('requests are written by hand')
def test_serve_answers_http_from_background_thread() -> None:
    with serve(to_a2a(Agent(FunctionModel(echo_prompts)))) as server, httpx.Client(timeout=LIMIT) as http:
        answer = post(http, server.url, 'SendMessage', message=message('hi'))
        card = http.get(f'{server.url}.well-known/agent-card.json').json()
    assert texts(answer['task']) == ['hi']
    assert card['supportedInterfaces'][0]['url'] == server.url


@json_rpc('requests are written by hand')
def test_cancel_from_main_thread_stops_run_in_server_thread() -> None:
    running = threading.Event()
    stopped = threading.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        running.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            stopped.set()

    app = to_a2a(Agent(FunctionModel(answer)))
    with serve(app) as server, httpx.Client(timeout=LIMIT) as http:
        at_once = {'returnImmediately': True}
        task_id = post(http, server.url, 'SendMessage', message=message('hi'), configuration=at_once)['task']['id']
        assert running.wait(LIMIT)
        canceled = asyncio.run(asyncio.wait_for(app.cancel_task(task_id), LIMIT))
        assert stopped.is_set()
        got = post(http, server.url, 'GetTask', id=task_id)
    assert canceled['status']['state'] == 'canceled'
    assert state_of(got) == 'CANCELED'


@json_rpc('requests are written by hand')
def test_closing_server_lets_running_task_finish() -> None:
    running, go = threading.Event(), threading.Event()

    def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        running.set()
        assert go.wait(LIMIT)
        return echo_prompts(messages, info)

    server = serve(to_a2a(Agent(FunctionModel(slow))))
    with ThreadPoolExecutor(2) as threads, httpx.Client(timeout=LIMIT) as http:
        sending = threads.submit(post, http, server.url, 'SendMessage', message=message('hi'))
        assert running.wait(LIMIT)
        closing = threads.submit(server.close)
        go.set()
        assert texts(sending.result(LIMIT)['task']) == ['hi']
        closing.result(LIMIT)


@json_rpc('requests are written by hand')
def test_app_used_in_two_threads_runs_every_task() -> None:
    runs: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        runs.extend(user_prompts(messages))
        return echo_prompts(messages, info)

    app = to_a2a(Agent(FunctionModel(answer)))

    async def send_here(count: int) -> list[str]:
        tasks = await asyncio.gather(*(Client(app).send(f'here {n}') for n in range(count)))
        return [text for task in tasks for text in texts(task)]

    with serve(app) as server, ThreadPoolExecutor(1) as thread, httpx.Client(timeout=LIMIT) as http:
        here = thread.submit(lambda: asyncio.run(asyncio.wait_for(send_here(20), LIMIT)))
        there = [post(http, server.url, 'SendMessage', message=message(f'there {n}')) for n in range(20)]
        expected = [f'here {n}' for n in range(20)], [f'there {n}' for n in range(20)]
        assert here.result(LIMIT) == expected[0]
    assert [text for each in there for text in texts(each['task'])] == expected[1]
    # Either loop may take a task, and hands back what it runs when it ends: that begins again in the other.
    assert {*runs} == {*expected[0], *expected[1]}
