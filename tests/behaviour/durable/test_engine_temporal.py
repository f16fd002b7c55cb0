"""What is peculiar to tasks as workflows of Temporal, in the process of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from math import inf
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr
from pydantic.alias_generators import to_camel
from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Interceptor, OutboundInterceptor, WorkflowQueryFailedError
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

from pydantic_ai_a2a import A2AApp, CallContext, Messages, Rejected, Results, Workers, a2a, to_a2a
from pydantic_ai_a2a.engines.dbos import DBOS
from pydantic_ai_a2a.engines.temporal import Temporal
from pydantic_ai_a2a.errors import BackendUnusable

from ...app_client import LIMIT, Client, lifespan, message, state_of, texts
from ...engines import TemporalSetup, connect
from ...serving import serving, wait_until_ended
from ...temporal import temporal_server
from ..durable_handover import Gate, serving_until_handover, start_task
from ..durable_processes import poll_until
from ..pending_calls import answer_message, approve, pending_calls
from ..waiting_tool import readiness


@pytest.fixture
def kit(tmp_path: Path, temporal: str) -> TemporalSetup:
    return TemporalSetup(tmp_path, temporal)


async def test_separate_temporal_worker_runs_the_workflows(kit: TemporalSetup) -> None:
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

        await poll_until(is_open)
        assert state_of(await client.call('CancelTask', {'id': abandoned['id']})) == 'CANCELED'
        await poll_until(is_over)
        async with await engine.worker(app, max_concurrent_activities=2):
            task = await client.send('hello')
        found = [each.id async for each in (await connect(kit)).list_workflows(f'a2aTask = "{task["id"]}"')]
    assert (texts(task), found) == (['Hi.'], [f'{task["id"]}.1'])


async def test_worker_may_use_a_deployment_version(tmp_path: Path) -> None:
    with temporal_server(settings=('history.maxTotalUpdates=100',)) as address:  # deployments take updates
        await runs_with_a_version(TemporalSetup(tmp_path, address))


async def runs_with_a_version(kit: TemporalSetup) -> None:
    engine = Temporal(kit.address, task_queue=kit.queue, worker=False)
    app = to_a2a(kit.agent(TestModel(custom_output_text='Hi.')), backend=kit.options()['backend'], engine=engine)
    version = WorkerDeploymentVersion(deployment_name=kit.queue, build_id='1')
    config = WorkerDeploymentConfig(
        version=version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.PINNED
    )
    client = await connect(kit)
    current = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name=kit.queue, build_id='1', ignore_missing_task_queues=True
    )

    async def is_current() -> bool:
        try:
            await client.workflow_service.set_worker_deployment_current_version(current)
        except RPCError:  # the server does not know the worker yet
            return False
        return True

    async with lifespan(app), await engine.worker(app, deployment_config=config), asyncio.timeout(LIMIT):
        await poll_until(is_current)
        assert texts(await Client(app).send('hello')) == ['Hi.']


async def test_task_fails_if_worker_uses_different_database(
    kit: TemporalSetup, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = kit.agent(TestModel())
    away = Temporal(kit.address, task_queue=kit.queue, worker=False)
    other = f'sqlite:///{tmp_path}/other.db'
    async with (
        serving_until_handover(agent, **{**kit.options(), 'engine': away}) as client,
        serving_until_handover(agent, **{**kit.options(), 'backend': other}),
    ):
        task = await client.send('hello')
    assert task['status']['message']['metadata']['failure'] == 'engine'
    assert 'is in a database of other servers' in caplog.text


class RefusesFirstCall(Interceptor):
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
async def test_task_waits_while_temporal_refuses_calls(kit: TemporalSetup, method: str) -> None:
    refuses, gate = RefusesFirstCall(method), Gate()
    agent = kit.agent(TestModel(custom_output_text='Hi.'), tools=[gate.wait])

    def app() -> A2AApp:
        engine = Temporal(kit.address, task_queue=kit.queue, interceptors=[refuses])
        workers = Workers(drain_grace=0.01, lease=1.0)
        return to_a2a(agent, name='agent', backend=kit.options()['backend'], workers=workers, engine=engine)

    async with lifespan(first := app()), asyncio.timeout(LIMIT):
        task_id = await start_task(Client(first), 'hello')
        await gate.reached.wait()
    gate.opened.set()
    async with lifespan(second := app()), asyncio.timeout(LIMIT):  # describes the workflow
        assert texts(await wait_until_ended(Client(second), task_id)) == ['Hi.']
    assert refuses.refused > 1


async def test_events_are_read_after_refused_query(kit: TemporalSetup) -> None:
    refuses = RefusesFirstCall('query_workflow')
    agent = kit.agent(TestModel(custom_output_text='Hi.'))

    @agent.tool
    async def draw(ctx: RunContext[Any]) -> None:
        await a2a(ctx).artifact('a map', name='map')

    async with serving(agent, **kit.options(interceptors=[refuses])) as client:
        task = await client.send('hello')
    assert [artifact['name'] for artifact in task['artifacts']] == ['map', 'result']
    assert refuses.refused > 1


async def test_artifacts_of_several_pages_reach_the_task(kit: TemporalSetup) -> None:
    """A poll answers with about a megabyte of events."""
    agent = kit.agent(TestModel())

    @agent.tool
    async def draw(ctx: RunContext[Any]) -> str:
        for n in range(4):
            await a2a(ctx).artifact('x' * 700_000, name=f'drawing {n}')
        return 'drawn'

    async with serving(agent, **kit.options()) as client:
        task = await client.send()
    assert [len(text) for text in texts(task)[:4]] == [700_000] * 4


async def test_long_stream_needs_no_workflow_update(kit: TemporalSetup) -> None:
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


class FailsQueries(Interceptor):
    """A Temporal server that fails queries, with each of the errors in turn."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = cycle(errors)
        self.left = 0.0
        """Number of the next queries that fail."""
        self.may_fail = asyncio.Event()
        """Not set: queries wait before they fail."""
        self.may_fail.set()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        query = next.query_workflow

        async def answer(input: Any) -> Any:
            if self.left:
                self.left -= 1
                await self.may_fail.wait()
                raise self._error()
            return await query(input)

        setattr(next, 'query_workflow', answer)  # noqa: B010 (a method)
        return next

    def _error(self) -> Exception:
        return next(self._errors)


