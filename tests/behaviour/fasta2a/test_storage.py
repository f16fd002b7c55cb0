"""A user's own FastA2A storage: it has what clients are shown, and knows more after a restart than the process does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import A2AError, Limits, Workers, to_a2a
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...agents import GatedAgent, echo_prompts, user_prompts
from ...app_client import RpcError, message, state_of, texts
from ...constants import with_constants
from ...serving import serving, wait_until_ended
from ..callers import caller_from_header, client_of_caller
from ..fasta2a_parts import FailingStorage, GatedStorage, OwnStorage, storage
from ..refusals import error_of_call

assert storage, 'a fixture'
memory = Agent(FunctionModel(echo_prompts))


async def test_storage_keeps_task_with_artifacts_and_history(storage: OwnStorage) -> None:
    async with serving(Agent(TestModel(custom_output_text='hi there')), storage=storage) as client:
        task = await client.send('hello')
        kept = await storage.load_task(task['id'])
        assert await client.get_task(task['id']) == task
    assert kept is not None
    assert kept['status']['state'] == 'completed'
    assert texts(task) == ['hi there']
    assert [artifact['parts'] for artifact in kept.get('artifacts', ())] == [
        [{'text': 'hi there', 'media_type': 'text/plain'}]
    ]
    said = [(each['role'], each['parts'][0].get('text')) for each in kept.get('history', ())]
    assert said == [('user', 'hello'), ('agent', 'hi there')]


async def test_storage_context_holds_whole_conversation(storage: OwnStorage) -> None:
    async with serving(memory, storage=storage) as client:
        first = await client.send('one')
        second = await client.send(message('two', contextId=first['contextId']))
    assert texts(second) == ['one + two']
    context = await storage.load_context(first['contextId'])
    assert context is not None
    assert (user_prompts(context), [each.kind for each in context]) == (['one', 'two'], ['request', 'response'] * 2)


async def test_task_and_conversation_survive_restart(storage: OwnStorage) -> None:
    async with serving(memory, storage=storage) as client:
        before = await client.send('one')
    async with serving(memory, storage=storage) as client:
        after = await client.get_task(before['id'])
        following = await client.send(message('two', contextId=before['contextId']))
    assert {**after, 'status': before['status']} == before
    assert texts(following) == ['one + two']


async def test_failed_task_has_reason_and_unchanged_context(storage: OwnStorage) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> Any:
        if user_prompts(messages)[-1] == 'fail':
            raise ZeroDivisionError('nobody but the log may read this')
        return echo_prompts(messages, info)

    async with serving(Agent(FunctionModel(answer)), storage=storage) as client:
        first = await client.send('one')
        failed = await client.send(message('fail', contextId=first['contextId']))
        following = await client.send(message('two', contextId=first['contextId']))
    async with serving(memory, storage=storage) as client:
        later = await client.get_task(failed['id'])
    said = 'The agent failed with an internal error.'
    assert (state_of(failed), failed['status']['message']['parts'][0]['text']) == ('FAILED', said)
    assert [each['parts'][0]['text'] for each in failed['history']] == ['fail']
    assert (state_of(later), [each['parts'][0]['text'] for each in later['history']]) == ('FAILED', ['fail', said])
    assert texts(following) == ['one + two']


@pytest.mark.versions('1.0', reason='0.3 does not leave the history out')
async def test_history_length_does_not_truncate_stored_history(storage: OwnStorage) -> None:
    async with serving(memory, storage=storage) as client:
        task = await client.send('one')
        short = await client.get_task(task['id'], historyLength=1)
        none = await client.get_task(task['id'], historyLength=0)
        whole = await client.get_task(task['id'])
    assert short['history'] == task['history'][-1:]
    assert 'history' not in none
    assert whole['history'] == task['history']


async def test_objects_returned_by_storage_are_not_mutated() -> None:
    storage: InMemoryStorage[list[ModelMessage]] = InMemoryStorage()
    async with serving(memory, storage=storage) as client:
        task = await client.send('one')
        kept, context = deepcopy(storage.tasks), deepcopy(storage.contexts)
        given = storage.contexts[task['contextId']]
        await client.get_task(task['id'], historyLength=1)
        assert storage.tasks == kept
        await client.send(message('two', contextId=task['contextId']))
    assert given == context[task['contextId']]


async def test_duplicate_message_creates_a_single_task(storage: OwnStorage) -> None:
    gates = GatedAgent()
    gates.open('hello')
    sent = message('hello')
    async with serving(gates.agent, storage=storage) as client:
        first, second = await asyncio.gather(client.send(sent), client.send(sent))
    assert first == second
    assert gates.began == ['hello']


async def test_message_to_running_task_runs_next(storage: OwnStorage) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, storage=storage) as client:
        done = await gates.run_twice(client)
    assert texts(done) == ['one', 'one + two']
    said = [each['parts'][0]['text'] for each in done['history']]
    assert sorted(said) == ['one', 'one', 'one + two', 'two']


async def test_duplicate_to_running_task_is_stored_once(storage: OwnStorage) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, storage=storage) as client:
        task = await client.send('one', returnImmediately=True)
        await gates.reached('one')
        more = message('two', taskId=task['id'])
        for _ in range(2):
            await client.send(more, returnImmediately=True)
        gates.open('one', 'two')
        done = await wait_until_ended(client, task['id'])
    assert [each['parts'][0]['text'] for each in done['history'] if each['role'] == 'ROLE_USER'] == ['one', 'two']
    assert gates.began == ['one', 'two']


async def test_stream_resumes_after_last_event_id(storage: OwnStorage) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, storage=storage) as client:
        async with client.send_streaming('one') as stream:
            task = (await anext(stream)).result['task']
            last = (await stream.until('TASK_STATE_WORKING'))[-1]
        gates.open('one')
        async with client.subscribe(task['id'], Last_Event_ID=str(last.id)) as stream:
            events = await stream.rest()
    assert [event.id for event in events] == [*range(last.id + 1, last.id + 1 + len(events))]
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


async def test_contexts_run_in_parallel_and_their_tasks_in_order(storage: OwnStorage) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, storage=storage) as client:
        first = await client.send(message('one', contextId='c'), returnImmediately=True)
        second = await client.send(message('two', contextId='c'), returnImmediately=True)
        other = await client.send(message('other', contextId='d'), returnImmediately=True)
        await gates.reached('one', 'other')
        gates.open('one', 'two', 'other')
        tasks = [await wait_until_ended(client, task['id']) for task in (first, second, other)]
    assert [texts(task) for task in tasks] == [['one'], ['one + two'], ['other']]
    assert gates.began.index('one') < gates.began.index('two')


async def test_canceled_task_in_storage_keeps_streamed_text(storage: OwnStorage) -> None:
    stopped = asyncio.Event()

    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'begun'
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(Agent(FunctionModel(echo_prompts, stream_function=write)), storage=storage) as client:
        async with client.live.send_streaming('write') as stream:
            task = (await anext(stream)).result['task']
            async for event in stream:
                if 'artifactUpdate' in event.result:
                    break
            partial = await client.get_task(task['id'])
            async with client.subscribe(task['id']) as late, client.live.subscribe(task['id']) as live:
                snapshots = [(await anext(reader)).result['task'] for reader in (late, live)]
            canceled = await client.call('CancelTask', {'id': task['id']})
            await stream.rest()
        assert stopped.is_set()
    kept = await storage.load_task(task['id'])
    assert kept is not None
    assert (state_of(partial), texts(partial)) == ('WORKING', ['begun'])
    assert [texts(snapshot) for snapshot in snapshots] == [[], ['begun']]
    assert (kept['status']['state'], state_of(canceled), texts(canceled)) == ('canceled', 'CANCELED', ['begun'])


async def test_canceled_queued_task_never_starts(storage: OwnStorage) -> None:
    gates = GatedAgent()
    gates.open('after')
    async with serving(gates.agent, storage=storage, workers=Workers(running=1)) as client:
        running = await client.send('running', returnImmediately=True)
        await gates.reached('running')
        queued = await client.send('queued', returnImmediately=True)
        assert state_of(await client.call('CancelTask', {'id': queued['id']})) == 'CANCELED'
        gates.open('running')
        await wait_until_ended(client, running['id'])
        await client.send('after')
    kept = await storage.load_task(queued['id'])
    assert kept is not None
    assert kept['status']['state'] == 'canceled'
    assert gates.began == ['running', 'after']


async def test_late_result_does_not_overwrite_cancellation() -> None:
    reached, gate = asyncio.Event(), asyncio.Event()

    async def stubborn(messages: list[ModelMessage], info: AgentInfo) -> Any:
        reached.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return echo_prompts(messages, info)

    storage: InMemoryStorage[list[ModelMessage]] = InMemoryStorage()
    agent = Agent(FunctionModel(stubborn))
    async with serving(agent, storage=storage, limits=with_constants(Limits, cancel_grace=0.01)) as client:
        task = await client.send('one', returnImmediately=True)
        await reached.wait()
        canceled = await client.call('CancelTask', {'id': task['id']})
        gate.set()
        await client.send('another')
        after = await client.get_task(task['id'])
    assert (state_of(canceled), state_of(after)) == ('CANCELED', 'CANCELED')
    assert storage.tasks[task['id']]['status']['state'] == 'canceled'


async def test_task_ended_in_storage_is_not_overwritten() -> None:
    gates = GatedAgent()
    storage: InMemoryStorage[list[ModelMessage]] = InMemoryStorage()
    async with serving(gates.agent, storage=storage) as client:
        sending = asyncio.ensure_future(client.send('one'))
        await gates.reached('one')
        [task_id] = storage.tasks
        await storage.update_task(task_id, 'canceled')
        gates.open('one')
        assert state_of(await sending) == 'CANCELED'
    assert 'artifacts' not in storage.tasks[task_id]


@pytest.mark.parametrize('state', ['working', 'completed'])
async def test_storage_error_fails_only_its_task(state: Any) -> None:
    async with serving(memory, storage=FailingStorage(state)) as client:
        failed = await client.send('one')
        following = await client.send('two')
    assert (state_of(failed), state_of(following)) == ('FAILED', 'COMPLETED')
    assert 'nobody' not in str(failed)


async def test_task_with_unloadable_context_fails() -> None:
    async with serving(memory, storage=FailingStorage(context='broken')) as client:
        failed = await client.send(message('one', contextId='broken'))
        following = await client.send('two')
    assert (state_of(failed), state_of(following)) == ('FAILED', 'COMPLETED')


async def test_slow_claim_does_not_exceed_worker_slots() -> None:
    gates, slow = GatedAgent(), GatedStorage('working')
    slow.gate.set()
    async with serving(gates.agent, storage=slow, workers=Workers(running=1)) as client:
        for name in ('one', 'two'):
            await client.send(name, returnImmediately=True)
        await gates.reached('one')
        slow.reached.clear()
        slow.gate.clear()
        gates.open('one')
        await slow.reached.wait()
        third = await client.send('three', returnImmediately=True)
        slow.gate.set()
        await gates.reached('two')
        assert state_of(await client.get_task(third['id'])) == 'SUBMITTED'
        assert gates.began == ['one', 'two']
        gates.open('two', 'three')
        assert state_of(await wait_until_ended(client, third['id'])) == 'COMPLETED'


async def test_message_to_full_queue_is_not_stored() -> None:
    gates, storage = GatedAgent(), InMemoryStorage[list[ModelMessage]]()
    options: dict[str, Any] = {'limits': Limits(queue=1), 'workers': Workers(running=1), 'drain_grace': 0.01}
    async with serving(gates.agent, storage=storage, **options) as client:
        await client.send('running', returnImmediately=True)
        await gates.reached('running')
        await client.send('queued', returnImmediately=True)
        assert (await error_of_call(client.send('one more'))).code == -32000
        assert len(storage.tasks) == 2


async def test_task_and_context_stay_private_to_caller(storage: OwnStorage) -> None:
    async with serving(memory, storage=storage, auth=caller_from_header) as client:
        ann, bob, nobody = (client_of_caller(client.app, name) for name in ('ann', 'bob', '/'))
        anns = await ann.send(message('i am ann', contextId='c'))
        bobs = await bob.send(message('i am bob', contextId='c'))
        theirs = await nobody.send(message('i am nobody', contextId='c'))
        forged = await nobody.send(message('let me in', contextId='pydantic_ai_a2a:/ann:c'))
    async with serving(memory, storage=storage, auth=caller_from_header) as client:
        ann, bob, nobody = (client_of_caller(client.app, name) for name in ('ann', 'bob', '/'))
        for stranger in (bob, nobody):
            assert (await error_of_call(stranger.get_task(anns['id']))).code == -32001
            assert (await error_of_call(stranger.call('CancelTask', {'id': anns['id']}))).code == -32001
            assert (await error_of_call(stranger.send(message('go on', taskId=anns['id'])))).code == -32001
        mine = await ann.get_task(anns['id'])
        going_on = await ann.send(message('who am i?', contextId='c'))
    assert {**mine, 'status': anns['status']} == anns
    assert [texts(task) for task in (bobs, theirs, forged)] == [['i am bob'], ['i am nobody'], ['let me in']]
    assert (forged['contextId'], texts(going_on)) == ('pydantic_ai_a2a:/ann:c', ['i am ann + who am i?'])


async def test_task_known_only_to_storage_cannot_be_continued(storage: OwnStorage) -> None:
    left = await storage.submit_task('c', {'role': 'user', 'parts': [{'text': 'hi'}], 'message_id': 'm'})
    async with serving(memory, storage=storage) as client:
        assert state_of(await client.get_task(left['id'])) == 'SUBMITTED'
        assert (await error_of_call(client.send(message('go on', taskId=left['id'])))).code == -32004
        assert (await error_of_call(client.send(message('go on', taskId=left['id'], contextId='d')))).code == -32602
        with pytest.raises(RpcError) as subscribing:
            async with client.subscribe(left['id']):
                raise AssertionError('there is nothing to read')
        assert subscribing.value.code == -32004
        canceled = await client.call('CancelTask', {'id': left['id']})
        assert state_of(canceled) == 'CANCELED'
        assert (await error_of_call(client.call('CancelTask', {'id': left['id']}))).code == -32002
        assert (await error_of_call(client.send(message('go on', taskId=left['id'])))).code == -32004
        assert (await error_of_call(client.send(message('go on', taskId='unknown')))).code == -32001
        assert (await error_of_call(client.call('CancelTask', {'id': 'unknown'}))).code == -32001


async def test_operations_unsupported_by_fasta2a_storage_are_refused(storage: OwnStorage) -> None:
    async with serving(memory, storage=storage) as client:
        task = await client.send()
        app = client.a2a_app
        for call in (app.list_tasks(), app.erase_task(task['id']), app.erase_context('c')):
            with pytest.raises(A2AError, match='FastA2A storage cannot'):
                await call
        with pytest.raises(A2AError, match='FastA2A storage cannot'):
            app.conversations()
        assert (await app.get_task(task['id']))['status']['state'] == 'completed'


@pytest.mark.versions('1.0', reason='0.3 has no such operation')
async def test_list_tasks_is_unsupported(storage: OwnStorage) -> None:
    async with serving(memory, storage=storage) as client:
        assert (await error_of_call(client.call('ListTasks', {}))).code == -32004


async def test_stream_reports_completion_only_once_stored() -> None:
    slow = GatedStorage('completed')
    async with serving(memory, storage=slow) as client, client.send_streaming('one') as stream:
        task = (await anext(stream)).result['task']
        await slow.reached.wait()
        assert state_of(await client.get_task(task['id'])) == 'WORKING'
        slow.gate.set()
        events = await stream.rest()
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


@pytest.mark.parametrize('backend', ['sqlite:///agent.db', MemoryBackend('agent', reader_lag=1000)])
def test_storage_cannot_be_combined_with_backend(backend: Any) -> None:
    with pytest.raises(TypeError, match='backend= cannot be combined'):
        to_a2a(memory, backend=backend, storage=InMemoryStorage())
