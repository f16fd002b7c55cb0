"""An agent as a worker in a plain FastA2A app, called by FastA2A's own client, whose tests' shapes it keeps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fasta2a import FastA2A
from fasta2a.broker import InMemoryBroker
from fasta2a.client import A2AClient
from fasta2a.schema import Artifact, Message, Part, StreamResponse, Task, TaskSendParams, TaskState
from fasta2a.storage import InMemoryStorage
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryImage,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import AgentWorker

from ...agents import GatedAgent, call_output_tool, echo_prompts, scripted_model, user_prompts
from ...app_client import LIMIT

Storage = InMemoryStorage[list[ModelMessage]]


class NotifyingStorage(Storage):
    """FastA2A's storage, which tells when a task has reached a state."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, TaskState]] = []
        """The states of tasks, in the order in which they were written."""
        self._changed = asyncio.Condition()

    async def update_task(self, task_id: str, state: TaskState, *args: Any, **kwargs: Any) -> Task:
        self.written.append((task_id, state))
        task = await super().update_task(task_id, state, *args, **kwargs)
        async with self._changed:
            self._changed.notify_all()
        return task

    async def reached(self, task_id: str, *states: TaskState) -> Task:
        async with self._changed:
            await self._changed.wait_for(lambda: self.tasks[task_id]['status']['state'] in states)
        return self.tasks[task_id]


@dataclass
class RunningApp:
    """A plain FastA2A app while it runs."""

    client: A2AClient
    storage: NotifyingStorage
    worker: AgentWorker

    async def send(self, text: str = 'hello', **fields: Any) -> Task:
        response = await self.client.send_message(user_message(text, **fields))
        assert 'result' in response
        assert 'task' in response['result']
        return response['result']['task']

    async def done(self, task_id: str) -> Task:
        return await self.storage.reached(task_id, 'completed', 'failed', 'canceled')

    async def stream(self, text: str = 'hello') -> list[StreamResponse]:
        responses = self.client.stream_message(user_message(text))
        return [response['result'] async for response in responses if 'result' in response]


def user_message(text: str, **fields: Any) -> Message:
    message = Message(role='user', parts=[Part(text=text)], message_id=str(uuid4()))
    message.update(fields)  # pyright: ignore[reportCallIssue, reportArgumentType] - of a TypedDict's keys
    return message


@asynccontextmanager
async def serving(agent: Agent[Any, Any], make: Any = AgentWorker, **options: Any) -> AsyncGenerator[RunningApp]:
    storage, broker = NotifyingStorage(), InMemoryBroker()
    worker = make(agent=agent, broker=broker, storage=storage, **options)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncGenerator[None]:
        async with app.task_manager, agent, worker.run():
            yield

    app = FastA2A(storage=storage, broker=broker, lifespan=lifespan)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app))
    async with asyncio.timeout(LIMIT), app.router.lifespan_context(app), http:
        yield RunningApp(A2AClient(http_client=http), storage, worker)


def texts(task: Task) -> list[str]:
    return [part['text'] for artifact in task.get('artifacts', ()) for part in artifact['parts'] if 'text' in part]


async def test_data_artifact_has_shape_of_fasta2a() -> None:
    async with serving(
        Agent(scripted_model(call_output_tool(response=['foo', 'bar'])), output_type=tuple[str, str])
    ) as served:
        submitted = await served.send('Hello, world!')
        await served.done(submitted['id'])
        response = await served.client.get_task(submitted['id'])
    assert submitted['status']['state'] == 'submitted'
    assert 'result' in response
    task: dict[str, Any] = {**response['result']}
    assert (task.pop('id'), task.pop('context_id')) == (submitted['id'], submitted['context_id'])
    assert task.pop('status')['state'] == 'completed'
    [artifact] = task.pop('artifacts')
    assert {**artifact, 'artifact_id': '...'} == snapshot(
        {
            'artifact_id': '...',
            'name': 'result',
            'parts': [
                {
                    'metadata': {
                        'json_schema': {
                            'type': 'array',
                            'prefixItems': [{'type': 'string'}, {'type': 'string'}],
                            'minItems': 2,
                            'maxItems': 2,
                        }
                    },
                    'data': {'result': ['foo', 'bar']},
                }
            ],
        }
    )
    [message] = task.pop('history')
    assert (message['role'], message['parts'], task) == ('user', [{'text': 'Hello, world!'}], {})


