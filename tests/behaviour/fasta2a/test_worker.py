"""A user's own FastA2A worker that is no `AgentWorker`: it runs tasks by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fasta2a.event_bus import InMemoryEventBus
from fasta2a.extensions import activated_extensions
from fasta2a.pydantic_ai import AgentWorker as BridgeWorker
from fasta2a.schema import AgentExtension, Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.worker import Worker
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Limits, Workers
from pydantic_ai_a2a.server.fasta2a import worker_job

from ...agents import echo_prompts
from ...app_client import message, state_of, texts
from ...constants import with_constants
from ...serving import serving, wait_until_ended
from ..fasta2a_parts import memory_parts
from ..faulty_queues import StorageError
from ..refusals import error_of_call

agent = Agent(FunctionModel(echo_prompts))


async def test_fasta2a_agent_worker_runs_and_streams() -> None:
    bridge = Agent(TestModel(custom_output_text='hello streaming world'))
    worker = BridgeWorker(agent=bridge, **memory_parts())
    async with serving(bridge, workers=Workers(worker=worker)) as client:
        async with client.send_streaming('hi') as stream:
            events = await stream.rest()
        task = await client.send('hi')
    updates = [event.result['artifactUpdate'] for event in events if 'artifactUpdate' in event.result]
    *chunks, whole = [(update.get('append', False), update['artifact']['parts'][0]['text']) for update in updates]
    assert [append for append, _ in chunks] == [False, *[True] * (len(chunks) - 1)]
    assert ''.join(text for _, text in chunks) == 'hello streaming world'
    assert whole == (False, 'hello streaming world')
    states = [event.result['statusUpdate']['status']['state'] for event in events if 'statusUpdate' in event.result]
    assert states == ['TASK_STATE_WORKING', 'TASK_STATE_COMPLETED']
    assert texts(task) == ['hello streaming world']


class ScriptedWorker(Worker[Any]):
    """Does what the user says."""

    def __init__(self) -> None:
        super().__init__(**memory_parts())
        self.running = asyncio.Event()
        self.gate = asyncio.Event()
        self.cancelled: list[str] = []
        self.params: list[TaskSendParams] = []

    async def run_task(self, params: TaskSendParams) -> None:
        self.params.append(params)
        task_id, context_id, act = params['id'], params['context_id'], params['message']['parts'][0].get('text', '')
        await self.storage.update_task(task_id, 'working')
        if act == 'raise':
            raise StorageError('nobody but the log may read this')
        if act == 'exit':
            raise SystemExit('nobody but the log may read this')
        if act == 'tell':
            note = Message(role='agent', parts=[Part(text='I work.')], message_id='note')
            await self.publish_status(task_id, context_id, 'working')
            await self.publish_status(task_id, context_id, 'working', note)
            await self.broker.event_bus.emit(task_id, {'message': {**note, 'message_id': 'second'}})
            await self.broker.event_bus.emit(task_id, {'task': {}})  # pyright: ignore[reportArgumentType]
            await self.publish_status(task_id, context_id, 'completed')
        if act == 'close':
            await self.broker.event_bus.close(task_id)
        if act in ('wait', 'close', 'defy'):
            self.running.set()
            await self.gate.wait()
        if act == 'hand over':
            self.running.set()
            return
        state = 'input-required' if act == 'ask' else 'completed'
        await self.storage.update_task(task_id, state, [Artifact(artifact_id='a', parts=[Part(text=f'{act} done')])])

    async def cancel_task(self, params: TaskIdParams) -> None:
        self.cancelled.append(params['id'])
        if self.params[-1]['message']['parts'][0].get('text') == 'defy':
            raise StorageError('nobody but the log may read this')

    def build_message_history(self, history: list[Message]) -> list[Any]:
        raise AssertionError('not asked')

    def build_artifacts(self, result: Any) -> list[Artifact]:
        raise AssertionError('not asked')


async def test_stream_ends_when_worker_only_writes_storage() -> None:
    async with (
        serving(agent, workers=Workers(worker=ScriptedWorker())) as client,
        client.send_streaming('act') as stream,
    ):
        events = await stream.rest()
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
    assert events[-2].result['artifactUpdate']['artifact']['parts'][0]['text'] == 'act done'


class Answering(ScriptedWorker):
    """Stores its answer in the history, too."""

    async def run_task(self, params: TaskSendParams) -> None:
        answer = Message(role='agent', parts=[Part(text='done')], message_id='answer')
        artifact = Artifact(artifact_id='a', parts=answer['parts'])
        await self.storage.update_task(params['id'], 'completed', [artifact], [answer])


async def test_answer_of_completed_task_is_no_status() -> None:
    async with serving(agent, workers=Workers(worker=Answering())) as client:
        task = await client.send('act')
    assert (state_of(task), 'message' in task['status'], texts(task)) == ('COMPLETED', False, ['done'])


async def test_worker_gets_task_send_params_of_fasta2a() -> None:
    worker = ScriptedWorker()
    async with serving(agent, workers=Workers(worker=worker)) as client:
        sent = message('act', contextId='c')
        await client.call(
            'SendMessage',
            {'message': sent, 'metadata': {'k': 1}, 'configuration': {'acceptedOutputModes': ['text/plain']}},
        )
    [params] = worker.params
    assert (params['context_id'], params.get('metadata'), params.get('accepted_output_modes')) == (
        'c',
        {'k': 1},
        ['text/plain'],
    )
    assert (params['message'].get('context_id'), params['message'].get('task_id')) == ('c', params['id'])


async def test_worker_finds_activated_extensions_in_params() -> None:
    worker = ScriptedWorker()
    trace = AgentExtension(uri='urn:example:trace')
    async with serving(agent, workers=Workers(worker=worker), extensions=[trace]) as client:
        client.headers['A2A-Extensions'] = 'urn:example:trace, urn:example:other'
        await client.call('SendMessage', {'message': message('act'), 'metadata': {'k': 1}})
        del client.headers['A2A-Extensions']
        await client.send('act')
    assert [activated_extensions(params) for params in worker.params] == [['urn:example:trace'], []]
    assert [params.get('metadata', {}).get('k') for params in worker.params] == [1, None]


async def test_worker_messages_are_relayed_as_status_updates() -> None:
    async with (
        serving(agent, workers=Workers(worker=ScriptedWorker())) as client,
        client.send_streaming('tell') as stream,
    ):
        events = await stream.rest()
    statuses = [event.result['statusUpdate']['status'] for event in events if 'statusUpdate' in event.result]
    told = [status['message']['parts'][0]['text'] for status in statuses if 'message' in status]
    assert (told, len(statuses)) == (['I work.', 'I work.'], 4)


@pytest.mark.parametrize('act', ['raise', 'exit'])
async def test_exception_in_worker_fails_only_its_task(act: str) -> None:
    worker = ScriptedWorker()
    async with serving(agent, workers=Workers(worker=worker)) as client:
        failed, done = await client.send(act), await client.send('act')
    assert (state_of(failed), state_of(done)) == ('FAILED', 'COMPLETED')
    kept = await worker.storage.load_task(failed['id'])
    assert kept is not None
    assert kept['status']['state'] == 'failed'


@pytest.mark.parametrize('act', ['wait', 'close', 'defy'])
async def test_cancel_calls_worker_and_cancels_its_run(act: str) -> None:
    worker = ScriptedWorker()
    async with serving(agent, workers=Workers(worker=worker)) as client:
        task = await client.send(act, returnImmediately=True)
        await worker.running.wait()
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
    kept = await worker.storage.load_task(task['id'])
    assert kept is not None
    assert (worker.cancelled, kept['status']['state']) == ([task['id']], 'canceled')


async def test_task_completes_after_early_event_bus_close() -> None:
    worker = ScriptedWorker()
    async with serving(agent, workers=Workers(worker=worker)) as client:
        task = await client.send('close', returnImmediately=True)
        await worker.running.wait()
        worker.gate.set()
        assert texts(await wait_until_ended(client, task['id'])) == ['close done']


@pytest.mark.parametrize(('is_stored', 'state'), [(True, 'COMPLETED'), (False, 'FAILED')])
async def test_task_run_elsewhere_ends_when_event_bus_closes(is_stored: bool, state: str) -> None:
    worker = ScriptedWorker()
    async with serving(agent, workers=Workers(worker=worker)) as client:
        task = await client.send('hand over', returnImmediately=True)
        await worker.running.wait()
        await asyncio.sleep(0)
        if is_stored:
            await worker.storage.update_task(task['id'], 'completed')
        await worker.broker.event_bus.close(task['id'])
        assert state_of(await wait_until_ended(client, task['id'])) == state


async def test_unclosed_event_bus_does_not_delay_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    class Open(InMemoryEventBus):
        async def close(self, task_id: str) -> None:
            pass

    monkeypatch.setattr(worker_job, 'STOP_TIME', 0.01)
    worker = ScriptedWorker()
    worker.broker.event_bus = Open()
    async with serving(agent, workers=Workers(worker=worker)) as client:
        assert texts(await client.send('tell')) == ['tell done']


async def test_task_run_elsewhere_can_be_canceled() -> None:
    worker = ScriptedWorker()
    async with serving(agent, workers=Workers(worker=worker), limits=with_constants(Limits, cancel_grace=15)) as client:
        task = await client.send('hand over', returnImmediately=True)
        await worker.running.wait()
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
    assert worker.cancelled == [task['id']]


async def test_input_required_task_continues_with_answer() -> None:
    worker = ScriptedWorker()
    async with serving(agent, workers=Workers(worker=worker)) as client:
        asked = await client.send('ask')
        done = await client.send(message('act', taskId=asked['id']))
    assert [state_of(task) for task in (asked, done)] == ['INPUT_REQUIRED', 'COMPLETED']
    assert texts(done) == ['act done']


async def test_message_to_running_task_is_refused() -> None:
    worker = ScriptedWorker()
    async with serving(agent, workers=Workers(worker=worker)) as client:
        task = await client.send('wait', returnImmediately=True)
        await worker.running.wait()
        error = await error_of_call(client.send(message('act', taskId=task['id'])))
        worker.gate.set()
        assert texts(await wait_until_ended(client, task['id'])) == ['wait done']
    assert error.code == -32004
