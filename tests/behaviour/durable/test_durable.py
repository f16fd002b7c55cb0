"""Tasks and conversations in a file: what outlives an app, and what is the same as in memory."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import weakref
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from pathlib import Path

import pytest
import uvicorn
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Results, Retention, Workers, to_a2a
from pydantic_ai_a2a.errors import BackendUnusable
from pydantic_ai_a2a.server.app.backend_choice import open_store
from pydantic_ai_a2a.server.store.ports import Marks, TaskQueue
from pydantic_ai_a2a.store import WrappedQueue

from ...agents import GatedAgent, echo_prompts, user_prompts
from ...app_client import LIMIT, Client, Event, lifespan, message, state_of, texts
from ...dialects import in_no_version
from ...serving import list_tasks, serving, wait_until_ended
from ...suites import values
from ..fasta2a_parts import memory_parts
from ..promised_behaviours import covers

pytestmark = in_no_version('where tasks are kept is below what versions differ in')


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f'sqlite:///{tmp_path}/agent.db?synchronous=normal'


@pytest.fixture(params=['file', 'postgres_tables_url'], ids=['file', 'postgres'])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param)


def ids(events: list[Event]) -> list[int]:
    return [event.id for event in events]


async def test_tasks_and_conversations_survive_restart(url: str) -> None:
    agent = Agent(FunctionModel(echo_prompts), name='agent')
    async with serving(agent, backend=url) as client:
        first = await client.send(message('one', contextId='c'))
        before = await client.get_task(first['id'])
    async with serving(agent, backend=url) as client:
        assert await client.get_task(first['id']) == before
        assert texts(await client.send(message('two', contextId='c'))) == ['one + two']
        assert [task['id'] for task in await list_tasks(client)][1:] == [first['id']]


@covers('SIGTERM')
async def test_unfinished_tasks_continue_after_restart(url: str) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, backend=url, workers=Workers(running=1), drain_grace=0.01) as client:
        first = await client.send(message('one', contextId='c'), returnImmediately=True)
        await gates.reached('one')
        behind = await client.send(message('two', contextId='c'), returnImmediately=True)
        elsewhere = await client.send('three', returnImmediately=True)
    tasks = [task['id'] for task in (first, behind, elsewhere)]
    store = open_store(url, 'agent')
    assert [await values.state_of(store, task_id) for task_id in tasks] == ['working', 'submitted', 'submitted']
    store.close()
    gates.open('one', 'two', 'three')
    async with serving(gates.agent, backend=url, workers=Workers(running=1)) as client:
        assert [texts(await wait_until_ended(client, task_id)) for task_id in tasks] == [
            ['one'],
            ['one + two'],
            ['three'],
        ]
    assert gates.began == ['one', 'one', 'three', 'two']  # the second waited for its conversation, and so longer


@covers('SIGTERM')
async def test_blocking_send_returns_unfinished_task_at_shutdown(url: str) -> None:
    gates = GatedAgent()
    async with (
        asyncio.TaskGroup() as waiting,
        serving(gates.agent, backend=url, workers=Workers(running=1), drain_grace=0.01) as client,
    ):
        running = waiting.create_task(client.send(message('one', contextId='c')))
        await gates.reached('one')
        queued = waiting.create_task(client.send(message('two', contextId='c')))
        while len(await list_tasks(client)) < 2:
            pass
    assert (state_of(running.result()), state_of(queued.result())) == ('WORKING', 'SUBMITTED')


async def test_namespaces_separate_agents_in_a_shared_file(file: str) -> None:
    agent = Agent(FunctionModel(echo_prompts), name='ada')
    async with (
        serving(agent, backend=file) as client,
        serving(agent, backend=file, retention=Retention(namespace='bob')) as other,
    ):
        await client.send(message('one', contextId='c'))
        assert texts(await other.send(message('two', contextId='c'))) == ['two']
        with pytest.raises(ValueError, match="app of this process uses the namespace 'ada' of the SQLite file"):
            to_a2a(agent, backend=file)


async def test_task_submitted_by_second_process_is_run(url: str) -> None:
    there = open_store(url, 'agent')
    async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=url) as client:
        await values.submit(there, values.message('hi', new='t', owner='/'))
        assert texts(await wait_until_ended(client, 't')) == ['hi']
    there.close()


class CountsHeartbeats(WrappedQueue):
    """Tells of each heartbeat."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.loop = asyncio.get_running_loop()
        self.beats: asyncio.Queue[None] = asyncio.Queue()

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        self.loop.call_soon_threadsafe(self.beats.put_nowait, None)
        return await super().renew(holder, tasks, lease=lease)


