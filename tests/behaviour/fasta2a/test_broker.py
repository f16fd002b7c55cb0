"""A user's own FastA2A broker: it carries the operations, and neither it nor a slow task holds up the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from fasta2a.broker import Broker, InMemoryBroker, TaskOperation
from fasta2a.schema import TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Workers, to_a2a
from pydantic_ai_a2a.server.fasta2a import broker_backend

from ...agents import GatedAgent, echo_prompts
from ...app_client import Client, lifespan, message, state_of, texts
from ...serving import list_tasks, serving, wait_until_ended
from ..refusals import BASE_EXCEPTIONS

memory = Agent(FunctionModel(echo_prompts))


class RecordingBroker(InMemoryBroker):
    """FastA2A's broker, which notes what it carries."""

    carried: list[str]

    async def run_task(self, params: TaskSendParams) -> None:
        self.carried = [*getattr(self, 'carried', ()), f'run {params["message"]["parts"][0].get("text")}']
        await super().run_task(params)

    async def cancel_task(self, params: TaskIdParams) -> None:
        self.carried.append('cancel')
        await super().cancel_task(params)


class SharedBroker(Broker):
    """Carries operations between apps that stand for processes; the first that asks gets the next."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    async def __aenter__(self) -> SharedBroker:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def run_task(self, params: TaskSendParams) -> None:
        self.queue.put_nowait({'operation': 'run', 'params': params})

    async def cancel_task(self, params: TaskIdParams) -> None:
        self.queue.put_nowait({'operation': 'cancel', 'params': params})

    async def receive_task_operations(self) -> AsyncIterator[TaskOperation]:
        while True:
            yield await self.queue.get()


class SendingEnd(SharedBroker):
    """The end of a shared broker at which nobody takes anything."""

    def __init__(self, other: SharedBroker) -> None:
        super().__init__()
        self.queue = other.queue

    async def receive_task_operations(self) -> AsyncIterator[TaskOperation]:
        await asyncio.Event().wait()
        raise AssertionError('unreachable')
        yield


async def test_broker_without_storage_carries_run_and_cancel() -> None:
    gates, broker = GatedAgent(), RecordingBroker()
    gates.open('two')
    async with serving(gates.agent, broker=broker) as client:
        task = await client.send('one', returnImmediately=True)
        await gates.reached('one')
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        assert texts(await client.send('two')) == ['two']
    assert broker.carried == ['run one', 'cancel', 'run two']


@pytest.mark.parametrize('parts', [{}, {'storage': InMemoryStorage()}], ids=['alone', 'with a storage'])
async def test_task_waits_until_broker_delivers_its_run(parts: dict[str, Any]) -> None:
    class Holding(SharedBroker):
        """Keeps the first run back."""

        def __init__(self) -> None:
            super().__init__()
            self.held: list[Any] = []

        async def run_task(self, params: TaskSendParams) -> None:
            if self.held:
                await super().run_task(params)
            else:
                self.held.append({'operation': 'run', 'params': params})

    gates, broker = GatedAgent(), Holding()
    gates.open('first', 'second', 'third')
    async with serving(gates.agent, broker=broker, **parts) as client:
        first = await client.send('first', returnImmediately=True)
        await client.send('second')
        await client.send('third')  # a slot was free, and looked for work, in between
        began = [*gates.began]
        broker.queue.put_nowait(broker.held[0])
        assert texts(await wait_until_ended(client, first['id'])) == ['first']
    assert began == ['second', 'third']


async def test_five_tasks_run_concurrently_over_a_broker() -> None:
    together = asyncio.Barrier(5)

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> Any:
        await together.wait()
        return echo_prompts(messages, info)

    agent = Agent(FunctionModel(answer))
    async with serving(agent, broker=InMemoryBroker(), storage=InMemoryStorage()) as client:
        tasks = await asyncio.gather(*(client.send(str(n)) for n in range(5)))
    assert [texts(task) for task in tasks] == [['0'], ['1'], ['2'], ['3'], ['4']]


async def test_tasks_of_a_context_run_in_order() -> None:
    gates = GatedAgent()
    gates.open('one', 'two')
    async with serving(gates.agent, broker=InMemoryBroker(), storage=InMemoryStorage()) as client:
        first = await client.send(message('one', contextId='c'), returnImmediately=True)
        second = await client.send(message('two', contextId='c'), returnImmediately=True)
        tasks = [await wait_until_ended(client, task['id']) for task in (first, second)]
    assert [texts(task) for task in tasks] == [['one'], ['one + two']]


async def test_stream_over_broker_has_text_deltas() -> None:
    agent = Agent(TestModel(custom_output_text='all of it'))
    async with serving(agent, broker=InMemoryBroker()) as client, client.live.send_streaming() as stream:
        events = await stream.rest()
    chunks = [event.result['artifactUpdate'] for event in events if 'artifactUpdate' in event.result]
    *pieces, end = [part['text'] for chunk in chunks for part in chunk['artifact']['parts']]
    assert (''.join(pieces), end) == ('all of it', '')


async def test_agent_override_applies_to_sent_task() -> None:
    async with serving(memory, broker=InMemoryBroker()) as client:
        with memory.override(model=TestModel(custom_output_text='overridden')):
            assert texts(await client.send()) == ['overridden']
        assert texts(await client.send('plain')) == ['plain']


async def test_refusing_broker_prevents_neither_run_nor_cancel(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(InMemoryBroker):
        async def run_task(self, params: TaskSendParams) -> None:
            raise ConnectionError('nobody but the log may read this')

        async def cancel_task(self, params: TaskIdParams) -> None:
            raise ConnectionError('nobody but the log may read this')

    gates = GatedAgent()
    gates.open('one')
    async with serving(gates.agent, broker=Refusing(), storage=InMemoryStorage()) as client:
        assert texts(await client.send('one')) == ['one']
        task = await client.send('two', returnImmediately=True)
        await gates.reached('two')
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
    assert caplog.text.count('nobody but the log may read this') >= 2


@pytest.mark.parametrize('error', [ConnectionError, *BASE_EXCEPTIONS.values()], ids=['error', *BASE_EXCEPTIONS])
async def test_failed_broker_receive_is_retried(
    error: Callable[[], BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(InMemoryBroker):
        failures = 0

        async def receive_task_operations(self) -> AsyncIterator[TaskOperation]:
            self.failures += 1
            if self.failures == 1:
                raise error()
            if self.failures > 2:
                async for operation in super().receive_task_operations():
                    yield operation

    monkeypatch.setattr(broker_backend, 'PAUSE', 0.01)
    async with serving(memory, broker=Failing()) as client:
        assert texts(await client.send('hello')) == ['hello']


async def test_operation_on_unknown_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for storage in (None, InMemoryStorage[list[ModelMessage]]()):
        broker = SharedBroker()
        async with serving(memory, broker=broker, storage=storage) as client:
            await broker.run_task({'id': 'x', 'context_id': 'c', 'message': message_of('hello')})
            await broker.cancel_task({'id': 'x'})
            assert texts(await client.send('hello')) == ['hello']
    assert caplog.text.count('task x') >= 4


async def test_storage_error_in_operation_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    class Unreadable(InMemoryStorage[list[ModelMessage]]):
        async def load_task(self, task_id: str, history_length: int | None = None) -> Any:
            if task_id == 'x':
                raise ConnectionError('nobody but the log may read this')
            return await super().load_task(task_id, history_length)

    broker = SharedBroker()
    async with serving(memory, broker=broker, storage=Unreadable()) as client:
        await broker.cancel_task({'id': 'x'})
        assert texts(await client.send('hello')) == ['hello']
    assert 'An operation of the broker on task x failed and is not repeated.' in caplog.text


async def test_restarted_app_runs_tasks_over_its_broker() -> None:
    app = to_a2a(memory, broker=InMemoryBroker())
    for _ in range(2):
        async with lifespan(app):
            assert texts(await Client(app).send('hello')) == ['hello']


async def test_operations_left_in_broker_run_after_restart() -> None:
    class Sleepy(InMemoryBroker):
        asleep = True

        async def receive_task_operations(self) -> AsyncIterator[TaskOperation]:
            if self.asleep:
                await asyncio.Event().wait()
            async for operation in super().receive_task_operations():
                yield operation

    broker = Sleepy()
    app = to_a2a(memory, broker=broker, storage=InMemoryStorage())
    async with lifespan(app):
        task = await Client(app).send('hello', returnImmediately=True)
    broker.asleep = False
    async with lifespan(app):
        assert texts(await wait_until_ended(Client(app), task['id'])) == ['hello']


async def test_broker_without_storage_keeps_conversations() -> None:
    async with serving(memory, broker=InMemoryBroker()) as client:
        task = await client.send('hello')
        assert [each['id'] for each in await list_tasks(client)] == [task['id']]
        assert await client.a2a_app.conversations().load(task['contextId']) is not None


def message_of(text: str) -> Any:
    return {'role': 'user', 'parts': [{'text': text}], 'message_id': text}


async def test_task_of_second_process_streams_to_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_backend, 'PAUSE', 0.01)
    gates, broker, storage = GatedAgent(), SharedBroker(), InMemoryStorage[list[ModelMessage]]()
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(
            serving(Agent('test'), broker=SendingEnd(broker), storage=storage, workers=Workers(lease=0.03))
        )
        await stack.enter_async_context(serving(gates.agent, broker=broker, storage=storage))
        async with here.send_streaming('one') as stream:
            task = (await anext(stream)).result['task']
            await gates.reached('one')
            await stream.until('TASK_STATE_WORKING')
            gates.open('one')
            events = await stream.rest()
        done = await here.get_task(task['id'])
    assert (state_of(done), texts(done)) == ('COMPLETED', ['one'])
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


@pytest.mark.parametrize('canceler', ['sender', 'third process'])
async def test_cancel_from_another_process_stops_the_run(canceler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_backend, 'PAUSE', 0.01)
    running, stopped = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> Any:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    broker, storage = SharedBroker(), InMemoryStorage[list[ModelMessage]]()
    async with AsyncExitStack() as stack:
        sender, third = [
            await stack.enter_async_context(serving(Agent('test'), broker=SendingEnd(broker), storage=storage))
            for _ in range(2)
        ]
        runner = await stack.enter_async_context(serving(Agent(FunctionModel(answer)), broker=broker, storage=storage))
        task = await sender.send('one', returnImmediately=True)
        await running.wait()
        canceling = sender if canceler == 'sender' else third
        assert state_of(await canceling.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        await stopped.wait()
        assert state_of(await runner.get_task(task['id'])) == 'CANCELED'
    assert storage.tasks[task['id']]['status']['state'] == 'canceled'


async def test_task_deleted_from_storage_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_backend, 'PAUSE', 0.01)
    broker, storage = SendingEnd(SharedBroker()), InMemoryStorage[list[ModelMessage]]()
    async with serving(memory, broker=broker, storage=storage) as client:
        task = await client.send('one', returnImmediately=True)
        del storage.tasks[task['id']]
        await client.send('two', returnImmediately=True)
