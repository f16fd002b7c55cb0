"""Tasks as workflows of DBOS, in the process of the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import dbos
import pytest
from cryptography.fernet import Fernet
from fasta2a.storage import InMemoryStorage
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, RunContext
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.exceptions import ModelRateLimitError, RunCancelled
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResult
from starlette.requests import Request

from pydantic_ai_a2a import (
    A2AApp,
    Access,
    BearerAuth,
    CallContext,
    Caller,
    Credential,
    Credentials,
    Messages,
    Progress,
    Results,
    RunFailure,
    Workers,
    a2a,
    to_a2a,
)
from pydantic_ai_a2a.engines.dbos import DBOS, stream_events
from pydantic_ai_a2a.store import WrappedQueue
from pydantic_ai_a2a.store.ports import Checkpoint, Claim, Status
from pydantic_ai_a2a.store.sqlite.backend import SqliteFile, SqliteFileBackend
from pydantic_ai_a2a.types import TaskEvent

from ...client import LIMIT, Client, message, state_of, texts
from ...engines import need_dbos
from ..asking import Tools, answers, approve
from ..stage import ended, heard, serving
from .test_checkpoints import LosesEnds, begun, served


@pytest.fixture
def options(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """The options of an app on the test's files, and an engine of its own."""
    need_dbos()
    return lambda: {
        'backend': f'sqlite:///{tmp_path}/agent.db?synchronous=normal',
        'engine': DBOS(f'sqlite:///{tmp_path}/dbos.db'),
    }


def durable(model: Any, **arguments: Any) -> Agent[Any, Any]:
    return Agent(model, name='agent', capabilities=[DBOSDurability()], **arguments)


async def workflows() -> list[tuple[str, str]]:
    return [(each.workflow_id, each.status) for each in await dbos.DBOS.list_workflows_async()]


async def test_each_run_of_a_task_is_a_workflow_and_none_waits_for_the_client(options: Any) -> None:
    tools = Tools(name='agent', capabilities=[DBOSDurability()])
    async with served(tools.agent, **options()) as client:
        task = await client.send('delete')
        assert await workflows() == [(f'{task["id"]}.1', 'SUCCESS')]
    async with served(tools.agent, **options()) as client:
        done = await client.send(answers(task, approve()))
        assert await workflows() == [(f'{task["id"]}.1', 'SUCCESS'), (f'{task["id"]}.2', 'SUCCESS')]
        assert texts(await client.send(message('hello', contextId=task['contextId']))) == ['delete + hello']
    assert (state_of(task), texts(done)) == ('INPUT_REQUIRED', ['delete + deleted a'])


async def test_text_and_steps_are_streamed_with_the_events_of_the_capability(options: Any) -> None:
    written = asyncio.Event()

    async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        yield 'One, '
        await written.wait()
        yield 'two.'

    agent = Agent(
        FunctionModel(stream_function=write),
        name='agent',
        capabilities=[DBOSDurability(event_stream_handler=stream_events)],
    )
    async with serving(agent, results=Results(stream='mark', interval=0), **options()) as client:
        async with client.send_streaming('hello') as stream:
            _, _, first = [await anext(stream) for _ in range(3)]
            assert first.result['artifactUpdate']['artifact']['parts'][0]['text'] == 'One, '
            written.set()
            *_, last = await stream.rest()
        assert texts(await client.get_task(last.result['statusUpdate']['taskId'])) == ['One, two.']


class City(BaseModel):
    name: str


async def test_tools_hooks_and_dependencies_are_those_of_every_app(options: Any) -> None:
    completed, seen = list[AgentRunResult[Any]](), list[Any]()
    agent = durable(TestModel(custom_output_args={'name': 'Rome'}), output_type=City, deps_type=object)

    @agent.tool
    async def look(ctx: RunContext[Any]) -> str:
        task = a2a(ctx)
        seen.append((task.caller.id, ctx.deps, await task.credential()))
        await task.status('Looking.')
        await task.artifact(BinaryContent(b'map', media_type='image/png'), name='map')
        return 'looked'

    def deps(call: CallContext) -> str:
        return f'deps of {call.caller.id}'

    async def exchange(request: Request, caller: Caller) -> Credential:
        return Credential(value='secret', expires_in=60.0)

    auth = BearerAuth({'key-of-ann-1234567890': 'ann'})
    credentials = Credentials(exchange=exchange, keys=[Fernet.generate_key().decode()])
    async with serving(
        agent,
        auth=auth,
        access=Access(credentials=credentials),
        deps_factory=deps,
        on_complete=completed.append,
        **options(),
    ) as client:
        known = Client(client.app, headers={'Authorization': 'Bearer key-of-ann-1234567890'})
        task = await known.send('hello')
    assert seen == [('ann', 'deps of ann', 'secret')]
    assert [artifact['name'] for artifact in task['artifacts']] == ['map', 'result']
    assert task['artifacts'][1]['parts'][0]['data'] == {'result': {'name': 'Rome'}}
    assert [part['text'] for each in task['history'] for part in each['parts']] == ['hello', 'Looking.']
    assert [result.output for result in completed] == [City(name='Rome')]


