"""Calls that were approved with other arguments, and then wait once more before they are carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Approvals, AuthRequired

from ...client import Client, message, state_of
from ...tables import each_case
from ..asking import ROW, answers, approve, asked, model
from ..rows import covers
from ..stage import serving

HIDDEN: dict[str, Any] = {'approvals': Approvals(hide_arguments=['delete'], change_arguments=['delete'])}


def waiting(agent: Agent[object, Any], error: Callable[[], Exception], times: int = 2) -> list[str]:
    """Give an agent a tool that raises an error in its first calls once they are approved; return what it deletes."""
    deleted: list[str] = []
    raised: list[Exception] = []

    @agent.tool(requires_approval=True)
    async def delete(ctx: RunContext[object], path: str) -> str:
        assert ctx.tool_call_approved
        if len(raised) < times:
            raised.append(error())
            raise raised[-1]
        deleted.append(path)
        return f'deleted {path}'

    return deleted


async def go_on(client: Client, task: dict[str, Any]) -> dict[str, Any]:
    """Sign in, or approve the call without other arguments."""
    if state_of(task) == 'AUTH_REQUIRED':
        return await client.send(message('I have signed in', taskId=task['id']))
    return await client.send(answers(task, approve()))


@covers(ROW)
@each_case('error', [lambda: AuthRequired('Sign in.'), ApprovalRequired], ids=['sign-in', 'approval'])
@each_case('options', [{}, HIDDEN], ids=['shown', 'hidden'])
@each_case('backend', ['memory', 'sqlite'])
async def test_a_call_that_waits_again_keeps_the_arguments_that_its_approval_gave(
    error: Callable[[], Exception], options: dict[str, Any], backend: str, tmp_path: Any
) -> None:
    agent: Agent[object, Any] = Agent(FunctionModel(model))
    deleted = waiting(agent, error)
    url = backend if backend == 'memory' else f'sqlite:///{tmp_path}/a.db'
    async with serving(agent, backend=url, **options) as client:
        task = await client.send('delete')
        again = await client.send(answers(task, approve(args={'path': 'z'})))
        assert [call.get('args') for call in asked(again)] == [None if options else {'path': 'z'}]
        done = await go_on(client, await go_on(client, again))
    assert (state_of(done), deleted) == ('COMPLETED', ['z'])


@covers(ROW)
async def test_a_later_call_with_the_id_of_an_earlier_one_has_its_own_arguments() -> None:
    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [part for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
        call = ToolCallPart('delete', {'path': 'ab'[len(returned)]}, 'c1') if len(returned) < 2 else None
        return ModelResponse(parts=[call or TextPart('done')])

    agent: Agent[object, Any] = Agent(FunctionModel(answer))
    deleted = waiting(agent, ApprovalRequired, times=0)
    async with serving(agent) as client:
        task = await client.send('delete')
        second = await client.send(answers(task, approve(args={'path': 'z'})))
        assert [call['args'] for call in asked(second)] == [{'path': 'b'}]
        done = await go_on(client, second)
    assert (state_of(done), deleted) == ('COMPLETED', ['z', 'b'])
