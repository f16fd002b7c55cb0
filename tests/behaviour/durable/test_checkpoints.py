"""A run whose process ends goes on elsewhere from its last step: what is done again, and what clients and tools see."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from pydantic_ai import Agent, Choice, Choices, ModelRetry, RunContext, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import UsageLimits

from pydantic_ai_a2a import AuthRequired, Results, Workers
from pydantic_ai_a2a.server.store.ports import Checkpoint, Claim, Status, TaskQueue
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.store import WrappedQueue
from pydantic_ai_a2a.types import TaskEvent

from ...agents import LookupAgent, call_output_tool, echo_prompts, scripted_model
from ...app_client import Client, Event, message, state_of, texts
from ...serving import serving, wait_until_ended
from ..durable_handover import ALL_POINTS, LosesTaskAtFinish, run_until_handover, serving_until_handover, start_task
from ..steps import KINDS, POINTS, City, Steps, comparable_messages

STREAMED = Results(stream='mark', interval=0)
"""Each piece of text is sent as the model gives it, and none is sent again."""


async def conversation(client: Client) -> tuple[list[Any], tuple[int, int]]:
    """What the conversation holds, and how many model requests and tool calls were counted."""
    record = await client.a2a_app.conversations().read_record('c')
    assert record is not None
    return comparable_messages(await client.messages_of('c')), (record.usage.requests, record.usage.tool_calls)


def outcome_of(task: dict[str, Any]) -> tuple[Any, list[str]]:
    """What a task came to, and all that was said in it."""
    return task.get('artifacts', [])[0]['parts'], [part['text'] for each in task['history'] for part in each['parts']]


CASES = [(kind, point) for kind in KINDS for point in POINTS] + [('validated', 'end')]


@pytest.mark.parametrize(('kind', 'point'), CASES)
async def test_interrupted_run_resumes_with_same_result(kind: str, point: str, url: str) -> None:
    undisturbed, steps = Steps(kind), Steps(kind)
    async with serving_until_handover(undisturbed.agent) as client:
        expected = [outcome_of(await client.send(message(text, contextId='c'))) for text in ('one', 'two', 'three')]
        wanted = await conversation(client)
    async with serving_until_handover(steps.agent, backend=url) as client:
        await client.send(message('one', contextId='c'))
        reached = steps.hold(point)
        task_id = await start_task(client, 'two')
        await reached.wait()
    async with serving_until_handover(steps.agent, backend=url) as client:
        assert outcome_of(await wait_until_ended(client, task_id)) == expected[1]
        assert outcome_of(await client.send(message('three', contextId='c'))) == expected[2]
        got = await conversation(client)
    assert got == wanted
    again = [f'tool {point[-1]}', f'tool 1{point[-1]}'] if 'tool' in point else [point]
    done = [each for each in steps.done if 'middle' not in each]  # where somebody watches
    assert Counter(done) - Counter(undisturbed.done) == Counter(again)


async def test_run_survives_repeated_handovers(url: str) -> None:
    steps = Steps()
    task_id = await run_until_handover('model 1', steps, backend=url)
    for point in POINTS[1:]:
        held = steps.hold(point)
        async with serving_until_handover(steps.agent, backend=url):
            await held.wait()
    async with serving_until_handover(steps.agent, backend=url) as client:
        assert texts(await wait_until_ended(client, task_id)) == ['Read 5 messages.']
        messages, used = await conversation(client)
    assert [kind for kind, *_ in messages] == ['request', 'response'] * 3
    assert used == (3, 4)
    assert Counter(steps.done) == dict.fromkeys(ALL_POINTS, 2)


async def test_each_run_resumes_from_its_own_checkpoint(url: str) -> None:
    undisturbed, steps = Steps(), Steps()
    async with serving_until_handover(undisturbed.agent) as client:
        for text in ('one', 'two'):
            await client.send(message(text, contextId='c'))
        wanted = await conversation(client)
    held = steps.hold('model 2')
    async with serving_until_handover(steps.agent, backend=url) as client:
        task_id = await start_task(client, 'one')
        await held.wait()
        await client.send(message('two', contextId='c', taskId=task_id), returnImmediately=True)
    held = steps.hold('tool 1')
    async with serving_until_handover(steps.agent, backend=url):
        await held.wait()
    async with serving_until_handover(steps.agent, backend=url) as client:
        assert state_of(await wait_until_ended(client, task_id)) == 'COMPLETED'
        assert await conversation(client) == wanted
    assert {metadata['a2a']['idempotency_key'] for _, _, metadata in steps.told} == {f'{task_id}.1', f'{task_id}.2'}
    assert Counter(steps.done) - Counter(undisturbed.done) == Counter(['model 2', 'tool 1', 'tool 11'])


async def test_usage_limits_count_all_attempts(url: str) -> None:
    steps = Steps()
    task_id = await run_until_handover('tool 2', steps, backend=url, usage_limits=UsageLimits(request_limit=2))
    async with serving_until_handover(steps.agent, backend=url, usage_limits=UsageLimits(request_limit=2)) as client:
        task = await wait_until_ended(client, task_id)
    assert task['status']['message']['metadata']['failure'] == 'usage-limit'
    assert 'model 3' not in steps.done


async def events_until_handover(steps: Steps, url: str) -> list[Event]:
    """The events of a task whose process ends in the middle of the answer."""
    held = steps.hold('middle 3')
    async with (
        serving_until_handover(steps.agent, backend=url, results=STREAMED) as client,
        client.live.send_streaming('one') as stream,
    ):
        await held.wait()
        events = [await anext(stream)]
        while answers(events)[-1:] != ['Read ']:
            events.append(await anext(stream))
    return events


async def test_stream_resumes_in_next_process_without_repeats(url: str) -> None:
    steps = Steps('streamed')
    before = await events_until_handover(steps, url)
    async with (
        serving_until_handover(steps.agent, backend=url, results=STREAMED) as client,
        client.live.subscribe(before[0].result['task']['id'], Last_Event_ID=str(before[-1].id)) as stream,
    ):
        events = [*before, *(await stream.rest())]
    assert [event.id for event in events] == list(range(len(events)))
    assert notes(events) == ['Step 1.', 'Step 2.']
    assert answers(events) == ['Step 1.', 'Step 2.', 'Read ', 'Read 5 messages.']


async def test_resumed_run_stores_streamed_answer_once(url: str) -> None:
    steps = Steps('streamed')
    before = await events_until_handover(steps, url)
    async with serving_until_handover(steps.agent, backend=url, results=STREAMED) as client:
        task = await wait_until_ended(client, before[0].result['task']['id'])
    assert [artifact['artifactId'] for artifact in task['artifacts']] == [f'{task["id"]}.1.result']
    assert texts(task) == ['Read 5 messages.']


def answers(events: Sequence[Event]) -> list[str]:
    """The texts that the answer had, each of which replaces the one before."""
    texts: list[str] = []
    for update in (event.result['artifactUpdate'] for event in events if 'artifactUpdate' in event.result):
        before = texts.pop() if update.get('append') else ''
        texts.append(before + ''.join(part['text'] for part in update['artifact']['parts']))
    return texts


def notes(events: Sequence[Event]) -> list[str]:
    """What the agent said on the way."""
    updates = [event.result['statusUpdate']['status'] for event in events if 'statusUpdate' in event.result]
    return [part['text'] for status in updates if 'message' in status for part in status['message']['parts']]


async def test_repeated_tool_call_keeps_id_and_idempotency_key(url: str) -> None:
    steps = Steps()
    task_id = await run_until_handover('tool 1', steps, backend=url)
    async with serving_until_handover(steps.agent, backend=url) as client:
        await wait_until_ended(client, task_id)
    run = {'task_id': task_id, 'context_id': 'c', 'attempt': 1, 'idempotency_key': f'{task_id}.1'}
    calls = ['call 1', 'call 11', 'call 1', 'call 11', 'call 2', 'call 12']
    assert steps.told == [('one', call, {'a2a': run}) for call in calls]


def app_metadata(_: object) -> dict[str, Any]:
    return {'mine': 1, 'a2a': 2}


@pytest.mark.parametrize('metadata', [app_metadata(None), app_metadata])
async def test_run_metadata_merges_agent_app_and_a2a_metadata(metadata: Any) -> None:
    told: list[Any] = []

    def look(ctx: RunContext[object]) -> None:
        told.append(ctx.metadata)

    agent = Agent(TestModel(), tools=[look], metadata={'mine': 0, 'its': 3})
    async with serving(agent, metadata=metadata) as client:
        task = await client.send('hi')
    run = {'task_id': task['id'], 'context_id': task['contextId'], 'attempt': 1, 'idempotency_key': f'{task["id"]}.1'}
    assert told == [{'its': 3, 'mine': 1, 'a2a': run}]


async def test_resumed_run_goes_on_after_sign_in(url: str) -> None:
    """The stored response has calls without results, after which Pydantic AI takes no prompt."""
    desk, signed_in = LookupAgent(), True
    desk.found.set()

    @desk.agent.toolset
    def mailbox(ctx: RunContext[object]) -> None:
        if not signed_in:
            raise AuthRequired('Sign in.')

    desk.hold('tool 1')
    async with serving_until_handover(desk.agent, backend=url) as client:
        task_id = await start_task(client, 'one')
        await desk.reached.wait()
    signed_in = False
    async with serving_until_handover(desk.agent, backend=url) as client:
        await client.a2a_app.backend.events.wait(task_id, 0)
        assert state_of(await client.get_task(task_id)) == 'AUTH_REQUIRED'
        signed_in = True
        task = await client.send(message('two', taskId=task_id))
    assert (state_of(task), texts(task)) == ('COMPLETED', ['one + two'])


async def test_canceled_run_keeps_messages_from_before_handover(url: str) -> None:
    steps = Steps()
    task_id = await run_until_handover('tool 2', steps, backend=url)
    held = steps.hold('model 3')
    async with serving_until_handover(steps.agent, backend=url) as client:
        await held.wait()
        assert state_of(await client.call('CancelTask', {'id': task_id})) == 'CANCELED'
        messages, used = await conversation(client)
        assert [kind for kind, *_ in messages] == ['request', 'response', 'request', 'response', 'request']
        assert used == (2, 4)
        assert state_of(await client.send(message('two', contextId='c'))) == 'COMPLETED'


class Saves(WrappedQueue):
    """Remembers which messages of a run were stored, and in how many writes of events."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.saved: list[tuple[list[int], int]] = []

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        await super().emit(claim, events, status, checkpoint)
        if checkpoint is not None:
            numbers = range(checkpoint.first, checkpoint.first + len(checkpoint.messages))
            self.saved.append(([*numbers], len(events)))


