"""Remote agents that ask with JSON Schemas that cannot be used, or with several calls of one id."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests, DeferredToolResults
from pydantic_ai.capabilities import RequestInput
from pydantic_ai.tools import RunContext

from pydantic_ai_a2a import A2A, A2AClient, to_a2a
from pydantic_ai_a2a.client.questions import question_of_task
from pydantic_ai_a2a.errors import RemoteProtocolError

from ...bounds import LIMIT
from ..canned_agent import CannedAgent, stream_response
from .canned_tasks import DONE, pending_call, task_waiting_with
from .sample_agents import MakeAgent, calling_agent, each_middle_agent


def nested_schema(depth: int) -> dict[str, Any]:
    return {} if not depth else {'items': nested_schema(depth - 1)}


UNUSABLE: list[Any] = [
    5,
    {'type': 5},
    {'allOf': 5},
    {'properties': 5},
    {'enum': 5},
    {'minimum': 'a'},
    {'$ref': '#/nowhere'},
    {'$defs': 5},
    {'properties': {'a': {'type': 5}}},
    {'title': 'a' * 40_000},
    nested_schema(60),
]


@each_middle_agent
@pytest.mark.parametrize('is_call', [True, False])
@pytest.mark.parametrize('schema', UNUSABLE, ids=range(len(UNUSABLE)))
async def test_question_with_unusable_schema_takes_text(between: MakeAgent, schema: Any, *, is_call: bool) -> None:
    result = {'properties': {'decision': {'const': 'result'}, 'result': schema}}
    asked = (
        task_waiting_with(pending=[pending_call(answerSchema={'oneOf': [result]})])
        if is_call
        else task_waiting_with(schema=schema)
    )
    canned = CannedAgent(stream_response({'task': asked}), stream_response({'task': DONE}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] == 'input-required'
        ended: Any = (await client.send('the red one', task_id=task['id'], context_id=task['context_id'])).outcome
        assert ended['status']['state'] == 'completed'
    [part] = canned.messages[-1]['parts']
    assert 'the red one' in (part['data']['callAnswers'][0]['result'] if is_call else part['text'])


@each_middle_agent
@pytest.mark.parametrize(
    'schema', [5, {'oneOf': 5}, {'oneOf': [5]}, {'oneOf': [{'properties': {'args': {'type': 5}}}]}]
)
async def test_approval_with_unusable_schema_can_be_approved(between: MakeAgent, schema: Any) -> None:
    asked = task_waiting_with(pending=[pending_call('approval', args={'path': 'a.txt'}, answerSchema=schema)])
    canned = CannedAgent(stream_response({'task': asked}), stream_response({'task': DONE}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        task: Any = (await client.send('hello')).outcome
        [pending] = question_of_task('', task)['pending']
        answer = {'callAnswers': [{'id': pending['id'], 'decision': 'approve'}]}
        ended: Any = (await client.send([{'data': answer}], task_id=task['id'], context_id=task['context_id'])).outcome
        assert ended['status']['state'] == 'completed'
    [part] = canned.messages[-1]['parts']
    assert part['data'] == {'callAnswers': [{'id': 'q', 'decision': 'approve'}]}


async def test_unusable_question_schema_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked = task_waiting_with(pending=[pending_call(answerSchema={'properties': {'a_rare_name': {'type': 5}}})])
    async with A2AClient(CannedAgent(stream_response({'task': asked})).app) as client:
        task: Any = (await client.send('hello')).outcome
    assert [pending.get('answerSchema') for pending in question_of_task('', task)['pending']] == [None]
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith('A remote agent asks with a JSON Schema that cannot be used: ')
    assert 'a_rare_name' in line


@each_middle_agent
async def test_pending_calls_with_same_id_are_refused(between: MakeAgent, caplog: pytest.LogCaptureFixture) -> None:
    asked = task_waiting_with(pending=[pending_call('approval', tool='read'), pending_call('approval', tool='delete')])
    async with (
        asyncio.timeout(LIMIT),
        A2AClient(to_a2a(between(CannedAgent(stream_response({'task': asked})).app, 'middle'))) as client,
    ):
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] in ('completed', 'failed')  # the model of a tool hears of the failure
    assert 'two calls of the same id' in f'{task}{caplog.text}'
    async with A2AClient(CannedAgent(stream_response({'task': asked})).app) as client:
        task = (await client.send('hello')).outcome
        with pytest.raises(RemoteProtocolError, match='two calls of the same id'):
            question_of_task('', task)


@pytest.mark.parametrize('is_served', [True, False])
async def test_memory_of_long_questions_is_released(*, is_served: bool) -> None:
    """The task is canceled or expires, or the caller never comes back."""
    text = {'id': 'q', 'text': 'a' * 1_000_000}
    asked = [task_waiting_with(pending=[pending_call(**text, args={'b': 'b' * 1_000_000})]) for _ in range(3)]
    asked += [task_waiting_with(pending=[pending_call(id='c' * 2_000_000)]) for _ in range(3)]
    canned = CannedAgent(*[stream_response({'task': task}) for task in asked])
    agent = calling_agent(capabilities=[A2A(canned.app)])
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(agent)) as client:

        async def ask() -> None:
            if is_served:
                task: Any = (await client.send('hello', return_immediately=False)).outcome
                assert task['status']['state'] == 'input-required'
            else:
                assert isinstance((await agent.run('hello')).output, DeferredToolRequests)

        asked.clear()
        await ask()
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(4):
                await ask()
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert size < 5_000_000  # of 8 MB; the thread that has read the last answer may not have left it yet


@pytest.mark.parametrize('length', [10, 1_000_000])
async def test_handler_approves_remote_call_within_served_run(length: int) -> None:
    """A handler approves within the run, in which the question is still known."""
    asked = task_waiting_with(pending=[pending_call('approval', text='a' * length)])
    canned = CannedAgent(stream_response({'task': asked}), stream_response({'task': DONE}))

    def approve(ctx: RunContext[Any], requests: DeferredToolRequests, token: str) -> DeferredToolResults:
        return DeferredToolResults(approvals={call.tool_call_id: True for call in requests.approvals})

    agent = calling_agent(capabilities=[A2A(canned.app), RequestInput(approve)])
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(agent)) as client:
        task: Any = (await client.send('hello')).outcome
    assert task['status']['state'] == 'completed'
    [part] = canned.messages[-1]['parts']
    assert part['data'] == {'callAnswers': [{'id': 'q', 'decision': 'approve'}]}