async def test_answer_streams_as_chunks_then_whole_artifact() -> None:
    async with serving(Agent(TestModel(custom_output_text='hello streaming world'))) as served:
        events = await served.stream()
    assert 'task' in events[0]
    assert events[0]['task']['status']['state'] == 'submitted'
    states = [event['status_update']['status']['state'] for event in events if 'status_update' in event]
    assert states == ['working', 'completed']
    *chunks, final = [event['artifact_update'] for event in events if 'artifact_update' in event]
    assert all((chunk.get('append'), chunk.get('last_chunk')) == (True, False) for chunk in chunks)
    assert ''.join(part.get('text', '') for chunk in chunks for part in chunk['artifact']['parts']) == (
        'hello streaming world'
    )
    assert (final.get('append'), final.get('last_chunk')) == (False, True)
    assert final['artifact']['parts'] == [{'text': 'hello streaming world'}]
    assert {chunk['artifact']['artifact_id'] for chunk in chunks} == {final['artifact']['artifact_id']}


async def test_model_without_streaming_sends_only_whole_artifact() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as served:
        events = await served.stream('plain answer')
    chunks = [event['artifact_update'] for event in events if 'artifact_update' in event]
    assert [(chunk.get('append'), chunk['artifact']['parts']) for chunk in chunks] == [
        (False, [{'text': 'plain answer'}])
    ]
    assert 'status_update' in events[-1]
    assert events[-1]['status_update']['status']['state'] == 'completed'


async def test_text_before_tool_call_becomes_status_message() -> None:
    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield 'I look it up.'
            yield {1: DeltaToolCall('look_up', '{}', tool_call_id='call')}
        else:
            yield 'It is 42.'

    agent = Agent(FunctionModel(stream_function=write))
    agent.tool_plain(name='look_up')(lambda: 42)
    async with serving(agent) as served:
        events = await served.stream()
    updates = [event['artifact_update'] for event in events if 'artifact_update' in event]
    assert [(update.get('append'), update['artifact']['parts'][0].get('text')) for update in updates] == [
        (True, 'I look it up.'),
        (False, 'It is 42.'),
        (False, 'It is 42.'),
    ]
    statuses = [event['status_update']['status'] for event in events if 'status_update' in event]
    said = [part.get('text') for status in statuses if 'message' in status for part in status['message']['parts']]
    assert said == ['I look it up.']


async def test_five_tasks_run_at_once() -> None:
    together = asyncio.Barrier(5)

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await together.wait()
        return echo_prompts(messages, info)

    async with serving(Agent(FunctionModel(answer))) as served:
        sent = [await served.send(str(n)) for n in range(5)]
        tasks = [await served.done(task['id']) for task in sent]
    assert [texts(task) for task in tasks] == [['0'], ['1'], ['2'], ['3'], ['4']]


async def test_tasks_of_context_share_conversation_in_order() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as served:
        first = await served.send('one', context_id='c')
        second = await served.send('two', context_id='c')
        await gates.reached('one')
        gates.open('one', 'two')
        tasks = [await served.done(task['id']) for task in (first, second)]
    assert [texts(task) for task in tasks] == [['one'], ['one + two']]
    assert gates.began == ['one', 'two']
    context = served.storage.contexts['c']
    assert (user_prompts(context), [each.kind for each in context]) == (['one', 'two'], ['request', 'response'] * 2)


