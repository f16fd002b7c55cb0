"""Tools and remote agents name the question that they answer: somebody else may have answered it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import DeferredToolResults
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessagesTypeAdapter

from pydantic_ai_a2a import A2A, A2AApp, A2AClient, A2AToolset, RemoteAgent, remote_results, to_a2a

from ...agents import clerk_agent
from ...app_client import Client, lifespan
from ...bounds import LIMIT
from ...serving import running_app
from .sample_agents import MakeAgent, calling_agent, each_middle_agent


async def answer_elsewhere(app: A2AApp, text: str = 'Rome') -> None:
    """Answer the only task of an app, as somebody else."""
    [task] = await app.list_tasks()
    await Client(app).send({'messageId': text, 'role': 'ROLE_USER', 'parts': [{'text': text}], 'taskId': task['id']})


async def state_of_only_task(app: A2AApp) -> str:
    [task] = await app.list_tasks()
    return task['status']['state']


async def continue_calling(agent: Any, ended: Any, answer: Any, *, remembered: bool = False) -> Any:
    results = DeferredToolResults() if remembered else remote_results(ended.output, {'outer-call': answer})
    if remembered:
        results.approvals['outer-call'] = True
    return await agent.run(message_history=ended.all_messages(), deferred_tool_results=results)


async def test_tool_does_not_answer_later_question() -> None:
    async with running_app(clerk_agent()) as app:
        agent = calling_agent(toolsets=[A2AToolset(app)])
        ended = await agent.run('hello')
        await answer_elsewhere(app)
        refused = await continue_calling(agent, ended, 'Paris')
        assert 'The task is input-required, and no longer asks the question' in refused.output
        assert await state_of_only_task(app) == 'input-required'


async def test_tool_answers_its_question() -> None:
    async with running_app(clerk_agent()) as app:
        agent = calling_agent(toolsets=[A2AToolset(app)])
        asked_again = await continue_calling(agent, await agent.run('hello'), 'Rome')
        assert (await continue_calling(agent, asked_again, 'No. 7')).output == 'hello + Rome + No. 7'


@pytest.mark.parametrize('remembered', [False, True])
async def test_tool_follows_task_after_sign_in_elsewhere(remembered: bool) -> None:
    async with running_app(clerk_agent()) as app:
        agent = calling_agent(toolsets=[A2AToolset(app)])
        ended = await agent.run('sign in')
        await answer_elsewhere(app)
        again = await continue_calling(agent, ended, True, remembered=remembered)
        [waiting] = [fields['a2a_waiting'] for fields in again.output.metadata.values()]
        assert 'Which account' in waiting['text']
        await answer_elsewhere(app, 'No. 7')
        assert (await continue_calling(agent, again, True)).output == 'sign in + Rome + No. 7'


async def test_remote_agent_does_not_answer_later_question() -> None:
    async with running_app(clerk_agent()) as app:
        agent = RemoteAgent(app)
        ended = await agent.run('hello')
        assert 'Which city?' in ended.output
        await answer_elsewhere(app)
        history = ModelMessagesTypeAdapter.validate_json(ended.all_messages_json())
        with pytest.raises(ModelAPIError, match='no longer asks the question'):
            await agent.run('Paris', message_history=history)
        assert await state_of_only_task(app) == 'input-required'


async def test_remote_agent_follows_task_after_sign_in_elsewhere() -> None:
    async with running_app(clerk_agent()) as app:
        agent = RemoteAgent(app)
        ended = await agent.run('sign in')
        await answer_elsewhere(app)
        again = await agent.run('Done.', message_history=ended.all_messages())
        assert 'Which account' in again.output
        last = await agent.run('Done.', message_history=again.all_messages())
        assert last.output == 'sign in + Rome + Done.'


@each_middle_agent
async def test_served_agent_does_not_answer_later_remote_question(between: MakeAgent) -> None:
    inner = to_a2a(clerk_agent())
    outer = to_a2a(between(inner, 'middle'))
    async with asyncio.timeout(LIMIT), lifespan(inner), lifespan(outer), A2AClient(outer) as client:
        task = await client.send('hello')
        assert 'Which city?' in task.text
        await answer_elsewhere(inner)
        refused = await task.answer('Paris')
        assert refused.state in ('completed', 'failed')
        assert await state_of_only_task(inner) == 'input-required'


async def test_served_agent_follows_remote_task_after_sign_in_elsewhere() -> None:
    inner = to_a2a(clerk_agent())
    outer = to_a2a(calling_agent(capabilities=[A2A(inner)]))
    async with asyncio.timeout(LIMIT), lifespan(inner), lifespan(outer), A2AClient(outer) as client:
        task = await client.send('sign in')
        await answer_elsewhere(inner)
        again = await task.approve()
        assert (again.state, 'Which account' in again.text) == ('auth-required', True)
        assert (await again.approve()).text == 'sign in + Rome + Please continue.'