LATE = (
    RPCError('Timeout expired', RPCStatusCode.CANCELLED, b''),
    RPCError('context deadline exceeded', RPCStatusCode.DEADLINE_EXCEEDED, b''),
)
"""What a call ends with that is not answered in time: in the client, and in the server."""


async def test_late_polls_repeat_no_streamed_text(kit: TemporalSetup) -> None:
    answers, gate = FailsQueries(*LATE), asyncio.Event()

    async def is_over() -> bool:
        return [*(await kit.workflows()).values()] == ['done']

    async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        yield 'one '
        await gate.wait()
        yield 'two'

    agent = kit.agent(FunctionModel(stream_function=write), streams=True)
    async with (
        serving(agent, results=Results(stream='mark', interval=0), **kit.options(interceptors=[answers])) as client,
        client.send_streaming('hello') as stream,
    ):
        begin = [await anext(stream) for _ in range(3)]  # the task is submitted, works, and writes
        answers.left = 10
        answers.may_fail.clear()
        gate.set()
        await poll_until(is_over)
        answers.may_fail.set()
        events = [event.result for event in (*begin, *await stream.rest())]
    pieces = [event['artifactUpdate']['artifact']['parts'][0]['text'] for event in events if 'artifactUpdate' in event]
    assert pieces == ['one ', 'two', '']


async def test_result_is_stored_although_events_are_unreadable(kit: TemporalSetup) -> None:
    unreadable = FailsQueries(WorkflowQueryFailedError('The agent has changed.'))
    unreadable.left = inf
    agent = kit.agent(TestModel(custom_output_text='Hi.'))
    async with serving(agent, **kit.options(interceptors=[unreadable])) as client:
        assert texts(await client.send('hello')) == ['Hi.']


class HoldsPoll(Interceptor):
    """Holds the answers to queries until the test lets them go on."""

    def __init__(self) -> None:
        self.gate = Gate()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        query = next.query_workflow

        async def hold(input: Any) -> Any:
            page = await query(input)
            await self.gate.wait()
            return page

        setattr(next, 'query_workflow', hold)  # noqa: B010 (a method)
        return next


async def test_events_after_last_poll_reach_the_task(kit: TemporalSetup) -> None:
    poll, gate = HoldsPoll(), Gate()
    agent = kit.agent(TestModel())

    @agent.tool
    async def draw(ctx: RunContext[Any]) -> None:
        await gate.wait()
        await a2a(ctx).artifact('a map', name='map')

    async with serving(agent, **kit.options(interceptors=[poll])) as client:
        task_id = await start_task(client, 'hello')
        await poll.gate.reached.wait()
        gate.opened.set()

        async def is_done() -> bool:
            return (await kit.workflows())[f'{task_id}.1'] == 'done'

        await poll_until(is_done)
        poll.gate.opened.set()
        task = await wait_until_ended(client, task_id)
    assert [artifact['name'] for artifact in task['artifacts']] == ['map', 'result']


async def test_workflow_terminated_by_operator_fails_its_task(kit: TemporalSetup) -> None:
    gate = Gate()
    async with serving(kit.agent(TestModel(), tools=[gate.wait]), **kit.options()) as client:
        task_id = await start_task(client, 'hello')
        await gate.reached.wait()
        await (await connect(kit)).get_workflow_handle(f'{task_id}.1').terminate()
        gate.opened.set()
        task = await wait_until_ended(client, task_id)
    assert task['status']['message']['metadata']['failure'] == 'engine'


async def test_runs_at_temporal_hold_no_worker_slots(kit: TemporalSetup) -> None:
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


async def test_workflow_code_has_task_but_no_credential(kit: TemporalSetup) -> None:
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


