"""Calls that were answered are carried out once, also if the run that goes on with them is lost."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import AuthRequired
from pydantic_ai_a2a.server.store.ports import DEAD_LETTER
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ...agents import user_prompts
from ...app_client import Client, message, state_of, texts
from ...serving import wait_until_ended
from ...suites import values
from ..durable_handover import serving_until_handover
from ..pending_calls import ApprovalAgent, answer_message, approve
from ..steps import comparable_messages

LOOK, LATER = (ToolCallPart('look', {}, call) for call in ('l', 'later'))
DELETE, OTHER, ALL = (ToolCallPart('delete', {'path': path}, path) for path in ('a', 'b', 'all'))
FETCH, MAIL = ToolCallPart('fetch', {'url': 'u'}, 'f'), ToolCallPart('mail', {}, 'm')
CASES: dict[str, tuple[list[ToolCallPart], list[dict[str, Any] | str]]] = {
    'one': ([DELETE], [approve('a')]),
    'one by one': (
        [DELETE, OTHER],
        [{'id': 'b', 'decision': 'deny', 'reason': 'No.'}, approve('a', args={'path': 'z'})],
    ),
    'beside one that is done': ([LOOK, DELETE], [approve('a')]),
    'beside one from outside': ([DELETE, LOOK, FETCH], [{'id': 'f', 'decision': 'result', 'result': 1}, approve('a')]),
    'beside one that is done, of who has to sign in': ([LOOK, MAIL], ['Signed in.']),
    'and asked again': (
        [LOOK, DELETE, ALL],
        [approve('a'), approve('all'), {'id': 'all', 'decision': 'result', 'result': 'deleted all'}],
    ),
}
"""What the model calls at once, told this, and what clients answer, one by one."""


def copy_history(messages: list[ModelMessage]) -> list[ModelMessage]:
    return deepcopy(messages)


KINDS: dict[str, dict[str, Any]] = {
    'plain': {},
    'instructed': {'instructions': 'Be brief.', 'system_prompt': 'Be kind.'},
    'processed': {'capabilities': [ProcessHistory[object](copy_history)]},
}


class AnsweredCallsAgent(ApprovalAgent):
    """Calls what a case says, then looks once more, and then says what all of them returned."""

    def __init__(self, kind: str) -> None:
        super().__init__(**KINDS[kind])
        self.agent.model = FunctionModel(self._respond)
        self.agent.tool(self.mail)
        self.held = asyncio.Event()
        """Set once the run waits where it is to be held."""
        self.looked = 0
        self._hold_after = 0

    def hold(self, returned: int) -> asyncio.Event:
        """Let the next request to the model wait for ever that has so many returns of tools."""
        self._hold_after, self.held = returned, asyncio.Event()
        return self.held

    async def look(self) -> str:
        self.looked += 1
        return await super().look()

    async def delete(self, ctx: RunContext[object], path: str) -> str:
        if path == 'all':
            raise CallDeferred(kind='question')
        return await super().delete(ctx, path)

    async def mail(self, ctx: RunContext[object]) -> str:
        if not ctx.tool_call_approved:
            raise AuthRequired('Sign in.')
        return await super().delete(ctx, 'mail')

    async def _respond(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [str(part.content) for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
        calls, _answers = CASES[user_prompts(messages)[0]]
        if returned and len(returned) == self._hold_after:
            self._hold_after = 0
            self.held.set()
            await asyncio.Event().wait()
        if len(returned) > len(calls):
            return ModelResponse(parts=[TextPart(', '.join(returned))])
        return ModelResponse(parts=[LATER] if returned else [*calls])


async def answered(client: Client, case: str) -> str:
    """The id of a task whose calls are all answered, and that nobody waits for any longer."""
    task = await client.send(message(case, contextId='c'))
    *first, last = CASES[case][1]
    for answer in first:
        task = await client.send(_sent(task, answer))
        assert state_of(task) == 'INPUT_REQUIRED'
    await client.send(_sent(task, last), returnImmediately=True)
    return task['id']


def _sent(task: dict[str, Any], answer: dict[str, Any] | str) -> dict[str, Any]:
    return answer_message(task, answer) if isinstance(answer, dict) else message(answer, taskId=task['id'])


async def run_until_answered_calls_ran(asked: AnsweredCallsAgent, case: str, url: str) -> str:
    """The id of a task whose process ends once its answered calls are carried out."""
    held = asked.hold(len(CASES[case][0]))
    async with serving_until_handover(asked.agent, backend=url) as client:
        task_id = await answered(client, case)
        await held.wait()
    return task_id


async def conversation(client: Client) -> list[Any]:
    return comparable_messages(await client.messages_of('c'))


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('case', CASES)
async def test_answered_tool_calls_run_once_across_handovers(case: str, kind: str, url: str) -> None:
    undisturbed, asked = AnsweredCallsAgent(kind), AnsweredCallsAgent(kind)
    async with serving_until_handover(undisturbed.agent) as client:
        expected = await wait_until_ended(client, await answered(client, case))
        wanted = await conversation(client)
    task_id = await run_until_answered_calls_ran(asked, case, url)
    held = asked.hold(len(CASES[case][0]) + 1)
    async with serving_until_handover(asked.agent, backend=url) as client:
        await held.wait()
    async with serving_until_handover(asked.agent, backend=url) as client:
        done = await wait_until_ended(client, task_id)
        assert (state_of(done), texts(done)) == ('COMPLETED', texts(expected))
        assert await conversation(client) == wanted
    assert (asked.deleted, asked.looked) == (undisturbed.deleted, undisturbed.looked)


@pytest.mark.parametrize('case', CASES)
async def test_canceled_run_keeps_results_of_answered_calls(case: str, url: str) -> None:
    asked = AnsweredCallsAgent('plain')
    task_id = await run_until_answered_calls_ran(asked, case, url)
    held = asked.hold(len(CASES[case][0]))
    async with serving_until_handover(asked.agent, backend=url) as client:
        await held.wait()
        assert state_of(await client.call('CancelTask', {'id': task_id})) == 'CANCELED'
        messages = await conversation(client)
    returned = [
        part['tool_call_id'] for _, _, parts, _ in messages for part in parts if part['part_kind'] == 'tool-return'
    ]
    assert sorted(returned) == sorted(call.tool_call_id for call in CASES[case][0])


@pytest.mark.parametrize('case', CASES)
async def test_dead_letter_retry_skips_answered_calls(case: str, url: str) -> None:
    asked = AnsweredCallsAgent('plain')
    task_id = await run_until_answered_calls_ran(asked, case, url)
    deleted = [*asked.deleted]
    operator = SqliteFileBackend(SqliteFile.of(url), 'agent', reader_lag=10**6)
    claim = await values.claim_task(operator, task_id)
    await operator.queue.finish(claim, values.finish_of(claim, 'failed', at=operator.now(), failure=DEAD_LETTER))
    await operator.housekeeping.retry(task_id, new_id='again', at=values.START)
    operator.close()
    async with serving_until_handover(asked.agent, backend=url) as client:
        assert state_of(await wait_until_ended(client, 'again')) == 'COMPLETED'
    assert asked.deleted == deleted