async def test_answer_is_in_history_as_agent_message() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as served:
        task = await served.done((await served.send('hello'))['id'])
    said = [(each['role'], each['parts']) for each in task.get('history', ())]
    assert said == [('user', [{'text': 'hello'}]), ('agent', [{'text': 'hello'}])]


async def test_system_prompt_of_agent_reaches_model() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        systems = [part.content for each in messages for part in each.parts if isinstance(part, SystemPromptPart)]
        return ModelResponse(parts=[TextPart(' + '.join(systems))])

    async with serving(Agent(FunctionModel(answer), system_prompt='Be fun!')) as served:
        task = await served.done((await served.send())['id'])
    assert texts(task) == ['Be fun!']


async def test_canceling_running_task_stops_its_async_tools() -> None:
    running, stopped = asyncio.Event(), asyncio.Event()
    agent = Agent(TestModel())

    @agent.tool_plain
    async def wait() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(agent) as served:
        task = await served.send(context_id='c')
        await running.wait()
        await served.worker.broker.cancel_task({'id': task['id']})
        canceled = await served.done(task['id'])
        assert stopped.is_set()
    assert canceled['status']['state'] == 'canceled'
    assert user_prompts(served.storage.contexts['c']) == ['hello']


async def test_task_canceled_while_context_is_busy_never_starts() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as served:
        first = await served.send('one', context_id='c')
        await gates.reached('one')
        second = await served.send('two', context_id='c')
        await served.worker.broker.cancel_task({'id': second['id']})
        gates.open('one', 'two')
        tasks = [await served.done(task['id']) for task in (first, second)]
        written = [state for task_id, state in served.storage.written if task_id == second['id']]
    assert [task['status']['state'] for task in tasks] == ['completed', 'canceled']
    assert (gates.began, written) == (['one'], ['canceled'])


async def test_cancel_ends_submitted_task_and_ignores_ended_task() -> None:
    async with serving(Agent('test')) as served:
        ended = await served.done((await served.send())['id'])
        waiting = await served.storage.submit_task('c', user_message('hello'))
        for task_id in (ended['id'], waiting['id'], 'unknown'):
            await served.worker.cancel_task({'id': task_id})
        states = [served.storage.tasks[task['id']]['status']['state'] for task in (ended, waiting)]
    assert states == ['completed', 'canceled']


class Panic(BaseException):
    """What compiled code raises; no `Exception`."""


async def test_failure_message_is_general_and_details_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if user_prompts(messages) == ['exit']:
            raise Panic('nobody but the log may read this')
        if user_prompts(messages) == ['cancel']:
            raise asyncio.CancelledError
        return echo_prompts(messages, info)

    async with serving(Agent(FunctionModel(answer))) as served:
        events = await served.stream('exit')
        cancelled = await served.done((await served.send('cancel'))['id'])
        following = await served.done((await served.send('hello'))['id'])
    assert 'status_update' in events[-1]
    status = events[-1]['status_update']['status']
    assert status['state'] == 'failed'
    assert 'message' in status
    assert status['message']['parts'] == [{'text': 'The agent failed with an internal error.'}]
    assert (cancelled['status']['state'], texts(following)) == ('failed', ['hello'])
    assert 'nobody but the log may read this' in caplog.text


async def test_unreadable_message_fails_with_name_of_invalid_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Agent('test')) as served:
        sent = await served.send(parts=[Part(url='file:///etc/passwd')])
        failed = await served.done(sent['id'])
    reason = failed.get('history', [])[-1]
    assert failed['status']['state'] == 'failed'
    assert reason['parts'] == [{'text': 'Invalid parameters: history[0].parts[0].url: must be an https URL'}]
    assert reason.get('metadata') == {'failure': 'bad-input', 'correlationId': sent['id']}
    assert 'Traceback' not in caplog.text