class RequestState:
    """What a request carries in its context."""


request_state: ContextVar[RequestState] = ContextVar('carried')


async def test_request_context_is_freed_after_takeover(url: str) -> None:
    gates = GatedAgent()
    backend, there = (open_store(url, 'agent') for _ in range(2))
    queue = backend.queue = CountsHeartbeats(backend.queue)

    async def submit(task_id: str) -> weakref.ref[RequestState]:
        request_state.set(RequestState())
        await values.submit(backend, values.message(task_id, new=task_id, context='c'))
        return weakref.ref(request_state.get())

    async with serving(gates.agent, backend=backend, workers=Workers(running=1, lease=0.3)) as client:
        await client.send('first', returnImmediately=True)
        await gates.reached('first')
        taken, waits_still = [await asyncio.create_task(submit(task_id)) for task_id in ('one', 'two')]
        await values.claim_and_finish(there, 'one', at=backend.now())
        while taken() is not None:
            await queue.beats.get()
            gc.collect()
        assert waits_still() is not None
        gates.open('first', 'two')
        await backend.events.wait('two', 0)
        assert await values.state_of(backend, 'two') == 'completed'
    for each in (backend, there):
        each.close()


def speaker(*, fails: bool = False, gate: asyncio.Event | None = None) -> Agent[object, str]:
    """Says as many words as the prompt says; then fails, or waits at the gate."""

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        for n in range(int(user_prompts(messages)[-1])):
            yield f'{n} '
            if n % 100 == 0:
                await asyncio.sleep(0)
        if fails:
            raise RuntimeError('on purpose')
        if gate is not None:
            await gate.wait()

    return Agent(FunctionModel(stream_function=stream), name='agent')


def counted_words(count: int) -> str:
    return ''.join(f'{n} ' for n in range(count))


def read(events: list[Event]) -> str:
    """The text of an event stream: what appends nothing replaces the text before it."""
    text = ''
    for event in events:
        if (update := event.result.get('artifactUpdate')) is not None:
            added = ''.join(part['text'] for part in update['artifact']['parts'])
            text = text + added if update.get('append') else added
    return text


async def test_stream_is_complete_and_resumable_after_restart(url: str) -> None:
    agent = speaker()
    results = Results(interval=0)
    async with serving(agent, backend=url, results=results) as client, client.live.send_streaming('1000') as stream:
        events = await stream.rest()
    task_id = events[0].result['task']['id']
    assert read(events) == counted_words(1000)
    assert ids(events) == list(range(ids(events)[-1] + 1))
    async with serving(agent, backend=url) as client:
        async with client.live.subscribe(task_id, Last_Event_ID='500') as stream:
            assert await stream.rest() == events[501:]
        assert texts(await client.get_task(task_id)) == [counted_words(1000)]


async def test_streamed_text_of_failed_run_is_kept(url: str) -> None:
    async with serving(speaker(fails=True), backend=url) as client, client.live.send_streaming('150') as stream:
        events = await stream.rest()
        task = await client.get_task(events[0].result['task']['id'])
    assert (state_of(task), texts(task), read(events)) == ('FAILED', [counted_words(150)], counted_words(150))


