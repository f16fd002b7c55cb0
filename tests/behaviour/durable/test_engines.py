"""Tasks as workflows of each engine, in the process of the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from cryptography.fernet import Fernet
from fasta2a.storage import InMemoryStorage
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, RunContext, Tool
from pydantic_ai.exceptions import ModelRateLimitError, RunCancelled
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResult
from starlette.requests import Request

from pydantic_ai_a2a import (
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
from pydantic_ai_a2a.server.runs.engine_runner import EngineRunner
from pydantic_ai_a2a.server.store.ports import Checkpoint, Claim, Status
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.store import WrappedQueue
from pydantic_ai_a2a.types import TaskEvent

from ...agents import echo_prompts, scripted_model
from ...app_client import Client, message, state_of, texts
from ...engines import EngineSetup, TemporalSetup
from ...serving import serving, wait_until_ended
from ..durable_handover import Gate, LosesTaskAtFinish, serving_until_handover, start_task
from ..pending_calls import ApprovalAgent, answer_message, approve, pending_calls
from .contract.streams import calls, streams


async def test_each_run_is_a_separate_workflow(kit: EngineSetup) -> None:
    tools = ApprovalAgent(name='agent', capabilities=[kit.capability()])
    async with serving_until_handover(tools.agent, **kit.options()) as client:
        task = await client.send('delete')
        assert await kit.workflows() == {f'{task["id"]}.1': 'done'}
    async with serving_until_handover(tools.agent, **kit.options()) as client:
        done = await client.send(answer_message(task, approve()))
        assert await kit.workflows() == {f'{task["id"]}.1': 'done', f'{task["id"]}.2': 'done'}
        assert texts(await client.send(message('hello', contextId=task['contextId']))) == ['delete + hello']
    assert (state_of(task), texts(done)) == ('INPUT_REQUIRED', ['delete + deleted a'])


async def test_timeout_of_runs_holds_at_an_engine(kit: EngineSetup) -> None:
    app = to_a2a(kit.agent(TestModel()), timeout=5, **kit.options())
    assert isinstance(app.at_engine, EngineRunner)
    assert app.at_engine.timeout == 5


async def test_text_is_streamed_while_model_writes(kit: EngineSetup) -> None:
    written = asyncio.Event()

    async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        yield 'One, '
        await written.wait()
        yield 'two.'

    agent = kit.agent(FunctionModel(stream_function=write), streams=True)
    async with serving(agent, results=Results(stream='mark', interval=0), **kit.options()) as client:
        async with client.send_streaming('hello') as stream:
            _, _, first = [await anext(stream) for _ in range(3)]
            assert first.result['artifactUpdate']['artifact']['parts'][0]['text'] == 'One, '
            written.set()
            *_, last = await stream.rest()
        assert texts(await client.get_task(last.result['statusUpdate']['taskId'])) == ['One, two.']


class City(BaseModel):
    name: str


async def test_tools_hooks_deps_and_credentials_work_at_engine(kit: EngineSetup) -> None:
    completed, seen = list[AgentRunResult[Any]](), list[Any]()
    agent = kit.agent(TestModel(custom_output_args={'name': 'Rome'}), output_type=City, deps_type=object)

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
        **kit.options(),
    ) as client:
        known = Client(client.app, headers={'Authorization': 'Bearer key-of-ann-1234567890'})
        task = await known.send('hello')
    assert seen == [('ann', 'deps of ann', 'secret')]
    assert [artifact['name'] for artifact in task['artifacts']] == ['map', 'result']
    assert task['artifacts'][1]['parts'][0]['data'] == {'result': {'name': 'Rome'}}
    assert [part['text'] for each in task['history'] for part in each['parts']] == ['hello', 'Looking.']
    assert [result.output for result in completed] == [City(name='Rome')]
    assert b'hello' not in await kit.history(f'{task["id"]}.1')
    assert b'secret' not in await kit.history(f'{task["id"]}.1')


async def test_context_tasks_run_in_order_and_read_files(kit: EngineSetup) -> None:
    async with serving(kit.agent(FunctionModel(echo_prompts)), **kit.options()) as client:
        parts = [{'text': 'one'}, {'url': 'https://example.com/a.png', 'mediaType': 'image/png'}]
        first = await client.send(message(parts=parts, contextId='c'), returnImmediately=True)
        second = await client.send(message('two', contextId='c'), returnImmediately=True)
        done = [await wait_until_ended(client, task['id']) for task in (first, second)]
    assert "ImageUrl(url='https://example.com/a.png'" in texts(done[0])[0]
    assert texts(done[1])[0].endswith(' + two')


class Plain:
    """Has no schema."""


def plain(city: str) -> Plain:
    return Plain()


@pytest.mark.filterwarnings('ignore:Could not generate return schema')
async def test_output_type_without_schema_is_served(kit: EngineSetup) -> None:
    agent = kit.agent(FunctionModel(echo_prompts), output_type=[str, plain])
    async with serving(agent, **kit.options()) as client:
        assert texts(await client.send('hello')) == ['hello']


async def test_unstored_result_is_read_from_engine(kit: EngineSetup) -> None:
    completed = list[AgentRunResult[Any]]()
    calls = list[int]()

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        calls.append(len(messages))
        return echo_prompts(messages, _)

    agent = kit.agent(FunctionModel(answer))
    first = kit.options()
    lost = SqliteFileBackend(SqliteFile.of(first['backend']), 'agent', reader_lag=10**6)
    loses = lost.queue = LosesTaskAtFinish(lost.queue)
    async with serving_until_handover(agent, **{**first, 'backend': lost}) as client:
        task_id = await start_task(client, 'one')
        await loses.asked.wait()
    lost.close()
    async with serving_until_handover(agent, on_complete=completed.append, **kit.options()) as client:
        assert texts(await wait_until_ended(client, task_id)) == ['one']
        assert texts(await client.send(message('two', contextId='c'))) == ['one + two']
    assert calls == [1, 3]
    assert [(result.output, len(result.all_messages())) for result in completed] == [('one', 2), ('one + two', 4)]


async def test_notes_of_resumed_run_are_stored_once(kit: EngineSetup) -> None:
    gate = Gate()

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        step = 1 + sum(isinstance(message, ModelResponse) for message in messages)
        calls = [ToolCallPart('wait', {})] if step < 3 else []
        return ModelResponse(parts=[TextPart(f'Step {step}.'), *calls])

    agent = kit.agent(FunctionModel(answer), tools=[gate.wait])
    results = Results(progress=Progress(notes=True))
    async with serving_until_handover(agent, results=results, **kit.options()) as client:
        async with client.send_streaming('hello') as stream:
            task_id = (await anext(stream)).result['task']['id']
            while 'Step 1.' not in str(await anext(stream)):
                pass
        await gate.reached.wait()
    gate.opened.set()
    async with serving_until_handover(agent, results=results, **kit.options()) as client:
        done = await wait_until_ended(client, task_id)
    said = [part['text'] for sent in done['history'] for part in sent['parts']]
    assert said == ['hello', 'Step 1.', 'Step 2.', 'Step 3.']


async def test_model_failure_is_reported_and_not_retried(kit: EngineSetup) -> None:
    failures = list[RunFailure]()

    async with serving(
        kit.agent(scripted_model(ModelRateLimitError('model', 'busy'))), on_failure=failures.append, **kit.options()
    ) as client:
        task = await client.send('hello')
        assert [*(await kit.workflows()).values()] == ['failed']
    assert task['status']['message']['metadata']['failure'] == 'provider-busy'
    assert [type(failure.error) for failure in failures] == [kit.error(ModelRateLimitError)]


async def test_on_cancel_gets_messages_of_canceled_run(kit: EngineSetup) -> None:
    canceled, gate = list[RunCancelled](), Gate()
    agent = kit.agent(TestModel(), tools=[gate.wait])
    async with serving(agent, on_cancel=canceled.append, **kit.options()) as client:
        task = await client.send('hello', returnImmediately=True)
        await gate.reached.wait()
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        assert [*(await kit.workflows()).values()] == ['done']
    assert [len(each.new_messages()) for each in canceled] == [3]


@pytest.mark.parametrize(
    ('told', 'others'),
    [
        ('outlive the process', {'backend': 'memory'}),
        ('cannot be combined with storage=, broker= or Workers.worker', {'storage': InMemoryStorage()}),
        ("Use while_working='queue'", {'messages': Messages(while_working='steer')}),
        ('Call them in the tools', {'on_tool_call': print}),
        ('gives no partial outputs', {'results': Results(progress=Progress(partial_data=True))}),
        ('Workers.retries and Workers.retry_on', {'workers': Workers(retries=2)}),
        ("such as DBOS\\(url\\), not 'dbos'", {'engine': 'dbos'}),
    ],
)
def test_options_incompatible_with_engine_are_refused(kit: EngineSetup, told: str, others: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=told):
        to_a2a(kit.agent(TestModel()), **{**kit.options(), **others})


def test_agent_without_durability_capability_is_refused(kit: EngineSetup) -> None:
    with pytest.raises(TypeError, match=rf'with the capability {type(kit.capability()).__name__}: Agent'):
        to_a2a(Agent(TestModel(), name='agent'), **kit.options())


async def test_agent_renamed_during_run_fails_the_task(kit: EngineSetup) -> None:
    gate = Gate()
    async with serving_until_handover(kit.agent(TestModel(), tools=[gate.wait]), **kit.options()) as client:
        task_id = await start_task(client, 'hello')
        await gate.reached.wait()
    gate.opened.set()
    changed = kit.agent(TestModel(), name='another', tools=[gate.wait])
    async with serving_until_handover(changed, **kit.options()) as client:
        failed = await wait_until_ended(client, task_id)
    assert failed['status']['message']['metadata']['failure'] == 'changed-agent'


@pytest.mark.parametrize('change', ['gone', 'parameters'])
async def test_changed_tool_fails_only_temporal_task(
    kit: EngineSetup, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()

    async def wait(seconds: int) -> None:
        pass

    agents = [kit.agent(TestModel(), tools=[tool]) for tool in (gate.wait, wait)]
    if change == 'gone':
        agents[1] = kit.agent(TestModel())
    async with serving_until_handover(agents[0], **kit.options()) as client:
        task_id = await start_task(client, 'hello')
        await gate.reached.wait()
    gate.opened.set()
    caplog.clear()
    async with serving(agents[1], **kit.options()) as client:
        done = await wait_until_ended(client, task_id)
    failed = [record for record in caplog.records if record.levelno >= logging.WARNING]
    if isinstance(kit, TemporalSetup):
        assert done['status']['message']['metadata']['failure'] == 'changed-agent'
        [record] = failed
        assert record.exc_info is None
        assert 'give each version a task_queue' in record.getMessage()
    else:  # the model is told
        assert (state_of(done), failed) == ('COMPLETED', [])


async def test_approved_call_does_not_run_changed_tool(kit: EngineSetup) -> None:
    called = list[str]()

    def delete(path: str) -> None:
        called.append(path)

    def changed(path: str, recursive: bool = True) -> None:
        called.append(path)

    first, second = Tool(delete, requires_approval=True), Tool(changed, name='delete', requires_approval=True)
    async with serving_until_handover(kit.agent(TestModel(), tools=[first]), **kit.options()) as client:
        task = await client.send('hello')
    async with serving_until_handover(kit.agent(TestModel(), tools=[second]), **kit.options()) as client:
        done = await client.send(answer_message(task, approve(pending_calls(task)[0]['id'])))
    assert 'The tool was changed after the call was approved' in texts(done)[0]
    assert called == []


async def test_workflow_canceled_at_engine_fails_its_task(kit: EngineSetup) -> None:
    gate = Gate()
    agent = kit.agent(TestModel(), tools=[gate.wait])
    async with serving(agent, **kit.options()) as client:
        task = await client.send('hello', returnImmediately=True)
        await gate.reached.wait()
        await kit.stop(f'{task["id"]}.1')
        gate.opened.set()
        done = await wait_until_ended(client, task['id'])
    assert done['status']['message']['metadata']['failure'] == 'engine'


async def test_lost_workflow_makes_a_retryable_dead_letter(kit: EngineSetup, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    agent = kit.agent(TestModel(custom_output_text='Done.'), tools=[gate.wait])
    async with serving_until_handover(agent, **kit.options()) as client:
        task_id = await start_task(client, 'hello')
        await gate.reached.wait()
    gate.opened.set()
    caplog.set_level(logging.ERROR)
    async with serving_until_handover(agent, **kit.options(empty=True)) as client:
        forgotten = await wait_until_ended(client, task_id)
        backend = client.a2a_app.backend
        [letter] = await backend.housekeeping.dead_letters()
        await backend.housekeeping.retry(task_id, new_id='again', at=backend.now())
        assert texts(await wait_until_ended(client, 'again')) == ['Done.']
    assert forgotten['status']['message']['metadata']['failure'] == letter.failure == 'storage'
    assert f'has no workflow {task_id}.1.' in caplog.text


async def test_concurrent_first_tasks_and_direct_runs_succeed(kit: EngineSetup) -> None:
    async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        yield 'Hi.'

    agent = kit.agent(FunctionModel(stream_function=write), streams=True)
    async with serving(agent, **kit.options()) as client:
        both = await asyncio.gather(client.send('one'), client.send('two'))
        assert [texts(task) for task in both] == [['Hi.'], ['Hi.']]
        async with agent.run_stream('three') as run:
            assert await run.get_output() == 'Hi.'
        assert len(await kit.workflows()) == 2


async def test_durable_agent_without_engine_is_logged(kit: EngineSetup, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(kit.agent(TestModel(custom_output_text='Hi.'))) as client:
        assert texts(await client.send('hello')) == ['Hi.']
    [told] = [line for line in caplog.messages if 'Without engine=' in line]
    name = type(kit.capability()).__name__
    assert told.startswith(f'The agent has the capability {name}, which acts in workflows only.')


async def test_ten_megabyte_conversation_continues(kit: EngineSetup) -> None:
    def tell(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f'{len(messages)} ' + 'x' * 2_600_000)])

    async with serving(kit.agent(FunctionModel(tell)), **kit.options()) as client:
        for n in range(5):
            task = await client.send(message('go on', contextId='c'))
            assert texts(task)[0].startswith(f'{2 * n + 1} xx')


class SlowNotes(WrappedQueue):
    """Stores what a model says beside its tool calls late, as a busy database would."""

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        if any(b'Looking.' in event.payload for event in events):
            await asyncio.sleep(0.1)
        await super().emit(claim, events, status, checkpoint)


async def test_status_of_tool_is_stored_after_its_call(kit: EngineSetup) -> None:
    agent = kit.agent(streams(['Looking.', calls('tell')], ['Done.']), streams=True)

    @agent.tool
    async def tell(ctx: RunContext[Any]) -> None:
        await a2a(ctx).status('Going on.')

    options = kit.options()
    options['backend'] = slow = SqliteFileBackend(SqliteFile.of(options['backend']), 'agent', reader_lag=10**6)
    slow.queue = SlowNotes(slow.queue)
    options['results'] = Results(stream='mark', interval=0, progress=Progress(notes=True, tools=True))
    async with serving(agent, **options) as client, client.send_streaming('hello') as stream:
        seen = [str(event.result) for event in await stream.rest()]
    slow.close()
    places = [[shown in each for each in seen].index(True) for shown in ("'phase': 'call'", 'Going on.')]
    assert places == sorted(places)


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


async def test_store_error_in_tool_fails_the_task(kit: EngineSetup) -> None:
    agent = kit.agent(TestModel())

    @agent.tool
    async def tell(ctx: RunContext[Any]) -> None:
        await a2a(ctx).status('Going on.')

    first = kit.options()
    broken = SqliteFileBackend(SqliteFile.of(first['backend']), 'agent', reader_lag=10**6)
    broken.queue = FailsStatuses(broken.queue)
    async with serving_until_handover(agent, **{**first, 'backend': broken}) as client:
        task = await client.send('hello')
        assert await kit.workflows() == {f'{task["id"]}.1': kit.after_a_broken_store}
    broken.close()
    assert task['status']['message']['metadata']['failure'] == 'storage'