async def test_app_with_wrong_namespace_is_not_ready(kit: TemporalSetup, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(kit.agent(TestModel()), **kit.options(namespace='wrong')) as client:
        assert await readiness(client) == (503, 'ok')
    assert 'Namespace wrong is not found.' in caplog.text


async def test_failed_temporal_worker_is_replaced(kit: TemporalSetup, caplog: pytest.LogCaptureFixture) -> None:
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


async def test_second_app_on_task_queue_is_refused(kit: TemporalSetup, tmp_path: Path) -> None:
    agent = kit.agent(TestModel(custom_output_text='Hi.'))
    other: dict[str, Any] = {**kit.options(), 'backend': f'sqlite:///{tmp_path}/other.db'}
    async with serving_until_handover(agent, **kit.options()):
        refused = to_a2a(agent, **other)
        with pytest.raises(BackendUnusable, match='Another running app of this process has the task queue'):
            async with refused.router.lifespan_context(refused):
                pytest.fail('it has started')
    async with serving_until_handover(agent, **other) as client:
        assert texts(await client.send('hello')) == ['Hi.']


class NotToday(Rejected):
    pass


async def test_tool_may_raise_subclass_of_rejected(kit: TemporalSetup) -> None:
    def decline() -> None:
        raise NotToday('Never.')

    async with serving(kit.agent(TestModel(), tools=[decline]), **kit.options()) as client:
        task = await client.send('hello')
    assert state_of(task) == 'REJECTED'
    assert 'Never.' in str(task)


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    base_url: str


class Narrow(BaseModel):
    name: str


class Wider(Narrow):
    more: int = 1


class Secret(BaseModel):
    word: SecretStr


CHANGED: dict[str, tuple[Any, Any]] = {
    'no data': (Path, Thread()),
    'a subclass': (Narrow, Wider(name='a')),
    'a secret': (Secret, Secret(word=SecretStr('abc'))),
    'a union': (str | Path, Path('a')),
    'no type': (object, Narrow(name='a')),
}


@pytest.mark.parametrize('case', CHANGED)
def test_deps_changed_by_json_are_refused(kit: TemporalSetup, case: str) -> None:
    kind, deps = CHANGED[case]
    with pytest.raises(TypeError, match='passes the dependencies of the agent to activities as JSON'):
        to_a2a(kit.agent(TestModel(), deps_type=kind), deps=deps, **kit.options())


async def test_deps_factory_result_changed_by_json_fails_task(
    kit: TemporalSetup, caplog: pytest.LogCaptureFixture
) -> None:
    agent = kit.agent(TestModel(), deps_type=Narrow)

    def deps(call: CallContext) -> Wider:
        return Wider(name='a')

    async with serving(agent, deps_factory=deps, **kit.options()) as client:
        task = await client.send('hello')
    assert task['status']['message']['metadata']['failure'] == 'internal'
    assert 'Those of type Wider come back changed.' in caplog.text


@pytest.mark.parametrize('option', ['deps', 'deps_factory'])
async def test_deps_with_field_aliases_reach_tools(kit: TemporalSetup, option: str) -> None:
    deps, seen = Camel.model_validate({'baseUrl': 'https://example.com'}), list[Any]()
    agent = kit.agent(TestModel(), deps_type=Camel)

    @agent.tool
    def look(ctx: RunContext[Camel]) -> None:
        seen.append(ctx.deps)

    def make(call: CallContext) -> Camel:
        return deps

    options: dict[str, Any] = {option: deps if option == 'deps' else make}
    async with serving(agent, **options, **kit.options()) as client:
        assert state_of(await client.send('hello')) == 'COMPLETED'
    assert seen == [deps]


class Order(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    net_cents: Annotated[int, AfterValidator(lambda cents: cents * 2)]


async def test_workflow_code_and_tools_read_typed_input(kit: TemporalSetup) -> None:
    seen = list[tuple[str, Any]]()
    agent = kit.agent(TestModel(custom_output_text='Hi.'))

    @agent.instructions
    def instruct(ctx: RunContext[Any]) -> str:
        seen.append(('instructions', a2a(ctx).input(Order)))
        return 'Be kind.'

    @agent.tool(requires_approval=True)
    def pay(ctx: RunContext[Any]) -> None:
        seen.append(('tool', a2a(ctx).input(Order)))

    async with serving(agent, messages=Messages(input_type=Order), **kit.options()) as client:
        task = await client.send(message(parts=[{'data': {'netCents': 5}}]))
        await client.send(answer_message(task, approve(pending_calls(task)[0]['id'])))
    assert {where for where, _ in seen} == {'instructions', 'tool'}
    assert [order.net_cents for _, order in seen] == [10] * len(seen)


def test_temporal_refuses_attempts_option(kit: TemporalSetup) -> None:
    with pytest.raises(TypeError, match='Set maximum_attempts in the retry policy of the capability, or a timeout'):
        to_a2a(kit.agent(TestModel()), workers=Workers(attempts=1), **kit.options())


async def test_dbos_refuses_separate_worker(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r'DBOS has no workers of its own: the servers run the workflows\.'):
        await DBOS(f'sqlite:///{tmp_path}/dbos.db').worker(None)