@pytest.fixture
def file(url: str) -> Iterator[SqliteFileBackend]:
    made = SqliteFileBackend(SqliteFile.of(url), 'agent', reader_lag=10**6)
    yield made
    made.close()


async def test_checkpoint_stores_new_messages_with_their_events(file: SqliteFileBackend) -> None:
    saves = file.queue = Saves(file.queue)
    async with serving(Steps().agent, backend=file) as client:
        await client.send(message('one', contextId='c'))
        await client.send(message('two', contextId='c'))
    # A request is stored before it is sent, and again with the time at which it was.
    assert saves.saved == [([0, 1], 1), ([2], 0), ([2, 3], 1), ([4], 0)] * 2


def validated(agent: Agent[Any, Any]) -> Agent[Any, Any]:
    agent.output_validator(lambda text: text)
    return agent


@pytest.mark.parametrize(
    'agent',
    [Steps('processed').agent, Steps('validated').agent, validated(Steps().agent)],
    ids=['capability', 'output function', 'output validator'],
)
async def test_final_response_for_user_code_is_checkpointed(agent: Agent[Any, Any], file: SqliteFileBackend) -> None:
    saves = file.queue = Saves(file.queue)
    async with serving(agent, backend=file) as client:
        await client.send(message('one', contextId='c'))
    assert saves.saved[-1][0][-2:] == [4, 5]