async def test_generator_exit_in_run_fails_task() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise GeneratorExit

    async with serving(Agent(FunctionModel(answer))) as served:
        failed = await served.done((await served.send('hello'))['id'])
    assert failed['status']['state'] == 'failed'


async def test_keyboard_interrupt_in_run_propagates() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise KeyboardInterrupt

    storage = Storage()
    worker = AgentWorker(agent=Agent(FunctionModel(answer)), broker=InMemoryBroker(), storage=storage)
    task = await storage.submit_task('c', user_message('hello'))
    with pytest.raises(KeyboardInterrupt):
        await worker.run_task(TaskSendParams(id=task['id'], context_id='c', message=user_message('hello')))


class FailingContextStorage(Storage):
    """Has no room for the context of a run."""

    async def update_context(self, context_id: str, context: list[ModelMessage]) -> None:
        raise OSError('SECRET: no space left')


async def test_storage_failure_is_reported_as_storage_failure() -> None:
    storage = FailingContextStorage()
    worker = AgentWorker(agent=Agent('test'), broker=InMemoryBroker(), storage=storage)
    task = await storage.submit_task('c', user_message('hello'))
    await worker.run_task(TaskSendParams(id=task['id'], context_id='c', message=user_message('hello')))
    reason = storage.tasks[task['id']].get('history', [])[-1]
    assert reason['parts'] == [{'text': 'The store of the server failed.'}]
    assert reason.get('metadata') == {'failure': 'storage', 'correlationId': task['id']}


async def test_file_output_keeps_media_type() -> None:
    def draw() -> list[BinaryImage | ImageUrl]:
        drawing = BinaryImage(b'png', media_type='image/png', identifier='drawing')
        return [drawing, ImageUrl('https://example.com/a.png')]

    async with serving(Agent(TestModel(), output_type=draw)) as served:
        task = await served.done((await served.send())['id'])
    assert [part for each in task.get('artifacts', ()) for part in each['parts']] == [
        {'raw': 'cG5n', 'media_type': 'image/png', 'filename': 'drawing.png'},
        {'url': 'https://example.com/a.png', 'media_type': 'image/png'},
    ]


async def test_run_exceeding_timeout_fails_task() -> None:
    agent = Agent(TestModel())

    @agent.tool_plain
    async def wait() -> None:
        await asyncio.Event().wait()

    async with serving(agent, timeout=0.01) as served:
        task = await served.done((await served.send())['id'])
    assert task['status']['state'] == 'failed'
    assert task.get('history', [])[-1]['parts'] == [{'text': 'The task ran out of time.'}]


async def test_shutdown_fails_running_task() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as served:
        task = await served.send('one')
        await gates.reached('one')
    kept = served.storage.tasks[task['id']]
    assert kept['status']['state'] == 'failed'
    assert kept.get('history', [])[-1]['parts'] == [{'text': 'The server shut down before the task was done.'}]


async def test_run_of_ended_or_unknown_task_is_refused() -> None:
    async with serving(Agent('test')) as served:
        task = await served.done((await served.send())['id'])
        for task_id in (task['id'], 'unknown'):
            params = TaskSendParams(id=task_id, context_id='c', message=user_message('again'))
            with pytest.raises(ValueError, match=r'not found|already been processed'):
                await served.worker.run_task(params)