async def test_an_end_that_no_server_has_stored_is_read_from_the_engine(options: Any) -> None:
    completed = list[AgentRunResult[Any]]()
    calls = list[int]()

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        calls.append(len(messages))
        return heard(messages, _)

    agent = durable(FunctionModel(answer))
    first = options()
    lost = SqliteFileBackend(SqliteFile.of(first['backend']), 'agent', reader_lag=10**6)
    loses = lost.queue = LosesEnds(lost.queue)
    async with served(agent, **{**first, 'backend': lost}) as client:
        task_id = await begun(client, 'one')
        await loses.asked.wait()
    lost.close()
    async with served(agent, on_complete=completed.append, **options()) as client:
        assert texts(await ended(client, task_id)) == ['one']
        assert texts(await client.send(message('two', contextId='c'))) == ['one + two']
    assert calls == [1, 3]
    assert [(result.output, len(result.all_messages())) for result in completed] == [('one', 2), ('one + two', 4)]


async def test_a_failure_of_the_model_is_that_of_every_app_and_is_not_tried_again(options: Any) -> None:
    failures = list[RunFailure]()

    def fail(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        raise ModelRateLimitError('model', 'busy')

    async with serving(durable(FunctionModel(fail)), on_failure=failures.append, **options()) as client:
        task = await client.send('hello')
        assert [status for _, status in await workflows()] == ['ERROR']
    assert task['status']['message']['metadata']['failure'] == 'provider-busy'
    assert [type(failure.error) for failure in failures] == [ModelRateLimitError]


async def test_a_run_that_takes_too_long_fails_and_its_tool_is_cancelled(options: Any) -> None:
    stopped = asyncio.Event()
    agent = durable(TestModel())

    @agent.tool_plain
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(agent, timeout=0.2, **options()) as client:
        task = await client.send('hello')
    assert (task['status']['message']['metadata']['failure'], stopped.is_set()) == ('timeout', True)


async def test_a_cancel_calls_the_hook_with_the_messages_of_the_run(options: Any) -> None:
    canceled, running = list[RunCancelled](), asyncio.Event()
    agent = durable(TestModel())

    @agent.tool_plain
    async def wait() -> None:
        running.set()
        await asyncio.Event().wait()

    async with serving(agent, on_cancel=canceled.append, **options()) as client:
        task = await client.send('hello', returnImmediately=True)
        await running.wait()
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        assert [status for _, status in await workflows()] == ['SUCCESS']
    assert [len(each.new_messages()) for each in canceled] == [3]


@pytest.mark.parametrize(
    ('told', 'others'),
    [
        ('outlives the process', {'backend': 'memory'}),
        ('storage=, broker= or Workers.worker', {'storage': InMemoryStorage()}),
        ("Use while_working='queue'", {'messages': Messages(while_working='steer')}),
        ('Call them in the tools', {'on_tool_call': print}),
        ('gives no partial outputs', {'results': Results(progress=Progress(partial_data=True))}),
        ('Workers.retries and Workers.retry_on', {'workers': Workers(retries=2)}),
        ("such as DBOS\\(url\\), not 'dbos'", {'engine': 'dbos'}),
    ],
)
def test_what_an_engine_cannot_do_is_refused(options: Any, told: str, others: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=told):
        to_a2a(durable(TestModel()), **{**options(), **others})


def test_an_agent_without_the_capability_of_the_engine_is_refused(options: Any) -> None:
    with pytest.raises(TypeError, match=r'capabilities=\[DBOSDurability\(\)\]'):
        to_a2a(Agent(TestModel()), **options())


async def test_an_agent_that_was_changed_during_a_run_fails_the_task(options: Any) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        running.set()
        await go_on.wait()

    async with served(durable(TestModel(), tools=[wait]), **options()) as client:
        task_id = await begun(client, 'hello')
        await running.wait()
    go_on.set()
    changed = Agent(TestModel(), name='another', tools=[wait], capabilities=[DBOSDurability()])
    async with served(changed, **options()) as client:
        failed = await ended(client, task_id)
    assert failed['status']['message']['metadata']['failure'] == 'changed-agent'


async def test_a_workflow_that_is_cancelled_at_the_engine_fails_its_task(options: Any) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()
    agent = durable(TestModel())

    @agent.tool_plain
    async def wait() -> None:
        running.set()
        await go_on.wait()

    async with serving(agent, **options()) as client:
        task = await client.send('hello', returnImmediately=True)
        await running.wait()
        await dbos.DBOS.cancel_workflow_async(f'{task["id"]}.1')
        go_on.set()
        done = await ended(client, task['id'])
    assert done['status']['message']['metadata']['failure'] == 'engine'


async def test_a_run_that_the_engine_has_forgotten_is_a_dead_letter_and_its_retry_runs_anew(
    options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()
    agent = durable(TestModel(custom_output_text='Done.'))

    @agent.tool_plain
    async def wait() -> None:
        running.set()
        await go_on.wait()

    async with served(agent, **options()) as client:
        task_id = await begun(client, 'hello')
        await running.wait()
    go_on.set()
    caplog.set_level(logging.ERROR)
    first = options()
    async with served(agent, **{**first, 'engine': DBOS(first['engine'].url.replace('dbos', 'empty'))}) as client:
        forgotten = await ended(client, task_id)
        assert isinstance(client.app, A2AApp)
        backend = client.app.backend
        [letter] = await backend.housekeeping.dead_letters()
        await backend.housekeeping.retry(task_id, new_id='again', at=backend.now())
        assert texts(await ended(client, 'again')) == ['Done.']
        assert await workflows() == [('again.1', 'SUCCESS')]
    assert forgotten['status']['message']['metadata']['failure'] == letter.failure == 'storage'
    assert f'DBOS has no workflow {task_id}.1.' in caplog.text


async def test_first_tasks_that_come_together_and_runs_outside_of_tasks_find_the_engine(options: Any) -> None:
    async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        yield 'Hi.'

    capability = DBOSDurability[object](event_stream_handler=stream_events)
    agent = Agent(FunctionModel(stream_function=write), name='agent', capabilities=[capability])
    async with serving(agent, **options()) as client:
        both = await asyncio.gather(client.send('one'), client.send('two'))
        assert [texts(task) for task in both] == [['Hi.'], ['Hi.']]
        assert (await agent.run('three')).output == 'Hi.'
        assert len(await workflows()) == 2


async def test_a_workflow_that_no_task_of_this_process_has_waits(options: Any) -> None:
    async with serving(durable(TestModel()), **options()) as client:
        task = await client.send('hello')
        fork = await dbos.DBOS.fork_workflow_async(f'{task["id"]}.1', 1)
        async with asyncio.timeout(LIMIT):
            while (await fork.get_status()).status == 'ENQUEUED':  # noqa: ASYNC110 - DBOS tells nobody
                await asyncio.sleep(0.01)
        assert (await fork.get_status()).status == 'PENDING'


async def test_apps_of_a_process_share_one_engine_and_a_second_dbos_fails_the_task(
    options: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = options()
    other = {'backend': f'sqlite:///{tmp_path}/other.db', 'engine': DBOS(f'sqlite:///{tmp_path}/another.db')}
    agent = Agent(TestModel(custom_output_text='Hi.'), name='second', capabilities=[DBOSDurability()])
    async with served(durable(TestModel(custom_output_text='Hello.')), **shared) as client:
        assert texts(await client.send('hello')) == ['Hello.']
        async with served(agent, **{**other, 'engine': shared['engine']}) as second:
            assert texts(await second.send('hello')) == ['Hi.']
        assert texts(await client.send('hello')) == ['Hello.']
        async with served(agent, **other) as second:
            assert state_of(await second.send('hello')) == 'FAILED'
    assert 'give all apps the same engine' in caplog.text


async def test_an_agent_for_an_engine_without_the_engine_is_served_with_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(durable(TestModel(custom_output_text='Hi.'))) as client:
        assert texts(await client.send('hello')) == ['Hi.']
    [told] = [line for line in caplog.messages if 'Without engine=' in line]
    assert told.startswith('The agent has the capability DBOSDurability, which acts in workflows only.')


async def test_a_conversation_of_ten_megabytes_goes_on(options: Any) -> None:
    def tell(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f'{len(messages)} ' + 'x' * 2_600_000)])

    async with serving(durable(FunctionModel(tell)), **options()) as client:
        for n in range(5):
            task = await client.send(message('go on', contextId='c'))
            assert texts(task)[0].startswith(f'{2 * n + 1} xx')


class FailsStatuses(WrappedQueue):
    """Stores no status of a tool."""

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        if status is not None:
            raise OSError('The disk is broken.')
        await super().emit(claim, events, status, checkpoint)


async def test_a_store_that_fails_under_a_tool_ends_the_task_and_no_workflow(options: Any) -> None:
    agent = durable(TestModel())

    @agent.tool
    async def tell(ctx: RunContext[Any]) -> None:
        await a2a(ctx).status('Going on.')

    first = options()
    broken = SqliteFileBackend(SqliteFile.of(first['backend']), 'agent', reader_lag=10**6)
    broken.queue = FailsStatuses(broken.queue)
    async with served(agent, **{**first, 'backend': broken}) as client:
        task = await client.send('hello')
        assert await workflows() == [(f'{task["id"]}.1', 'PENDING')]
    broken.close()
    assert task['status']['message']['metadata']['failure'] == 'storage'
