"""Tasks as workflows of Temporal, with servers and workers in processes of their own, which are killed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from temporalio.client import Interceptor, OutboundInterceptor
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode

from pydantic_ai_a2a import A2AApp, Results, Workers, a2a, to_a2a
from pydantic_ai_a2a.engines.dbos import DBOS
from pydantic_ai_a2a.engines.temporal import Temporal
from pydantic_ai_a2a.errors import BackendUnusable

from ...client import Client, lifespan, message, state_of, texts
from ...e2e.server import LIMIT, Process, process
from ...engines import TemporalKit, connect
from ...long import size
from ..clerk import readiness
from ..stage import ended, serving
from .test_checkpoints import begun, served
from .test_checkpoints_killed import kill
from .test_durable_processes import Remote, until
from .test_engine_killed import PACKAGES, ledger

APP = 'tests.behaviour.durable_temporal:app'
STEPS = [f'{kind}-{n}' for n in range(1, 6) for kind in ('model', 'tool')][:-1]


class Fleet:
    """Servers and workers of one app."""

    def __init__(self, folder: Path, store: str, address: str) -> None:
        self.kit = TemporalKit(folder, address)
        self.store = store
        self._folder = folder
        self._env = {
            'A2A_TEST_BACKEND': store,
            'A2A_TEST_TEMPORAL': address,
            'A2A_TEST_QUEUE': self.kit.queue,
            'A2A_TEST_LEDGER': str(folder / 'ledger.txt'),
            'A2A_TEST_LEASE': '1.0',
        }

    @contextmanager
    def server(self) -> Generator[Remote]:
        with process('-m', 'uvicorn', APP, '--port', '0', env=self._env, packages=PACKAGES) as server:
            yield Remote(server)

    @contextmanager
    def worker(self, name: str = 'Steps', *, tool_seconds: int = 0) -> Generator[Process]:
        env = {**self._env, 'A2A_TEST_NAME': name, 'A2A_TEST_TOOL_SECONDS': str(tool_seconds)}
        with process('-m', 'pydantic_ai_a2a', 'worker', '--engine', APP, env=env, packages=PACKAGES) as worker:
            worker.wait_for('the worker runs the workflows of')
            yield worker

    def close(self, gate: str) -> None:
        (self._folder / f'{gate}.closed').touch()
        for before in ('reached', 'opened'):
            (self._folder / f'{gate}.{before}').unlink(missing_ok=True)

    def open(self, gate: str) -> None:
        (self._folder / f'{gate}.opened').touch()

    async def found(self, name: str) -> None:
        """Wait for a file of a gate."""
        end = time.monotonic() + LIMIT
        while not (self._folder / name).exists():
            assert time.monotonic() < end, name
            await asyncio.sleep(0.01)

    async def over(self, workflow: str) -> None:
        """Wait until a workflow is over."""
        async with asyncio.timeout(LIMIT):
            while (await self.kit.workflows())[workflow] == 'open':  # noqa: ASYNC110 - its result lies in the store
                await asyncio.sleep(0.05)

    @property
    def ledger(self) -> list[str]:
        return ledger(self._folder)


@pytest.fixture(params=['file', 'postgres'])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, temporal: str) -> Fleet:
    file = request.param == 'file'
    store = f'sqlite:///{tmp_path}/agent.db' if file else request.getfixturevalue('postgres_url')
    return Fleet(tmp_path, store, temporal)


FILE = pytest.mark.parametrize('fleet', ['file'], indirect=True)


@pytest.mark.long
async def test_servers_are_killed_and_the_run_goes_on_in_its_worker(fleet: Fleet) -> None:
    task_id, points = '', size([1, 2], [0, 1, 2, 3, 4])
    for n in points:
        fleet.close(f'tool-{n}')
    with ExitStack() as stack:
        for n in points:  # in this tool, and at 0 as soon as the task is sent
            with fleet.server() as server:
                if not task_id:
                    assert server.url
                    stack.enter_context(fleet.worker(tool_seconds=size(0, 15)))
                    task_id = (await server.send('go', contextId='c', wait=False))['id']
                async with server.subscribe(task_id) as events:  # the later servers attach to a running workflow
                    while n and f'"Tool {n}."' not in json.dumps(await anext(events)):
                        pass
                await kill(server.server)
            fleet.open(f'tool-{n}')
        await fleet.over(f'{task_id}.1')
        assert await fleet.kit.workflows() == {f'{task_id}.1': 'done'}
        with fleet.server() as last:  # attaches to a workflow that has ended
            done = await last.ended(task_id)
            recalled = await last.send('recall', contextId='c')
    assert (texts(done), texts(recalled)) == (['Step 5, done.'], ['go + recall'])
    assert fleet.ledger == STEPS
    # Each server reads the whole stream of the workflow, and stores each note of a tool once.
    said = [part['text'] for each in done['history'] for part in each['parts']]
    assert [text for text in said if text.startswith('Tool ')] == ['Tool 1.', 'Tool 2.', 'Tool 3.', 'Tool 4.']


@pytest.mark.long
async def test_a_worker_is_killed_and_another_goes_on_with_the_step_that_was_cut(fleet: Fleet) -> None:
    gates = [f'tool-{n}' for n in size([2], [1, 2, 3, 4])]
    steps = [again for step in STEPS for again in [step] * (1 + (step in gates))]
    rounds = size(1, 3)
    with fleet.server() as server:
        assert server.url
        for n in range(rounds):
            task_id = ''
            for gate in gates:
                fleet.close(gate)
            for gate in gates:
                with fleet.worker() as worker:
                    task_id = task_id or (await server.send('go', contextId=f'c{n}', wait=False))['id']
                    await fleet.found(f'{gate}.reached')
                    await kill(worker)
                fleet.open(gate)
            with fleet.worker():
                assert texts(await server.ended(task_id)) == ['Step 5, done.']
    assert fleet.ledger == steps * rounds


@FILE
async def test_a_cancel_ends_the_workflow_and_its_tool(fleet: Fleet) -> None:
    fleet.close('tool-2')
    with fleet.server() as server, fleet.worker():
        task = await server.send('go', contextId='c', wait=False)
        await fleet.found('tool-2.reached')
        began = time.monotonic()
        canceled = await server.call('CancelTask', id=task['id'])
        seconds = time.monotonic() - began
        await fleet.found('tool-2.stopped')
        assert texts(await server.send('recall', contextId='c')) == ['go + recall']
        assert [*(await fleet.kit.workflows()).values()] == ['done', 'done']
    assert (state_of(canceled), seconds < 5) == ('CANCELED', True)
    assert fleet.ledger == STEPS[:4]


# --- in the process of the test ---------------------------------------------------------------------------------------


@pytest.fixture
def kit(tmp_path: Path, temporal: str) -> TemporalKit:
    return TemporalKit(tmp_path, temporal)


async def test_a_worker_apart_runs_the_workflows_and_none_is_left_behind_without_it(kit: TemporalKit) -> None:
    engine = Temporal(kit.address, task_queue=kit.queue, worker=False, search_attributes=True)
    agent = kit.agent(TestModel(custom_output_text='Hi.'))
    app = to_a2a(agent, timeout=600.0, backend=kit.options()['backend'], engine=engine)
    with pytest.raises(ValueError, match=r'There is no .*agent\.db: a worker needs the SQLite file of its servers'):
        await engine.worker(app)
    async with lifespan(app), asyncio.timeout(LIMIT):
        client = Client(app)
        abandoned = await client.send('hello', returnImmediately=True)

        async def is_open() -> bool:
            return (await kit.workflows()).get(f'{abandoned["id"]}.1') == 'open'

        async def is_over() -> bool:
            return not await is_open()

        await until(is_open)
        assert state_of(await client.call('CancelTask', {'id': abandoned['id']})) == 'CANCELED'
        await until(is_over)
        async with await engine.worker(app, max_concurrent_activities=2):
            task = await client.send('hello')
        found = [each.id async for each in (await connect(kit)).list_workflows(f'a2aTask = "{task["id"]}"')]
    assert (texts(task), found) == (['Hi.'], [f'{task["id"]}.1'])


async def test_a_worker_without_the_database_of_the_server_fails_the_task(
    kit: TemporalKit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = kit.agent(TestModel())
    away = Temporal(kit.address, task_queue=kit.queue, worker=False)
    other = f'sqlite:///{tmp_path}/other.db'
    async with (
        served(agent, **{**kit.options(), 'engine': away}) as client,
        served(agent, **{**kit.options(), 'backend': other}),
    ):
        task = await client.send('hello')
    assert task['status']['message']['metadata']['failure'] == 'engine'
    assert 'is in a database of other servers' in caplog.text


class Refuses(Interceptor):
    """A Temporal server that refuses a call once, as for an API key that has expired."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.refused = 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        call = getattr(next, self._method)

        async def refuse(input: Any) -> Any:
            self.refused += 1
            if self.refused == 1:
                raise RPCError('The key has expired.', RPCStatusCode.PERMISSION_DENIED, b'')
            return await call(input)

        setattr(next, self._method, refuse)
        return next


