"""What ends the workflows of tasks, with and without the servers that started them, and what an erasure leaves."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from temporalio.client import Interceptor, OutboundInterceptor
from temporalio.service import RPCError, RPCStatusCode

from pydantic_ai_a2a import Limits, Workers, to_a2a
from pydantic_ai_a2a.commands.erase import erase_all
from pydantic_ai_a2a.commands.queue import cancel_task
from pydantic_ai_a2a.engines.dbos import DBOS
from pydantic_ai_a2a.engines.temporal import Temporal
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Backend, Slot
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ...agents import echo_prompts
from ...app_client import LIMIT, Client, RpcError, lifespan, state_of, texts
from ...clocks import HOUR, SetClock
from ...constants import with_constants
from ...engines import DbosSetup, EngineSetup, TemporalSetup, connect, skip_without_dbos
from ...logs import log_event
from ...reserved_ports import port_of, reserved_port
from ...serving import serving, wait_until_ended
from ...temporal import temporal_server
from ..durable_handover import Gate, serving_until_handover, start_task
from ..durable_processes import poll_until
from ..tasks.test_retention import OWNER
from ..waiting_tool import readiness, wait_until_ready
from .test_engine_temporal import RefusesFirstCall

PATIENT = with_constants(Limits, cancel_grace=LIMIT)
"""A cancel waits for the end of the run, and ends no run by force."""


TEMPORAL = pytest.mark.parametrize('kit', ['temporal'], indirect=True)


class GatedToolAgent:
    """An agent at an engine whose tool waits for the test."""

    def __init__(self, kit: EngineSetup) -> None:
        self.agent = kit.agent(FunctionModel(self._answer), tools=[self.wait])
        self.answers = 0
        self.reached, self.opened, self.stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.answers += 1
        if self.answers == 1:
            return ModelResponse(parts=[ToolCallPart('wait')])
        return echo_prompts(messages, info)

    async def wait(self) -> None:
        self.reached.set()
        try:
            await self.opened.wait()
        finally:
            self.stopped.set()


async def ended_workflows(kit: EngineSetup) -> list[str]:
    """How the workflows have ended, once all of them have."""
    states: list[str] = []

    async def are_over() -> bool:
        states[:] = (await kit.workflows()).values()
        return 'open' not in states

    await poll_until(are_over)
    return states


def rows(kit: EngineSetup) -> dict[str, int]:
    """The tables of the store with rows of tasks, and how many they have."""
    tables = ('task', 'item', 'event', 'checkpoint', 'payload', 'conversation', 'entry')
    with closing(sqlite3.connect(kit.folder / 'agent.db')) as file:
        counts = {table: file.execute(f'SELECT COUNT(*) FROM {table}').fetchone()[0] for table in tables}
    return {table: count for table, count in counts.items() if count}


async def test_erasure_ends_workflow_and_deletes_all_rows(kit: EngineSetup) -> None:
    waiting = GatedToolAgent(kit)
    async with serving(waiting.agent, limits=PATIENT, **kit.options()) as client:
        await start_task(client, 'hello')
        await waiting.reached.wait()

        async def is_marked() -> bool:
            return 'checkpoint' in rows(kit)

        await poll_until(is_marked)
        await erase_all(client.a2a_app.backend, OWNER, None, grace=LIMIT)
        assert await ended_workflows(kit) == ['done']
        await waiting.stopped.wait()
        assert rows(kit) == {}
    assert waiting.answers == 1


async def test_run_timeout_fails_task_and_workflow(kit: EngineSetup) -> None:
    waiting = GatedToolAgent(kit)
    async with serving(waiting.agent, timeout=1.0, **kit.options()) as client:  # most often, the tool has begun
        task = await client.send('hello')
        assert await ended_workflows(kit) == ['failed']
        if waiting.reached.is_set():
            await waiting.stopped.wait()
    assert task['status']['message']['metadata']['failure'] == 'timeout'


@TEMPORAL
async def test_cancel_does_not_wait_for_uncooperative_tool(kit: EngineSetup) -> None:
    running, released = asyncio.Event(), asyncio.Event()
    agent = kit.agent(TestModel())

    @agent.tool_plain
    async def persist() -> None:
        running.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    async with serving(agent, limits=PATIENT, **kit.options()) as client:
        task_id = await start_task(client, 'hello')
        await running.wait()
        assert state_of(await client.call('CancelTask', {'id': task_id})) == 'CANCELED'
        assert await ended_workflows(kit) == ['done']
        released.set()


async def canceled(backend: Backend, task_id: str) -> None:
    await cancel_task(backend, task_id, 0.0)


async def erased(backend: Backend, task_id: str) -> None:
    await erase_all(backend, OWNER, None, grace=0.0)


@TEMPORAL
@pytest.mark.parametrize('end', [canceled, erased])
async def test_workflow_without_server_stops_when_task_ends(
    kit: TemporalSetup, end: Callable[[Backend, str], Any]
) -> None:
    waiting = GatedToolAgent(kit)
    fleet = to_a2a(waiting.agent, name='agent', **kit.options())
    fleet.hosting.runs_tasks = False  # as the command `worker --engine` says
    apart = {**kit.options(), 'engine': Temporal(kit.address, task_queue=kit.queue, worker=False)}
    async with lifespan(fleet), await apart['engine'].worker(fleet):
        async with serving_until_handover(waiting.agent, **apart) as client:
            task_id = await start_task(client, 'hello')
            await waiting.reached.wait()
        await end(fleet.backend, task_id)
        waiting.opened.set()
        assert await ended_workflows(kit) == ['failed']
        assert waiting.answers == 1
        assert end is canceled or rows(kit) == {}


@TEMPORAL
async def test_workflow_stops_although_temporal_refuses_cancel(kit: TemporalSetup) -> None:
    waiting, forced = GatedToolAgent(kit), with_constants(Limits, cancel_grace=0.05)
    options = kit.options()
    options['engine'] = Temporal(kit.address, task_queue=kit.queue, interceptors=[RefusesFirstCall('signal_workflow')])
    async with serving(waiting.agent, limits=forced, **options) as client:
        task_id = await start_task(client, 'hello')
        await waiting.reached.wait()
        with log_event(f'Temporal does not cancel {task_id}.1') as refused:
            assert state_of(await client.call('CancelTask', {'id': task_id})) == 'CANCELED'
            assert await asyncio.to_thread(refused.wait, LIMIT)
        waiting.opened.set()
        assert await ended_workflows(kit) == ['failed']
    assert waiting.answers == 1


@TEMPORAL
async def test_cancel_before_worker_start_runs_no_step(kit: TemporalSetup) -> None:
    waiting = GatedToolAgent(kit)
    async with serving(waiting.agent, limits=PATIENT, **kit.options(worker=False)) as client:
        app = client.a2a_app
        assert app.at_engine is not None
        task_id = await start_task(client, 'hello')

        async def is_open() -> bool:
            return bool(await kit.workflows())

        async def is_signalled() -> bool:
            history = await (await connect(kit)).get_workflow_handle(f'{task_id}.1').fetch_history()
            return any(event.HasField('workflow_execution_signaled_event_attributes') for event in history.events)

        await poll_until(is_open)
        canceling = asyncio.create_task(client.call('CancelTask', {'id': task_id}))
        await poll_until(is_signalled)
        async with await app.at_engine.engine.worker(app):
            assert state_of(await canceling) == 'CANCELED'
            assert await ended_workflows(kit) == ['done']
    assert waiting.answers == 0


@TEMPORAL
async def test_canceled_task_without_worker_is_not_failed(kit: TemporalSetup) -> None:
    waiting, terminate = GatedToolAgent(kit), HoldsFirstCall('terminate_workflow', sends=True)
    options = kit.options(worker=False, interceptors=[terminate])
    options['engine'].cancel_time = 0.1
    async with serving(waiting.agent, limits=PATIENT, **options) as client:
        task_id = await start_task(client, 'hello')

        async def is_open() -> bool:
            return bool(await kit.workflows())

        await poll_until(is_open)
        canceling = asyncio.create_task(client.call('CancelTask', {'id': task_id}))
        await terminate.reached.wait()
        assert await ended_workflows(kit) == ['failed']  # the server may know before it has the answer
        terminate.opened.set()
        assert state_of(await canceling) == 'CANCELED'
    assert waiting.answers == 0


@TEMPORAL
async def test_run_failing_before_termination_fails_its_task(kit: TemporalSetup) -> None:
    gate, signal, terminate = Gate(), HoldsFirstCall('signal_workflow'), HoldsFirstCall('terminate_workflow')
    agent, options = kit.agent(TestModel()), kit.options(interceptors=[signal, terminate])
    options['engine'].cancel_time = 0.1

    @agent.tool_plain
    async def fail() -> None:
        await gate.wait()
        raise UserError('The tool is wrong.')

    async with serving(agent, limits=PATIENT, **options) as client:
        task_id = await start_task(client, 'hello')
        await gate.reached.wait()
        canceling = asyncio.create_task(client.call('CancelTask', {'id': task_id}))
        await terminate.reached.wait()
        gate.opened.set()
        assert await ended_workflows(kit) == ['failed']
        terminate.opened.set()
        with pytest.raises(RpcError, match='it has already ended'):
            await canceling
        assert state_of(await client.get_task(task_id)) == 'FAILED'


@TEMPORAL
async def test_task_without_tools_takes_a_single_activity(kit: TemporalSetup) -> None:
    async with serving(kit.agent(TestModel(custom_output_text='Hi.')), **kit.options()) as client:
        task_id = await start_task(client, 'hello')
        assert texts(await wait_until_ended(client, task_id)) == ['Hi.']
    history = await (await connect(kit)).get_workflow_handle(f'{task_id}.1').fetch_history()
    counts = Counter(event.WhichOneof('attributes') for event in history.events)
    assert counts['activity_task_scheduled_event_attributes'] == 1  # asks the model


async def test_app_becomes_ready_once_temporal_is_reachable(tmp_path: Path) -> None:
    with reserved_port() as reserved:
        kit = TemporalSetup(tmp_path, f'127.0.0.1:{port_of(reserved)}')
        async with serving(kit.agent(TestModel(custom_output_text='Hi.')), **kit.options()) as client:
            app = client.a2a_app
            assert app.at_engine is not None
            assert await readiness(client) != (200, 'ok')
            with pytest.raises(StoreUnavailable):
                await app.at_engine.engine.worker(app)
            with temporal_server(port_of(reserved)):
                await wait_until_ready(client)
                assert texts(await client.send('hello')) == ['Hi.']


class Outage:
    """A Temporal server that a test kills, and starts again with the same workflows."""

    def __init__(self, folder: Path, port: int) -> None:
        self.kit = TemporalSetup(folder, f'127.0.0.1:{port}')
        self._server = partial(temporal_server, port, folder / 'temporal.db')
        self._running = ExitStack()
        self.end()

    def begin(self) -> None:
        self._running.close()

    def end(self) -> None:
        self._running.enter_context(self._server())


@pytest.fixture
def outage(tmp_path: Path) -> Generator[Outage]:
    with reserved_port() as reserved:
        outage = Outage(tmp_path, port_of(reserved))
        yield outage
        outage.begin()


async def send_during_outage(client: Client, text: str) -> str:
    """The id of a task whose workflow cannot be started."""
    task_id = await start_task(client, text, text)

    async def is_working() -> bool:
        return state_of(await client.get_task(task_id)) == 'WORKING'

    await poll_until(is_working)
    return task_id


async def test_tasks_wait_during_temporal_outage(outage: Outage) -> None:
    waiting = GatedToolAgent(outage.kit)
    async with serving(waiting.agent, workers=Workers(running=1), **outage.kit.options()) as client:
        running = await start_task(client, 'one')
        await waiting.reached.wait()
        outage.begin()
        sent = await send_during_outage(client, 'two')
        assert await readiness(client) == (200, 'ok')  # as the store, which takes tasks
        waiting.opened.set()
        assert state_of(await client.get_task(running)) == 'WORKING'
        outage.end()
        assert [texts(await wait_until_ended(client, task_id)) for task_id in (running, sent)] == [['one'], ['two']]
        assert await ended_workflows(outage.kit) == ['done', 'done']
    assert waiting.answers == 3


async def test_cancel_in_temporal_outage_ends_task_immediately(
    outage: Outage,
) -> None:
    waiting, forced = GatedToolAgent(outage.kit), with_constants(Limits, cancel_grace=0.05)
    async with serving(waiting.agent, limits=forced, **outage.kit.options()) as client:
        running = await start_task(client, 'one', 'c')
        await waiting.reached.wait()
        outage.begin()
        tasks = [running, await send_during_outage(client, 'two')]
        with ExitStack() as stack:
            dropped = [stack.enter_context(log_event(f'Task {each} was taken over')) for each in tasks]
            for task_id in tasks:
                assert state_of(await client.call('CancelTask', {'id': task_id})) == 'CANCELED'
            following = await start_task(client, 'three', 'c')
            outage.end()
            for each in dropped:
                assert await asyncio.to_thread(each.wait, LIMIT)
        await waiting.stopped.wait()
        assert texts(await wait_until_ended(client, following)) == ['three']
        assert len(await ended_workflows(outage.kit)) == 2  # no workflow was started for the second task
    assert waiting.answers == 2


class HoldsFirstCall(Interceptor):
    """Holds the first call of a method, or its answer, until the test lets it go on."""

    def __init__(self, method: str, *, sends: bool = False, error: Exception | None = None) -> None:
        self._method = method
        self._sends = sends
        self._error = error
        self._first = True
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        call = getattr(next, self._method)

        async def hold(input: Any) -> Any:
            first, self._first = self._first, False
            if not first:
                return await call(input)
            answer = await call(input) if self._sends else None
            self.reached.set()
            await self.opened.wait()
            if self._error is not None:
                raise self._error
            return answer or await call(input)

        setattr(next, self._method, hold)
        return next


async def until_asked(kit: EngineSetup) -> None:
    """Wait until the store has a running task that its server has to cancel."""

    async def is_asked() -> bool:
        with closing(sqlite3.connect(kit.folder / 'agent.db')) as file:
            return file.execute('SELECT COUNT(*) FROM task WHERE cancel_requested = 1').fetchone()[0] > 0

    await poll_until(is_asked)


REFUSED = RPCError('The key has expired.', RPCStatusCode.PERMISSION_DENIED, b'')


@TEMPORAL
@pytest.mark.parametrize(('sends', 'error'), [(False, None), (True, None), (True, REFUSED)])
async def test_cancel_waits_for_pending_workflow_start(kit: EngineSetup, sends: bool, error: Exception | None) -> None:
    waiting, start = GatedToolAgent(kit), HoldsFirstCall('start_workflow', sends=sends, error=error)
    options: dict[str, Any] = {'limits': PATIENT, 'workers': Workers(lease=1.0)}
    async with serving(waiting.agent, **options, **kit.options(interceptors=[start])) as client:
        task_id = await start_task(client, 'hello')
        await start.reached.wait()
        canceling = asyncio.create_task(client.call('CancelTask', {'id': task_id}))
        await until_asked(kit)
        assert not canceling.done()
        assert 'checkpoint' not in rows(kit)  # a server that takes over does not believe in a workflow
        start.opened.set()
        assert state_of(await canceling) == 'CANCELED'
        assert await ended_workflows(kit) == ['done']
    assert waiting.answers <= 1


@TEMPORAL
@pytest.mark.parametrize('starts', [False, True])
async def test_workflow_continues_when_task_is_taken_over(kit: EngineSetup, starts: bool) -> None:
    waiting, start = GatedToolAgent(kit), HoldsFirstCall('start_workflow', sends=True)
    options = kit.options(interceptors=[start] if starts else [])
    there = SqliteFileBackend(SqliteFile.of(options['backend']), 'agent', reader_lag=10**6, clock=SetClock(HOUR))
    async with serving(waiting.agent, workers=Workers(lease=1.0), **options) as client:
        task_id = await start_task(client, 'hello')
        await waiting.reached.wait()
        with log_event(f'Task {task_id} was taken over or has ended') as dropped:
            assert await there.queue.claim(Slot('thief', HOUR), at=there.now(), limit=1)
            start.opened.set()
            assert await asyncio.to_thread(dropped.wait, LIMIT)
        assert list((await kit.workflows()).values()) == ['open']
        waiting.opened.set()
        assert await ended_workflows(kit) == ['done']
    there.close()
    assert waiting.answers == 2


@TEMPORAL
async def test_cancel_of_task_with_lost_workflow_succeeds(kit: EngineSetup) -> None:
    waiting, look = GatedToolAgent(kit), HoldsFirstCall('describe_workflow')
    async with serving_until_handover(waiting.agent, **kit.options()) as client:
        task_id = await start_task(client, 'hello')
        await waiting.reached.wait()
    options = kit.options(empty=True, interceptors=[look])
    async with serving_until_handover(waiting.agent, limits=PATIENT, **options) as client:
        await look.reached.wait()
        canceling = asyncio.create_task(client.call('CancelTask', {'id': task_id}))
        await until_asked(kit)
        look.opened.set()
        assert state_of(await canceling) == 'CANCELED'


async def is_cancelled(client: Client, task_id: str) -> None:
    assert state_of(await client.call('CancelTask', {'id': task_id})) == 'CANCELED'


async def is_erased(client: Client, task_id: str) -> None:
    await erase_all(client.a2a_app.backend, OWNER, None, grace=0.0)


FORCED = with_constants(Limits, cancel_grace=0.05)
"""A cancel does not wait for the end of the run."""


@TEMPORAL
@pytest.mark.parametrize('end', [is_cancelled, is_erased])
async def test_workflow_ends_with_task_despite_unanswered_start(
    kit: EngineSetup, end: Callable[[Client, str], Any]
) -> None:
    waiting, start = GatedToolAgent(kit), HoldsFirstCall('start_workflow', sends=True)
    async with serving(waiting.agent, limits=FORCED, **kit.options(interceptors=[start])) as client:
        task_id = await start_task(client, 'hello')
        await start.reached.wait()
        await waiting.reached.wait()
        await end(client, task_id)
        assert await ended_workflows(kit) == ['done']
        await waiting.stopped.wait()
        assert end is is_cancelled or rows(kit) == {}
    assert waiting.answers == 1


@pytest.mark.parametrize('end', [is_cancelled, is_erased])
async def test_unstored_dbos_workflow_ends_with_its_task(tmp_path: Path, end: Callable[[Client, str], Any]) -> None:
    kit = DbosSetup(tmp_path)
    waiting = GatedToolAgent(kit)
    async with serving(waiting.agent, limits=FORCED, **kit.options()) as client:
        with closing(sqlite3.connect(tmp_path / 'dbos.db', isolation_level=None)) as file:
            file.execute('BEGIN EXCLUSIVE')
            task_id = await send_during_outage(client, 'hello')
            with log_event(f'Task {task_id} was taken over or has ended') as dropped:
                await end(client, task_id)
                file.execute('ROLLBACK')
                assert await asyncio.to_thread(dropped.wait, LIMIT)
        assert 'open' not in await ended_workflows(kit)
        assert end is is_cancelled or rows(kit) == {}
    assert waiting.answers == 0


async def test_app_becomes_ready_once_dbos_is_reachable(tmp_path: Path) -> None:
    skip_without_dbos()
    agent = DbosSetup(tmp_path).agent(TestModel(custom_output_text='Hi.'))
    engine = DBOS(f'sqlite:///{tmp_path}/missing/dbos.db')
    async with serving(agent, backend=f'sqlite:///{tmp_path}/agent.db', engine=engine) as client:
        assert await readiness(client) != (200, 'ok')
        (tmp_path / 'missing').mkdir()
        await wait_until_ready(client)
        assert texts(await client.send('hello')) == ['Hi.']


FILES = {
    'path': 'sqlite:///{folder}/dbos.db',
    'relative path': 'sqlite:///dbos.db',
    'driver': 'sqlite+pysqlite:///dbos.db?timeout=30',
    'URI': 'sqlite:///file:dbos.db?mode=rwc&uri=true',
    'URI with a host': 'sqlite:///file://{folder}/dbos%2Edb?uri=true',
    'link': 'sqlite:///link.db',
}


@pytest.mark.parametrize('exists', [False, True])
@pytest.mark.parametrize('case', FILES)
async def test_dbos_database_is_private_to_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, exists: bool
) -> None:
    """Whoever can write to it can run code: DBOS keeps pickles."""
    skip_without_dbos()
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'link.db').symlink_to('dbos.db')
    for ending in ('', '-wal', '-shm') if exists else ():
        (tmp_path / f'dbos.db{ending}').touch(0o644)
    agent = DbosSetup(tmp_path).agent(TestModel(custom_output_text='Hi.'))
    engine = DBOS(FILES[case].format(folder=tmp_path))
    async with serving(agent, backend=f'sqlite:///{tmp_path}/agent.sqlite', engine=engine) as client:
        assert texts(await client.send('hello')) == ['Hi.']
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.glob('*db*')}
    assert modes['dbos.db'] == '0o600'
    assert {*modes.values()} == {'0o600'}


@pytest.mark.parametrize('url', ['sqlite://', 'sqlite:///file:dbos?mode=memory&cache=shared&uri=true'])
async def test_dbos_database_in_memory_creates_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = DbosSetup(tmp_path).agent(TestModel())
    async with serving(agent, backend=f'sqlite:///{tmp_path}/agent.sqlite', engine=DBOS(url)):
        assert not {path.stem for path in tmp_path.iterdir()} - {'agent'}
