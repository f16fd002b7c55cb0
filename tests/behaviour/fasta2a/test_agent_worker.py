"""An `AgentWorker` with methods of the user's own, and the storage and broker as the app shows them."""

from __future__ import annotations

from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelMessage,
    ModelRequest,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import TextOutput
from pydantic_ai.profiles import ModelProfile

from pydantic_ai_a2a import AgentWorker, InputRequired, Messages, Results, Workers, to_a2a

from ...agents import GatedAgent, echo_prompts, scripted_model
from ...app_client import Client, RpcError, lifespan, message, state_of, texts
from ...cases import each_case
from ...serving import serving
from ..fasta2a_parts import memory_parts, plain_worker
from ..refusals import error_of_call

agent = Agent(FunctionModel(echo_prompts))


class OwnHistoryAndArtifacts(AgentWorker):
    def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
        before = ModelRequest(parts=[UserPromptPart('Listen')])
        texts = [part.get('text', '').upper() for each in history for part in each['parts']]
        return [before, ModelRequest(parts=[UserPromptPart(text) for text in texts])]

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [Artifact(artifact_id='mine', name='shout', parts=[Part(text=f'{result}!')])]


async def test_overridden_message_history_and_artifacts_take_effect() -> None:
    worker = OwnHistoryAndArtifacts(agent=agent, **memory_parts())
    async with serving(agent, workers=Workers(worker=worker)) as client:
        first = await client.send('hello')
        second = await client.send(message('again', contextId=first['contextId']))
    assert [texts(task) for task in (first, second)] == [['Listen + HELLO!'], ['HELLO + Listen + AGAIN!']]
    [artifact] = first['artifacts']
    assert (artifact['artifactId'], artifact['name']) == (f'{first["id"]}.1.result', 'shout')
    kept = await worker.storage.load_task(first['id'])
    assert kept is not None
    assert kept['status']['state'] == 'completed'


async def test_agent_worker_may_build_no_artifact() -> None:
    class Mute(AgentWorker):
        def build_artifacts(self, result: Any) -> list[Artifact]:
            return [] if result == 'nothing' else [Artifact(artifact_id='x', parts=[])]

    model = FunctionModel(echo_prompts)
    async with serving(agent, workers=Workers(worker=Mute(agent=agent, model=model, **memory_parts()))) as client:
        none, empty = await client.send('nothing'), await client.send('something')
    assert [state_of(task) for task in (none, empty)] == ['COMPLETED', 'COMPLETED']
    assert (none.get('artifacts'), len(empty['artifacts'])) == (None, 1)


async def test_plain_agent_worker_runs_the_agent() -> None:
    typed = Agent(TestModel(custom_output_args=7), output_type=int)
    async with serving(typed, workers=Workers(worker=AgentWorker(agent=typed, **memory_parts()))) as client:
        task = await client.send()
    assert task['artifacts'][0]['parts'][0]['data'] == {'result': 7}


async def test_agent_worker_refuses_message_with_file_url() -> None:
    async with serving(agent, workers=Workers(worker=AgentWorker(agent=agent, **memory_parts()))) as client:
        error = await error_of_call(
            client.send(message(parts=[{'url': 'file:///etc/passwd', 'mediaType': 'text/plain'}]))
        )
    assert error.code == -32602