async def test_worker_survives_task_missing_in_storage(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test')) as served:
        await served.worker.broker.run_task(TaskSendParams(id='unknown', context_id='c', message=user_message('hello')))
        task = await served.done((await served.send())['id'])
    assert task['status']['state'] == 'completed'
    assert 'The storage failed, so task unknown may stay without an end' in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR


class CustomHistoryWorker(AgentWorker):
    """Reads and builds in its own way."""

    def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
        prompt = [UserPromptPart(part.get('text', '')) for each in history for part in each['parts']]
        return [
            ModelRequest(parts=[UserPromptPart('before')]),
            ModelRequest(parts=[SystemPromptPart('rule'), *prompt, UserPromptPart(['and', 'more'])]),
        ]

    def build_artifacts(self, result: Any) -> list[Artifact]:
        built = super().build_artifacts(result)
        return [{**built[0], 'name': 'mine'}, Artifact(artifact_id='second', parts=[Part(data={'n': 2})])]


async def test_subclass_can_override_message_history_and_artifacts() -> None:
    seen: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(messages)
        return ModelResponse(parts=[TextPart('ok')])

    async with serving(Agent(FunctionModel(answer)), make=CustomHistoryWorker) as served:
        task = await served.done((await served.send('now', context_id='c'))['id'])
    assert _contents(seen[0]) == ['before', '<system>rule</system>', ['now', 'and', 'more']]
    assert [(each.get('name'), each['parts']) for each in task.get('artifacts', ())] == [
        ('mine', [{'text': 'ok'}]),
        (None, [{'data': {'n': 2}}]),
    ]
    assert _contents(served.storage.contexts['c']) == [['now', 'and', 'more']]


class TextArtifactWorker(AgentWorker):
    """Writes numbers in its own way."""

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [Artifact(artifact_id='a', parts=[Part(text=f'{result}')])]


@pytest.mark.parametrize(
    ('make', 'requests', 'part'),
    [(AgentWorker, 2, {'data': {'result': 1.5}}), (TextArtifactWorker, 1, {'text': 'nan'})],
)
async def test_nan_output_is_retried_unless_subclass_builds_artifacts(
    make: type[AgentWorker], requests: int, part: Part
) -> None:
    values = iter(['NaN', '1.5'])

    def measure(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, f'{{"response": {next(values)}}}')])

    async with serving(Agent(FunctionModel(measure), output_type=float), make=make) as served:
        task = await served.done((await served.send('now'))['id'])
    parts = [each for artifact in task.get('artifacts', ()) for each in artifact['parts']]
    assert [{name: each.get(name) for name in part} for each in parts] == [part]
    assert len([*values]) == 2 - requests


def _contents(messages: list[ModelMessage]) -> list[Any]:
    """What users and systems said."""
    parts = [part for each in messages for part in each.parts]
    return [part.content for part in parts if isinstance(part, (UserPromptPart, SystemPromptPart))]


async def test_message_history_without_user_prompt_fails_task() -> None:
    class Silent(AgentWorker):
        def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
            return [ModelResponse(parts=[TextPart('nothing')])]

    async with serving(Agent('test'), make=Silent) as served:
        task = await served.done((await served.send())['id'])
    assert task['status']['state'] == 'failed'


async def test_dataclass_can_inherit_from_agent_worker() -> None:
    @dataclass
    class Named(AgentWorker):
        name: str

    worker = Named(broker=InMemoryBroker(), storage=Storage(), agent=Agent('test'), name='ann')
    task = await worker.storage.submit_task('c', user_message('hello'))
    await worker.run_task(TaskSendParams(id=task['id'], context_id='c', message=user_message('hello')))
    assert (worker.name, worker.options, texts(task)) == ('ann', {}, ['success (no tool calls)'])


async def test_accepted_output_modes_of_client_are_honoured() -> None:
    async with serving(Agent(TestModel(custom_output_text='plain'))) as served:
        task = await served.storage.submit_task('c', user_message('hello'))
        params = TaskSendParams(id=task['id'], context_id='c', message=user_message('hello'))
        await served.worker.run_task({**params, 'accepted_output_modes': ['application/json']})
    assert [part.get('data') for each in task.get('artifacts', ()) for part in each['parts']] == [{'result': 'plain'}]


def test_agent_worker_refuses_message_history_option() -> None:
    with pytest.raises(TypeError, match='message_history'):
        AgentWorker(
            agent=Agent('test'),
            broker=InMemoryBroker(),
            storage=Storage(),
            message_history=[],  # pyright: ignore[reportCallIssue]
        )
