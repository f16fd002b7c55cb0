"""Runs and stores that fail: what the client is told, what the log says, what stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Results, Workers
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Checkpoint, Claim, Finish, Status
from pydantic_ai_a2a.server.store.sql.conversations import SqlConversationStore
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.store import WrappedQueue
from pydantic_ai_a2a.types import TaskEvent

from ...agents import echo_prompts, user_prompts
from ...app_client import message, state_of, texts
from ...dialects import current_dialect
from ...serving import serving
from ..faulty_queues import StorageError
from ..promised_behaviours import covers

SECRET = 'postgres://admin:hunter2@db'


def fail_on_request(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that fails when it is asked to."""
    if user_prompts(messages)[-1] == 'fail':
        raise RuntimeError(SECRET)
    return echo_prompts(messages, info)


def failure(task: dict[str, Any]) -> str:
    assert state_of(task) == 'FAILED'
    return task['status']['message']['metadata']['failure']


@covers('failed run')
async def test_failed_run_hides_error_and_gives_correlation_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Agent(FunctionModel(fail_on_request))) as client:
        task = await client.send('fail')
        assert await client.get_task(task['id']) == task
    said = task['status']['message']
    correlation_id = said['metadata'].pop('correlationId')
    assert said == {
        'messageId': said['messageId'],
        'role': 'ROLE_AGENT',
        'parts': current_dialect().parts(
            [{'text': 'The agent failed with an internal error.', 'mediaType': 'text/plain'}]
        ),
        'metadata': {'failure': 'internal'},
        'taskId': task['id'],
        'contextId': task['contextId'],
    }
    assert SECRET not in str(task)
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert correlation_id in record.getMessage()
    assert task['id'] in record.getMessage()
    assert record.exc_info is not None
    assert SECRET in caplog.text


@covers('failed run')
async def test_stream_of_failed_run_ends_with_failed_status() -> None:
    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        yield 'I will tell you: '
        raise RuntimeError(SECRET)

    async with serving(Agent(FunctionModel(stream_function=stream))) as client, client.send_streaming() as open_stream:
        events = await open_stream.rest()
    status = events[-1].result['statusUpdate']['status']
    assert status['state'] == 'TASK_STATE_FAILED'
    assert SECRET not in str([event.data for event in events])
    assert [event.id for event in events] == [*range(len(events))]


@covers('a failed run in a context')
async def test_failed_run_leaves_its_context_unchanged() -> None:
    async with serving(Agent(FunctionModel(fail_on_request))) as client:
        first = await client.send('one')
        context = first['contextId']
        failed = await client.send(message('fail', contextId=context))
        third = await client.send(message('three', contextId=context))
    assert [state_of(task) for task in (first, failed, third)] == ['COMPLETED', 'FAILED', 'COMPLETED']
    assert texts(third) == ['one + three']


@covers('a failed run in a context')
async def test_context_started_by_failed_run_continues() -> None:
    async with serving(Agent(FunctionModel(fail_on_request))) as client:
        failed = await client.send('fail')
        assert texts(await client.send(message('two', contextId=failed['contextId']))) == ['two']


@covers('failed run')
@pytest.mark.parametrize(
    ('options', 'kind'),
    [
        pytest.param({'usage_limits': UsageLimits(request_limit=1)}, 'usage-limit', id='usage'),
        pytest.param({'timeout': 0.01}, 'timeout', id='timeout'),
        pytest.param({'retries': 0}, 'bad-output', id='output'),
    ],
)
async def test_failure_kind_names_exceeded_run_limit(options: dict[str, Any], kind: str) -> None:
    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if kind == 'timeout':
            await asyncio.Event().wait()
        return ModelResponse(parts=[ToolCallPart('look' if kind == 'usage-limit' else 'nowhere', {})])

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    def look() -> str:
        return 'seen'

    async with serving(agent, **options) as client:
        task = await client.send()
        after = await client.send(message(contextId=task['contextId']))
    assert failure(task) == failure(after) == kind


STORAGE = 'storage error in one task'


class FailsToFinish(WrappedQueue):
    """Cannot store the first ends of runs."""

    times = 1

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        if self.times:
            self.times -= 1
            raise StorageError(SECRET)
        return await super().finish(claim, finish)