class Counting(AgentWorker):
    """Runs tasks as every `AgentWorker` does, and notes it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ran: list[str] = []

    async def run_task(self, params: TaskSendParams) -> None:
        self.ran.append(params['id'])
        await super().run_task(params)


async def test_overridden_run_task_runs_tasks() -> None:
    worker = Counting(agent=agent, **memory_parts())
    async with serving(agent, workers=Workers(worker=worker)) as client:
        first = await client.send('one')
        second = await client.send(message('two', contextId=first['contextId']))
        async with client.send_streaming('three') as stream:
            streamed = await stream.rest()
    assert [texts(task) for task in (first, second)] == [['one'], ['one + two']]
    assert streamed[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
    assert worker.ran[:2] == [first['id'], second['id']]
    assert len(worker.ran) == 3


async def test_overridden_run_task_returns_model_files() -> None:
    painter = Agent(
        scripted_model([FilePart(BinaryContent(b'GIF89a', media_type='image/gif')), TextPart('Here it is.')])
    )
    async with serving(painter, workers=Workers(worker=Counting(agent=painter, **memory_parts()))) as client:
        task = await client.send('paint')
    found = [part for artifact in task['artifacts'] for part in artifact['parts']]
    assert [part.get('text') or (part['mediaType'], part['raw']) for part in found] == [
        'Here it is.',
        ('image/gif', 'R0lGODlh'),
    ]


async def test_run_task_may_complete_task_without_agent() -> None:
    class Direct(AgentWorker):
        async def run_task(self, params: TaskSendParams) -> None:
            artifact = Artifact(artifact_id='a', parts=[Part(text='done by hand')])
            await self.storage.update_task(params['id'], 'completed', [artifact])

    async with serving(agent, workers=Workers(worker=Direct(agent=agent, **memory_parts()))) as client:
        assert texts(await client.send('anything')) == ['done by hand']


async def test_overridden_cancel_task_is_called() -> None:
    class Telling(AgentWorker):
        told: list[str]

        async def cancel_task(self, params: TaskIdParams) -> None:
            self.told = [params['id']]
            await super().cancel_task(params)

    gates = GatedAgent()
    worker = Telling(agent=gates.agent, **memory_parts())
    async with serving(gates.agent, workers=Workers(worker=worker)) as client:
        task = await client.send('wait', returnImmediately=True)
        await gates.reached('wait')
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
    kept = await worker.storage.load_task(task['id'])
    assert kept is not None
    assert (worker.told, kept['status']['state']) == ([task['id']], 'canceled')


async def test_overridden_run_task_keeps_media_type_checks() -> None:
    text_only = Agent(FunctionModel(echo_prompts, profile=ModelProfile(supports_image_input=False)))
    worker = Counting(agent=text_only, **memory_parts())
    async with serving(text_only, workers=Workers(worker=worker)) as client:
        for parts_, configuration, code in [
            ([{'raw': 'iVBORw0KGgo=', 'mediaType': 'image/png'}], {}, -32005),
            ([{'url': 'file:///etc/passwd', 'mediaType': 'text/plain'}], {}, -32602),
            ([{'text': 'draw'}], {'acceptedOutputModes': ['image/png']}, -32005),
        ]:
            error = await error_of_call(client.send(message(parts=parts_), **configuration))
            assert error.code == code
    assert worker.ran == []


async def test_overridden_run_task_reports_failure_kind() -> None:
    def fail(messages: list[ModelMessage], info: AgentInfo) -> Any:
        raise ValueError('a secret')

    broken = Agent(FunctionModel(fail))
    async with serving(broken, workers=Workers(worker=Counting(agent=broken, **memory_parts()))) as client:
        task = await client.send()
    assert (state_of(task), task['status']['message']['metadata']['failure']) == ('FAILED', 'internal')
    assert 'secret' not in str(task)


def test_app_with_worker_refuses_steering_and_client_schemas() -> None:
    worker = Counting(agent=agent, **memory_parts())
    with pytest.raises(TypeError, match="while_working='steer' cannot be combined"):
        to_a2a(agent, workers=Workers(worker=worker), messages=Messages(while_working='steer'))
    with pytest.raises(TypeError, match=r'Results\.client_schemas cannot be combined with Workers\.worker'):
        to_a2a(agent, workers=Workers(worker=worker), results=Results(client_schemas=True))


class RecordsHistory(AgentWorker):
    """Notes the messages that it is to read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.read_messages: list[list[str]] = []

    def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
        self.read_messages.append([part.get('text', '') for each in history for part in each['parts']])
        return super().build_message_history(history)


def question(text: str) -> str | InputRequired:
    return text if 'Rome' in text else InputRequired('Where?')


async def test_message_history_is_built_once_per_run() -> None:
    seen: list[list[str]] = []

    def ask(messages: list[ModelMessage], info: AgentInfo) -> Any:
        seen.append(
            [
                str(part.content)
                for each in messages
                for part in each.parts
                if isinstance(part, UserPromptPart | TextPart)
            ]
        )
        return echo_prompts(messages, info)

    asking = Agent(FunctionModel(ask), output_type=TextOutput(question))
    worker = RecordsHistory(agent=asking, **memory_parts())
    async with serving(asking, workers=Workers(worker=worker)) as client:
        before = await client.send(message('Rome', contextId='c'))
        task = await client.send(message('weather', contextId='d'))
        done = await client.send(message('Rome', taskId=task['id']))
        after = await client.send(message('Rome again', contextId='d'))
    assert [state_of(each) for each in (before, task, done, after)] == [
        'COMPLETED',
        'INPUT_REQUIRED',
        'COMPLETED',
        'COMPLETED',
    ]
    assert worker.read_messages == [['Rome'], ['weather'], ['weather', 'Where?', 'Rome'], ['Rome again']]
    assert seen[2] == ['weather', 'Where?', 'Rome']
    assert seen[3] == ['weather', 'weather', 'Rome', 'weather + Rome', 'Rome again']


async def test_message_history_keeps_messages_with_equal_ids() -> None:
    asking = Agent(FunctionModel(echo_prompts), output_type=TextOutput(question))
    worker = RecordsHistory(agent=asking, **memory_parts())
    async with serving(asking, workers=Workers(worker=worker)) as client:
        task = await client.send(message('weather', messageId='m'))
        await client.send(message('Rome', messageId='m', taskId=task['id']))
    assert worker.read_messages == [['weather'], ['weather', 'Where?', 'Rome']]