def tell(city: str) -> str:
    return city


def silent(_: object) -> None:
    pass


@pytest.mark.parametrize(
    ('output_type', 'hooks', 'saved'),
    [
        (City, {}, []),
        (City, {'on_tool_call': silent}, [([0, 1], 0)]),
        (tell, {}, [([0, 1], 0)]),
        (Choices({'rome': Choice(value=lambda: 'Rome')}), {}, [([0, 1], 0)]),
    ],
    ids=['model', 'hook', 'function', 'action'],
)
async def test_output_tool_checkpoints_only_for_user_code(
    output_type: Any, hooks: dict[str, Any], saved: list[Any], file: SqliteFileBackend
) -> None:
    saves = file.queue = Saves(file.queue)
    async with serving(Agent(TestModel(), output_type=output_type), backend=file, **hooks) as client:
        assert state_of(await client.send('one')) == 'COMPLETED'
    assert saves.saved == saved


async def test_refused_output_is_checkpointed_with_next_request(file: SqliteFileBackend) -> None:
    saves = file.queue = Saves(file.queue)
    agent = Agent(scripted_model(call_output_tool(name=1), call_output_tool(name='Rome')), output_type=City)
    async with serving(agent, backend=file) as client:
        assert state_of(await client.send('one')) == 'COMPLETED'
    assert saves.saved == [([0, 1, 2], 0)]