class FailsToEmit(WrappedQueue):
    """Cannot store the second chunk of a text."""

    calls = 0

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.calls += 1
        if self.calls == 2:
            raise StorageError(SECRET)
        await super().emit(claim, events, status, checkpoint)


@covers(STORAGE)
@pytest.mark.parametrize('broken', [FailsToFinish, FailsToEmit])
async def test_storage_error_fails_only_affected_task(
    backend: MemoryBackend, broken: type[WrappedQueue], caplog: pytest.LogCaptureFixture
) -> None:
    backend.queue = broken(backend.queue)
    agent = Agent(TestModel(custom_output_text='one two three four'))
    async with serving(agent, backend=backend, results=Results(interval=0)) as client:
        async with client.live.send_streaming('one') as stream:
            events = await stream.rest()
        first = await client.get_task(events[0].result['task']['id'])
        second = await client.send(message('two', contextId=first['contextId']))
    assert failure(first) == 'storage'
    assert (state_of(second), texts(second)) == ('COMPLETED', ['one two three four'])
    assert [event.id for event in events] == [*range(len(events))]
    assert SECRET not in str([event.data for event in events])
    assert SECRET in caplog.text


@covers(STORAGE)
async def test_task_failure_is_stored_once_store_recovers(backend: MemoryBackend) -> None:
    backend.queue = FailsToFinish(backend.queue)
    backend.queue.times = 3
    workers = Workers(running=1, lease=0.03)
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend, workers=workers) as client:
        first = await client.send('one')
        second = await client.send(message('two', contextId=first['contextId']))
    assert failure(first) == 'storage'
    assert texts(second) == ['two']


@covers(STORAGE)
async def test_unserializable_output_fails_only_its_task() -> None:
    async def result(value: int) -> Any:
        return object() if value < 0 else value

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart('final_result', {'value': int(user_prompts(messages)[-1])})])

    async with serving(Agent(FunctionModel(answer), output_type=result)) as client:
        bad = await client.send('-1')
        good = await client.send(message('2', contextId=bad['contextId']))
    assert failure(bad) == 'internal'
    assert good['artifacts'][0]['parts'][0]['data'] == {'result': 2}


class ConversationsFailOnce(MemoryBackend):
    """Cannot read a conversation for the first time."""

    times = 1
    error: Exception = StorageError(SECRET)

    def conversations(self, owner: str) -> SqlConversationStore:
        if self.times:
            self.times -= 1
            raise self.error
        return super().conversations(owner)


@covers(STORAGE)
async def test_unreadable_conversation_fails_only_its_task() -> None:
    backend = ConversationsFailOnce('agent', reader_lag=10**6)
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend) as client:
        first = await client.send('one')
        second = await client.send(message('two', contextId=first['contextId']))
        third = await client.send(message('three', contextId=first['contextId']))
    assert failure(second) == 'storage'
    assert texts(third) == ['one + three']
    backend.close()


@covers(STORAGE)
async def test_task_runs_once_unavailable_conversation_store_recovers() -> None:
    backend = ConversationsFailOnce('agent', reader_lag=10**6)
    backend.error = StoreUnavailable()
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend, workers=Workers(lease=0.03)) as client:
        first = await client.send('one')
        second = await client.send(message('two', contextId=first['contextId']))
    assert texts(second) == ['one + two']
    assert backend.times == 0
    backend.close()


@pytest.mark.parametrize('backend', ['memory', 'sqlite'])
@pytest.mark.parametrize('place', ['model', 'instructions'])
async def test_stop_async_iteration_fails_task_without_second_call(
    place: str, backend: str, tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    async def stop() -> str:
        calls.append(place)
        assert len(calls) < 10, 'the run goes on for ever'
        raise StopAsyncIteration

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise AssertionError(await stop())

    agent = Agent(FunctionModel(answer), name='agent', instructions=stop if place == 'instructions' else None)
    async with serving(agent, backend='memory' if backend == 'memory' else f'sqlite:///{tmp_path}/a.db') as client:
        task = await client.send('hi')
    assert (state_of(task), calls) == ('FAILED', [place])
    assert task['status']['message']['metadata']['failure'] == 'internal'
    assert 'raised StopAsyncIteration' in caplog.text
    assert 'StopAsyncIteration' not in str(task)