@pytest.mark.parametrize('method', ['start_workflow', 'query_workflow', 'describe_workflow'])
async def test_a_task_waits_while_temporal_refuses_calls(kit: TemporalKit, method: str) -> None:
    refuses, running, go_on = Refuses(method), asyncio.Event(), asyncio.Event()
    agent = kit.agent(TestModel(custom_output_text='Hi.'))

    @agent.tool_plain
    async def wait() -> None:
        running.set()
        await go_on.wait()

    def app() -> A2AApp:
        engine = Temporal(kit.address, task_queue=kit.queue, interceptors=[refuses])
        workers = Workers(drain_grace=0.01, lease=1.0)
        return to_a2a(agent, name='agent', backend=kit.options()['backend'], workers=workers, engine=engine)

    async with lifespan(first := app()), asyncio.timeout(LIMIT):
        task_id = await begun(Client(first), 'hello')
        await running.wait()
    go_on.set()
    async with lifespan(second := app()), asyncio.timeout(LIMIT):  # describes the workflow
        assert texts(await ended(Client(second), task_id)) == ['Hi.']
    assert refuses.refused > 1


async def test_the_last_events_of_a_run_are_read_once_temporal_answers(kit: TemporalKit) -> None:
    refuses = Refuses('query_workflow')
    agent = kit.agent(TestModel(custom_output_text='Hi.'))

    @agent.tool
    async def draw(ctx: RunContext[Any]) -> None:
        await a2a(ctx).artifact('a map', name='map')

    async with serving(agent, **kit.options(interceptors=[refuses])) as client:
        task = await client.send('hello')
    assert [artifact['name'] for artifact in task['artifacts']] == ['map', 'result']
    assert refuses.refused > 1