async def test_streamed_text_of_canceled_run_is_kept(url: str) -> None:
    agent = speaker(gate=asyncio.Event())
    async with serving(agent, backend=url) as client, client.live.send_streaming('200') as stream:
        begun = [await anext(stream)]
        task_id = begun[0].result['task']['id']
        while not read(begun).endswith('199 '):
            begun.append(await anext(stream))
        canceled = await client.call('CancelTask', {'id': task_id})
        events = [*begun, *(await stream.rest())]
    assert (state_of(canceled), texts(canceled)) == ('CANCELED', [counted_words(200)])
    assert ids(events) == list(range(len(events)))


@covers('five 1 s tasks at once')
async def test_fifty_concurrent_tasks_all_complete(url: str) -> None:
    async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=url) as client:
        done = await asyncio.gather(*(client.send(message(f'{n}', contextId=f'c{n % 5}')) for n in range(50)))
    assert [state_of(task) for task in done] == ['COMPLETED'] * 50
    longest = max((texts(task)[0] for task in done), key=len)
    assert len(longest.split(' + ')) == 10


def test_app_works_in_successive_event_loops(url: str) -> None:
    app = to_a2a(Agent(FunctionModel(echo_prompts), name='agent'), backend=url)

    async def send(text: str) -> list[str]:
        return texts(await asyncio.wait_for(Client(app).send(message(text, contextId='c')), LIMIT))

    assert [asyncio.run(send(text)) for text in ('one', 'two')] == [['one'], ['one + two']]


async def test_app_creates_sqlite_file_only_at_startup(file: str, tmp_path: Path) -> None:
    app = to_a2a(Agent(FunctionModel(echo_prompts), name='agent'), backend=file)
    assert list(tmp_path.iterdir()) == []
    async with lifespan(app):
        assert (tmp_path / 'agent.db').exists()


@covers('`--workers 2`')
def test_memory_backend_is_refused_for_several_processes(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(FunctionModel(echo_prompts), name='agent')
    config = uvicorn.Config('module:app', workers=4)
    monkeypatch.setattr(multiprocessing.current_process(), '_kwargs', {'config': config}, raising=False)
    to_a2a(agent, backend=file)
    with pytest.raises(
        ValueError, match=r"4 server processes cannot share .* use backend='sqlite:///agent\.db', or one proc"
    ):
        to_a2a(agent)


async def test_worker_variable_leaves_tasks_to_other_processes(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYDANTIC_AI_A2A_WORKER', 'off')
    app = to_a2a(Agent('test', name='agent'), backend=file)
    async with lifespan(app):
        health = await Client(app).get('/health/ready')
    assert health.json['components'] == {'server': 'ok', 'agent': 'off', 'worker': 'off', 'backend': 'ok'}
    monkeypatch.setenv('PYDANTIC_AI_A2A_WORKER', 'on')
    async with serving(Agent('test', name='agent'), backend=file) as client:
        assert state_of(await client.send()) == 'COMPLETED'


async def test_unusable_worker_variable_prevents_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYDANTIC_AI_A2A_WORKER', 'off')
    app = to_a2a(Agent('test'))
    with pytest.raises(BackendUnusable, match=r'PYDANTIC_AI_A2A_WORKER=off .* cannot see tasks in memory: use backend'):
        await app.hosting.start()
    for value in ('0', ''):
        monkeypatch.setenv('PYDANTIC_AI_A2A_WORKER', value)
        with pytest.raises(ValueError, match=f'variable PYDANTIC_AI_A2A_WORKER takes on or off, not {value!r}'):
            to_a2a(Agent('test'))


def test_several_processes_may_serve_own_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    config = uvicorn.Config('module:app', workers=4)
    monkeypatch.setattr(multiprocessing.current_process(), '_kwargs', {'config': config}, raising=False)
    assert to_a2a(Agent('test'), **memory_parts()).task_manager