async def test_message_refused_by_overridden_history_fails_task() -> None:
    worker = RecordsHistory(agent=agent, **memory_parts())
    async with serving(agent, workers=Workers(worker=worker)) as client:
        task = await client.send(message(parts=[{'url': 'file:///etc/passwd', 'mediaType': 'text/plain'}]))
    status = task['status']['message']
    assert (state_of(task), status['metadata']['failure']) == ('FAILED', 'bad-input')
    assert 'history[0].parts[0].url: must be an https URL' in status['parts'][0]['text']


async def test_overridden_history_may_accept_unsupported_media_type() -> None:
    class Describing(AgentWorker):
        def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
            return [ModelRequest(parts=[UserPromptPart(f'a file called {history[-1]["parts"][0].get("filename")}')])]

    text_only = Agent(FunctionModel(echo_prompts, profile=ModelProfile(supports_document_input=False)))
    async with serving(text_only, workers=Workers(worker=Describing(agent=text_only, **memory_parts()))) as client:
        task = await client.send(message(parts=[{'raw': 'AA==', 'mediaType': 'application/x-a', 'filename': 'a.bin'}]))
    assert texts(task) == ['a file called a.bin']


@each_case('kind', [AgentWorker, Counting, RecordsHistory])
async def test_agent_worker_accepts_only_declared_media_types(kind: type[AgentWorker]) -> None:
    worker = kind(agent=agent, **memory_parts())
    modes = ['text/plain', 'application/x-protobuf']
    async with serving(agent, workers=Workers(worker=worker), default_input_modes=modes) as client:
        file = {'raw': 'AA==', 'mediaType': 'application/x-protobuf', 'filename': 'a.bin'}
        task = await client.send(message(parts=[file]))
        assert state_of(task) == 'COMPLETED'
        assert "media_type='application/x-protobuf'" in texts(task)[0]
        with pytest.raises(RpcError, match=r'-32005 .*image/png is not supported\. This agent takes text/plain, '):
            await client.send(message(parts=[{'raw': 'iVBORw0KGgo=', 'mediaType': 'image/png'}]))


async def test_plain_worker_accepts_only_declared_media_types() -> None:
    async with serving(agent, workers=Workers(worker=plain_worker()), default_input_modes=['image/*']) as client:
        for part in ({'text': 'Hi'}, {'raw': 'AA==', 'mediaType': 'application/x-protobuf'}):
            with pytest.raises(RpcError, match=r'-32005 .* is not supported\. This agent takes image/\*'):
                await client.send(message(parts=[part]))


def test_worker_with_different_storage_or_broker_is_refused() -> None:
    worker = AgentWorker(agent=agent, **memory_parts())
    with pytest.raises(ValueError, match='different storage'):
        to_a2a(agent, workers=Workers(worker=worker), storage=InMemoryStorage[Any]())
    with pytest.raises(ValueError, match='different broker'):
        to_a2a(agent, workers=Workers(worker=worker), broker=InMemoryBroker())
    with pytest.raises(ValueError, match='different agent'):
        to_a2a(Agent('test'), workers=Workers(worker=worker))
    assert to_a2a(agent, workers=Workers(worker=worker), storage=worker.storage, broker=worker.broker)


def test_run_options_beside_agent_worker_are_refused() -> None:
    with pytest.raises(TypeError, match=r'to_a2a\(\) takes no deps, model'):
        to_a2a(agent, workers=Workers(worker=AgentWorker(agent=agent, **memory_parts())), model='test', deps=1)


async def test_task_manager_exposes_given_storage_and_broker() -> None:
    own = memory_parts()
    app = to_a2a(agent, **own)
    assert not app.task_manager.is_running
    async with lifespan(app), app.task_manager:
        task = await Client(app).send()
        assert app.task_manager.is_running
        assert await app.task_manager.storage.load_task(task['id']) is not None
    assert (app.task_manager.storage, app.task_manager.broker) == (own['storage'], own['broker'])
    worker = plain_worker()
    assert to_a2a(agent, workers=Workers(worker=worker)).task_manager.storage is worker.storage


def test_task_manager_is_not_running_outside_event_loop() -> None:
    assert not to_a2a(agent, **memory_parts()).task_manager.is_running


async def test_missing_task_manager_error_names_replacement() -> None:
    with pytest.raises(AttributeError, match=r'no task manager, .* no storage= or broker=. Use app\.get_task\(\)'):
        assert to_a2a(Agent(TestModel())).task_manager
    app = to_a2a(agent, storage=InMemoryStorage())
    assert repr(app.task_manager) == 'OwnTaskManager(storage)'
    with pytest.raises(AttributeError, match=r'to_a2a\(\) was given no broker=\. Use app\.get_task\(\)'):
        assert app.task_manager.broker
    with pytest.raises(AttributeError, match='nothing'):
        getattr(app.task_manager, 'nothing')  # noqa: B009 - it has no such attribute