@pytest.mark.parametrize('kind', ['text', 'structured'])
async def test_run_lost_before_end_repeats_only_last_request(kind: str, url: str) -> None:
    steps, lost = Steps(kind), SqliteFileBackend(SqliteFile.of(url), 'agent', reader_lag=10**6)
    loses = lost.queue = LosesTaskAtFinish(lost.queue)
    async with serving_until_handover(steps.agent, backend=lost) as client:
        task_id = await start_task(client, 'one')
        await loses.asked.wait()
    lost.close()
    async with serving_until_handover(steps.agent, backend=url) as client:
        assert state_of(await wait_until_ended(client, task_id)) == 'COMPLETED'
        messages, used = await conversation(client)
    assert [kind for kind, *_ in messages][:6] == ['request', 'response'] * 3
    assert used == (3, 4)
    assert steps.done == [*ALL_POINTS, 'model 3']


async def test_single_step_run_stores_no_checkpoint(file: SqliteFileBackend) -> None:
    saves = file.queue = Saves(file.queue)
    async with serving(Agent(FunctionModel(echo_prompts)), backend=file) as client:
        await client.send('one')
    assert saves.saved == []


async def test_memory_backend_stores_no_checkpoint() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    saves = backend.queue = Saves(backend.queue)
    async with serving(Steps().agent, backend=backend) as client:
        await client.send('one')
    assert saves.saved == []


WRITES = re.compile(r'\b(INSERT INTO|UPDATE|DELETE FROM) (task|checkpoint|event|conversation)\b')
"""A write of tasks. A slow test sees others: the count of the queue, and that the process lives."""


@pytest.mark.parametrize(
    ('agent', 'commits'),
    [
        (lambda: Agent(TestModel(call_tools=[]), name='agent'), 2),
        (lambda: Agent(TestModel(call_tools=[]), name='agent', output_type=City), 2),
        (lambda: Agent(TestModel(), name='agent', tools=[greet]), 4),
        (lambda: Steps().agent, 6),
    ],
    ids=['no step', 'output tool', 'one', 'two'],
)
async def test_task_takes_documented_number_of_commits(
    agent: Callable[[], Agent[Any, Any]], commits: int, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, 'connect', traced)
    async with serving(agent(), backend=url, workers=Workers(lease=3600.0)) as client:
        await client.send('one')
        statements.clear()
        await client.send('two')
        transactions = '; '.join(statements).split('COMMIT')[:-1]
        assert sum(WRITES.search(each) is not None for each in transactions) == commits


def greet(name: str) -> str:
    return f'{name} is well'


async def test_attempt_starts_with_fresh_deps_and_retries(url: str) -> None:
    deps, reached, held = count(1), asyncio.Event(), [True]
    seen: list[tuple[int, str | None]] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1 and held:
            held.clear()
            reached.set()
            await asyncio.Event().wait()
        return ModelResponse(parts=[TextPart('Done.') if len(seen) == 3 else ToolCallPart('work')])

    def work(ctx: RunContext[int]) -> str:
        request = ctx.messages[-2]
        assert isinstance(request, ModelRequest)
        seen.append((ctx.deps, request.instructions))
        if len(seen) < 3:
            raise ModelRetry('Once more.')
        return 'done'

    def make(_: object) -> int:
        return next(deps)

    agent = Agent(FunctionModel(answer), deps_type=int, tools=[Tool(work, max_retries=1)])
    agent.instructions(attempt)
    async with serving_until_handover(agent, backend=url, deps_factory=make) as client:
        task_id = await start_task(client, 'hi')
        await reached.wait()
    async with serving_until_handover(agent, backend=url, deps_factory=make) as client:
        assert texts(await wait_until_ended(client, task_id)) == ['Done.']
    assert seen == [(1, 'Attempt 1'), (2, 'Attempt 2'), (2, 'Attempt 2')]


def attempt(ctx: RunContext[int]) -> str:
    return f'Attempt {ctx.deps}'


class HoldsNotes(WrappedQueue):
    """Takes for ever to store the first thing that the agent says on the way."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.asked = asyncio.Event()

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        if status is not None and not self.asked.is_set():
            self.asked.set()
            await asyncio.Event().wait()
        await super().emit(claim, events, status, checkpoint)


async def test_conversation_continues_after_cancel_before_tools_start() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    holds = backend.queue = HoldsNotes(backend.queue)
    steps = Steps()
    async with serving(steps.agent, backend=backend) as client:
        task_id = await start_task(client, 'one')
        await holds.asked.wait()
        assert state_of(await client.call('CancelTask', {'id': task_id})) == 'CANCELED'
        assert state_of(await client.send(message('two', contextId='c'))) == 'COMPLETED'
    assert steps.done == ['model 1', *ALL_POINTS]