async def test_a_long_stream_needs_no_update_of_its_workflow(kit: TemporalKit) -> None:
    """Each piece of the text is read before the next one is written, so that each takes a poll."""
    pieces, read = 10, asyncio.Semaphore(0)

    async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        for n in range(pieces):
            yield f'{n} '
            await read.acquire()

    agent = kit.agent(FunctionModel(stream_function=write), streams=True)
    async with serving(agent, results=Results(stream='mark', interval=0), **kit.options()) as client:
        async with client.send_streaming('hello') as stream:
            for _ in range(2):
                await anext(stream)  # the task is submitted, and works
            for _ in range(pieces):
                assert 'artifactUpdate' in (await anext(stream)).result
                read.release()
            *_, last = await stream.rest()
        done = await client.get_task(last.result['statusUpdate']['taskId'])
    assert texts(done) == [''.join(f'{n} ' for n in range(pieces))]


async def test_runs_at_the_engine_hold_no_slots(kit: TemporalKit) -> None:
    both, waiting = asyncio.Event(), list[str]()
    agent = kit.agent(TestModel(custom_output_text='Hi.'))

    @agent.tool
    async def meet(ctx: RunContext[Any]) -> None:
        waiting.append(a2a(ctx).task_id)
        if len(waiting) == 2:
            both.set()
        await both.wait()

    async with serving(agent, workers=Workers(running=1), **kit.options()) as client:
        done = await asyncio.gather(client.send('one'), client.send('two'))
    assert [texts(task) for task in done] == [['Hi.'], ['Hi.']]


