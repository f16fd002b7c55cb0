"""Three servers in a row: restarts, traces, users and cancellation, with a tool or a remote agent in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_ai_a2a import A2A, A2AClient, BearerAuth, InputRequired, RemoteAgent, serve, to_a2a
from pydantic_ai_a2a.client.answer_content import content_of
from pydantic_ai_a2a.client.questions import question_of_task

from ...app_client import lifespan
from ...bounds import LIMIT
from ...spans import Spans, spans
from .sample_agents import (
    HangingAgent,
    MakeAgent,
    agent_of_remote,
    calling_agent,
    each_middle_agent,
    echo_agent,
    last_prompt,
    last_tool_results,
)

__all__ = ('spans',)  # a fixture


class RestartableServer:
    """A server at one address, with its tasks on a file, that is stopped and started again."""

    def __init__(self, make: Callable[[], AbstractAgent[Any, Any]], file: Path) -> None:
        self._make, self._file = make, file
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None, 'the server is stopped'
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        app = self._app = to_a2a(self._make(), backend=f'sqlite:///{self._file}?synchronous=normal')
        async with lifespan(app):
            yield
        self._app = None


def files() -> Agent[None, Any]:
    """An agent that deletes a file after an approval, and then asks a question."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = [part.content for part in last_tool_results(messages)]
        if not returned:
            return ModelResponse(parts=[ToolCallPart('delete_file', {'path': last_prompt(messages)}, 'delete')])
        if len(messages) == 3:
            return ModelResponse(parts=[TextPart(str(returned[0])), ToolCallPart('ask', {}, 'ask')])
        return ModelResponse(parts=[TextPart(f'Then {returned[0]}.')])

    agent: Agent[None, Any] = Agent(FunctionModel(model), name='files')

    @agent.tool_plain(requires_approval=True)
    def delete_file(path: str) -> str:
        return f'deleted {path}'

    @agent.tool_plain
    def ask() -> str:
        raise InputRequired('What next?')

    return agent


@each_middle_agent
@pytest.mark.parametrize('restarted', ['middle', 'all'])
async def test_approvals_and_questions_wait_across_restarts(between: MakeAgent, restarted: str, tmp_path: Path) -> None:
    inner = RestartableServer(files, tmp_path / 'inner.db')
    middle = RestartableServer(lambda: between(inner, 'middle'), tmp_path / 'middle.db')
    outer = RestartableServer(lambda: between(middle, 'outer'), tmp_path / 'outer.db')
    stopped = [middle] if restarted == 'middle' else [inner, middle, outer]

    async def message(parts: Any, **options: Any) -> Any:
        """Send a message with the servers running, and stop the servers of the test."""
        async with AsyncExitStack() as stack:
            for server in stopped:
                await stack.enter_async_context(server.running())
            async with A2AClient(outer) as client:
                return (await client.send(parts, **options)).outcome

    def answer(task: Any, **decision: Any) -> Any:
        [call] = question_of_task('', task)['pending']
        parts = [{'data': {'callAnswers': [{'id': call['id'], **decision}]}}]
        return message(parts, task_id=task['id'], context_id=task['context_id'])

    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        for server in {inner, middle, outer}.difference(stopped):
            await stack.enter_async_context(server.running())
        task = await message('a.txt')
        [call] = question_of_task('', task)['pending']
        assert (call['kind'], call['tool'], call.get('args')) == ('approval', 'delete_file', {'path': 'a.txt'})
        task = await answer(task, decision='approve', args={'path': 'b.txt'})
        [call] = question_of_task('', task)['pending']
        assert (call['kind'], call['tool'], call['text']) == ('question', 'ask', 'What next?')
        task = await answer(task, decision='result', result='sleep')
        assert task['status']['state'] == 'completed'
        assert 'Then sleep.' in str(task['artifacts'])


async def test_spans_of_three_servers_share_trace(spans: Spans) -> None:
    """With remote agents as agents; tests of traces have them as tools."""
    middle = to_a2a(agent_of_remote(to_a2a(echo_agent()), 'middle'))
    outer = to_a2a(agent_of_remote(middle, 'outer'))
    async with asyncio.timeout(LIMIT), A2AClient(outer) as client:
        with trace.get_tracer('test').start_as_current_span('user'):
            await client.send('hello')
    ended = spans.all()
    runs = [span for span in ended if span.name.startswith('a2a run')]
    assert len(runs) == 3
    [user] = [span for span in ended if span.name == 'user']
    assert user.context is not None
    assert {span.context.trace_id for span in ended if span.context is not None} == {user.context.trace_id}


@each_middle_agent
async def test_concurrent_users_have_their_own_tasks(between: MakeAgent) -> None:
    """One tool serves all users with a token of each run. A remote agent has a client for each user."""
    users = {user: f'the-secret-token-of-{user}' for user in ('ann', 'bob')}
    with serve(to_a2a(echo_agent(), auth=BearerAuth({token: user for user, token in users.items()}))) as server:
        shared = calling_agent(capabilities=[A2A[str](server.url, auth=lambda ctx: users[ctx.deps])], deps_type=str)

        async def ask(user: str, n: int) -> None:
            client = A2AClient(server.url, auth=users[user])
            agent: AbstractAgent[Any, Any] = RemoteAgent(client) if between is agent_of_remote else shared
            assert (await agent.run(f'{user} {n}', deps=user)).output == f'{user} {n} (0)'

        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(ask(user, n) for n in range(3) for user in users))
            for user, token in users.items():
                async with A2AClient(server.url, auth=token) as client:
                    texts = {content_of(task.outcome) async for task in client.list(include_artifacts=True)}
                assert texts == {f'{user} {n} (0)' for n in range(3)}


@each_middle_agent
async def test_cancel_of_outermost_task_stops_innermost_run(between: MakeAgent) -> None:
    stuck = HangingAgent()
    innermost = to_a2a(stuck.agent)
    outer = to_a2a(between(to_a2a(between(innermost, 'middle')), 'outer'))
    async with asyncio.timeout(LIMIT), A2AClient(innermost) as inner, A2AClient(outer) as client:
        task: Any = (await client.send('hello', return_immediately=True)).outcome
        await stuck.reached.wait()
        assert (await client.cancel(task['id'])).state == 'canceled'
        await stuck.stopped.wait()
        assert [listed.state async for listed in inner.list()] == ['canceled']
