"""Conversations belong to the agent at an interface: another agent gets none of their ids, whatever its card says."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest
from pydantic_ai.agent import AbstractAgent

from pydantic_ai_a2a import A2A, A2AToolset, RemoteAgent

from ...agents import tool_returns
from ...bounds import LIMIT
from ...cases import each_case
from ..canned_agent import CARD, CannedAgent, card_with_interface, result_response, serve_canned
from .canned_tasks import DONE
from .sample_agents import calling_agent, echo_agent


def canned_agent(context: str = 'secret') -> CannedAgent:
    """A remote agent that names the conversation, with the name of all others here on its card."""
    return CannedAgent(result_response({'task': {**DONE, 'contextId': context}}))


def sent_context_ids(canned: CannedAgent) -> list[Any]:
    """The conversation of each message that an agent has got."""
    return [message.get('contextId') for message in canned.messages]


def agent_calling(kind: str, url: str, **options: Any) -> AbstractAgent[Any, Any]:
    """An agent that asks a remote agent: with a tool, or as its model."""
    return calling_agent(capabilities=[A2A(url, **options)]) if kind == 'tool' else RemoteAgent(url)


each_kind = pytest.mark.parametrize('kind', ['tool', 'model'])


@each_kind
async def test_agent_of_same_name_gets_no_context_id(kind: str) -> None:
    one, other = canned_agent(), canned_agent()
    with ExitStack() as stack:
        first, second = (stack.enter_context(serve_canned(canned)).url for canned in (one, other))
        # The hostile card also names the interface of the other agent, by a binding that nobody speaks.
        theirs = {'protocolBinding': 'OTHER', 'url': first, 'protocolVersion': '1.0'}
        other.card = {
            **CARD,
            'supportedInterfaces': [theirs, card_with_interface(url=second)['supportedInterfaces'][0]],
        }
        async with asyncio.timeout(LIMIT):
            ended = await agent_calling(kind, first).run('hello')
            ended = await agent_calling(kind, second).run('hello', message_history=ended.all_messages())
            await agent_calling(kind, first).run('hello', message_history=ended.all_messages())
    assert sent_context_ids(one) == [None, 'secret']
    assert sent_context_ids(other) == [None]


@each_kind
@each_case(
    'path, tenant, continues',
    [
        pytest.param('one?key=1', 'blue', True, id='same'),
        pytest.param('one?key=2', 'blue', True, id='another query'),
        pytest.param('two?key=1', 'blue', False, id='another path'),
        pytest.param('one?key=1', 'red', False, id='another tenant'),
        pytest.param('one?key=1', '', False, id='no tenant'),
    ],
)
async def test_conversation_continues_only_at_same_origin_path_and_tenant(
    kind: str, path: str, tenant: str, *, continues: bool
) -> None:
    canned = canned_agent()
    with serve_canned(canned) as server:
        canned.card = card_with_interface(url=f'{server.url}one?key=1', tenant='blue')
        async with asyncio.timeout(LIMIT):
            ended = await agent_calling(kind, server.url).run('hello')
            card = card_with_interface(url=f'{server.url}{path}', tenant=tenant)
            canned.card = {**card, 'version': '2'}
            await agent_calling(kind, server.url).run('hello', message_history=ended.all_messages())
    assert sent_context_ids(canned) == [None, 'secret' if continues else None]


async def test_renamed_remote_agent_continues_conversation() -> None:
    canned = canned_agent()
    with serve_canned(canned) as server:
        async with asyncio.timeout(LIMIT):
            ended = await RemoteAgent(server.url).run('hello')
            canned.card = {**canned.card, 'name': 'renamed'}
            await RemoteAgent(server.url).run('hello', message_history=ended.all_messages())
    assert sent_context_ids(canned) == [None, 'secret']


@pytest.mark.parametrize('is_served', [True, False])
async def test_capability_id_separates_conversations_with_same_agent(*, is_served: bool) -> None:
    canned = canned_agent()
    with serve_canned(canned) as server:
        target: Any = server.url if is_served else canned.app
        async with asyncio.timeout(LIMIT):
            ended = await calling_agent(capabilities=[A2A(target, id='one')]).run('hello')
            for name in ('two', 'one'):
                await calling_agent(capabilities=[A2A(target, id=name)]).run(
                    'hello', message_history=ended.all_messages()
                )
    assert sent_context_ids(canned) == [None, None, 'secret']


async def test_in_process_agents_have_separate_conversations_by_name() -> None:
    ended = await RemoteAgent(echo_agent('first')).run('one')
    other = await RemoteAgent(echo_agent('second')).run('two', message_history=ended.all_messages())
    assert other.output.endswith('(0)')
    ended = await calling_agent(toolsets=[A2AToolset(echo_agent('first'), tools='skills')], tool='first').run('one')
    agent = calling_agent(toolsets=[A2AToolset(echo_agent('second'), tools='skills')], tool='second')
    assert (await agent.run('two', message_history=ended.all_messages())).output == 'two (0)'


async def test_history_of_earlier_package_version_starts_new_conversation() -> None:
    canned = canned_agent()
    with serve_canned(canned) as server:
        agent = agent_calling('tool', server.url)
        async with asyncio.timeout(LIMIT):
            history = (await agent.run('hello')).all_messages()
            for part in tool_returns(history):
                part.metadata = {'a2a': {'tool': 'canned canned', 'task': 't', 'context': 'secret'}}
            await agent.run('hello', message_history=history)
    assert sent_context_ids(canned) == [None, None]