async def test_code_in_a_workflow_sees_its_task_but_no_credential(kit: TemporalKit) -> None:
    async def tell(ctx: RunContext[Any], city: str) -> str:
        await a2a(ctx).status(f'In {city}.')
        try:
            await a2a(ctx).credential()
        except UserError as error:
            return f'{a2a(ctx).context_id}: {error}'
        raise AssertionError

    agent = kit.agent(TestModel(custom_output_args={'city': 'Rome'}), output_type=tell)
    async with serving(agent, **kit.options()) as client:
        task = await client.send(message('hello', contextId='c'))
    said = [part['text'] for each in task['history'] for part in each['parts']]
    assert said[:2] == ['hello', 'In Rome.']
    assert texts(task)[0].startswith('c: a2a(ctx).credential() works in tools')


async def test_a_wrong_namespace_is_found_before_the_app_is_ready(
    kit: TemporalKit, caplog: pytest.LogCaptureFixture
) -> None:
    app = to_a2a(kit.agent(TestModel()), **kit.options(namespace='wrong'))
    async with lifespan(app):
        assert await readiness(Client(app)) == (503, 'ok')
    assert 'Namespace wrong is not found.' in caplog.text


async def test_a_worker_that_fails_is_replaced_and_the_app_goes_on(
    kit: TemporalKit, caplog: pytest.LogCaptureFixture
) -> None:
    starts = list[str]()

    @asynccontextmanager
    async def run() -> AsyncGenerator[None]:
        starts.append('worker')
        if len(starts) == 1:
            raise RuntimeError('Poll failure.')
        yield

    options = kit.options(plugins=[SimplePlugin('fails', run_context=run)])
    async with serving(kit.agent(TestModel(custom_output_text='Hi.')), **options) as client:
        assert texts(await client.send('hello')) == ['Hi.']
    assert caplog.text.count('The Temporal worker has failed. Another one starts') == 1


async def test_each_app_needs_a_task_queue_of_its_own(kit: TemporalKit, tmp_path: Path) -> None:
    agent = kit.agent(TestModel(custom_output_text='Hi.'))
    other: dict[str, Any] = {**kit.options(), 'backend': f'sqlite:///{tmp_path}/other.db'}
    async with served(agent, **kit.options()):
        refused = to_a2a(agent, **other)
        with pytest.raises(BackendUnusable, match='Another running app of this process has the task queue'):
            async with refused.router.lifespan_context(refused):
                pytest.fail('it has started')
    async with served(agent, **other) as client:
        assert texts(await client.send('hello')) == ['Hi.']


def test_dependencies_that_are_no_data_are_refused(kit: TemporalKit) -> None:
    agent = kit.agent(TestModel(), deps_type=Path)
    with pytest.raises(TypeError, match='passes the dependencies of the agent to activities as JSON'):
        to_a2a(agent, deps=Thread(), **kit.options())


async def test_only_temporal_has_workers_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r'DBOS has no workers of its own: the servers run the workflows\.'):
        await DBOS(f'sqlite:///{tmp_path}/dbos.db').worker(None)
