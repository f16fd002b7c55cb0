"""Capabilities that build messages anew: no message of a turn is lost, in later turns and after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability, Hooks, ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import InputRequired

from ...agents import user_prompts
from ...app_client import Client, message, state_of, texts
from ...serving import each_backend, serving
from ..pending_calls import answer_message, approve


def rebuild_requests(messages: list[ModelMessage]) -> list[ModelMessage]:
    return [ModelRequest(parts=[*each.parts]) if isinstance(each, ModelRequest) else each for each in messages]


def rebuild_all(messages: list[ModelMessage]) -> list[ModelMessage]:
    return [
        ModelRequest(parts=[*each.parts]) if isinstance(each, ModelRequest) else ModelResponse(parts=[*each.parts])
        for each in messages
    ]


def with_summary(messages: list[ModelMessage]) -> list[ModelMessage]:
    return [ModelRequest.user_text_prompt('a summary'), *rebuild_all(messages)]


async def in_place(ctx: RunContext[Any], request_context: Any) -> Any:
    ctx.messages[:] = rebuild_all(ctx.messages)
    request_context.messages[:] = rebuild_all(request_context.messages)
    return request_context


REBUILDERS: dict[str, Callable[[], AbstractCapability[Any]]] = {
    'requests': lambda: ProcessHistory(rebuild_requests),
    'all': lambda: ProcessHistory(rebuild_all),
    'hook': lambda: Hooks(before_model_request=in_place),
}
each_rebuilder = pytest.mark.parametrize('anew', REBUILDERS.values(), ids=list(REBUILDERS))


class TwoCallsAgent:
    """An agent that looks, or deletes after an approval, twice, and then answers with all prompts and results."""

    def __init__(self, *capabilities: AbstractCapability[Any]) -> None:
        self.seen: list[list[str]] = []
        self.agent: Agent[Any, Any] = Agent(FunctionModel(self._model), name='agent', capabilities=[*capabilities])
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(requires_approval=True)(self.delete)

    def _model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        said = _contents(messages)
        self.seen.append(said)
        prompt = next(iter(reversed(user_prompts(messages))), '')
        since = said[len(said) - said[::-1].index(prompt) :] if prompt else []
        if prompt in ('look', 'delete', 'look_on', 'refuse') and len(since) < 2:
            return ModelResponse(parts=[ToolCallPart(prompt, {}, f'c{len(since)}')])
        return ModelResponse(parts=[TextPart('done')])

    def look(self) -> str:
        return 'found'

    def delete(self) -> str:
        return 'deleted'


def _contents(messages: Sequence[ModelMessage]) -> list[str]:
    return [
        str(part.content)
        for each in messages
        for part in each.parts
        if isinstance(part, UserPromptPart | ToolReturnPart)
    ]


async def _stored(client: Client, task: dict[str, Any]) -> list[str]:
    loaded = await client.a2a_app.conversations().load(task['contextId'])
    assert loaded is not None
    return _contents(loaded.messages)


@each_rebuilder
@each_backend('memory', 'sqlite')
async def test_rebuilt_messages_are_complete_in_later_turns(
    anew: Callable[[], AbstractCapability[Any]], backend: str
) -> None:
    calling = TwoCallsAgent(anew())
    async with serving(calling.agent, backend=backend) as client:
        first = await client.send('look')
        context = {'contextId': first['contextId']}
        task = await client.send(message('delete', **context))
        for number in range(2):
            assert state_of(task) == 'INPUT_REQUIRED'
            task = await client.send(answer_message(task, approve(f'c{number}')))
        assert texts(task) == ['done']
        last = await client.send(message('bye', **context))
        expected = ['look', 'found', 'found', 'delete', 'deleted', 'deleted', 'bye']
        assert await _stored(client, last) == expected
    assert calling.seen[-1] == expected


async def test_messages_added_by_capability_do_not_hide_run_messages() -> None:
    async with serving(TwoCallsAgent(ProcessHistory(with_summary)).agent) as client:
        task = await client.send('look')
        assert (await _stored(client, task))[-3:] == ['look', 'found', 'found']


@each_backend('memory', 'sqlite')
async def test_messages_dropped_by_history_processor_stay_stored(backend: str) -> None:
    def last_anew(messages: list[ModelMessage]) -> list[ModelMessage]:
        return rebuild_all(messages[-3:])

    async with serving(TwoCallsAgent(ProcessHistory(last_anew)).agent, backend=backend) as client:
        first = await client.send('hello')
        task = await client.send(message('look', contextId=first['contextId']))
        assert state_of(task) == 'COMPLETED'
        assert await _stored(client, task) == ['hello', 'look', 'found', 'found']


async def test_canceled_turn_keeps_its_prompt() -> None:
    calling = TwoCallsAgent(ProcessHistory(rebuild_requests))
    looking = asyncio.Event()

    @calling.agent.tool_plain
    async def look_on() -> str:
        looking.set()
        await asyncio.Event().wait()
        raise NotImplementedError

    async with serving(calling.agent) as client:
        task = await client.send('look_on', returnImmediately=True)
        await looking.wait()
        await client.call('CancelTask', {'id': task['id']})
        assert (await _stored(client, task))[0] == 'look_on'


async def test_turn_interrupted_by_tool_keeps_its_prompt() -> None:
    calling = TwoCallsAgent(ProcessHistory(rebuild_requests))

    @calling.agent.tool_plain
    def refuse() -> str:
        raise InputRequired('Why?')

    async with serving(calling.agent) as client:
        task = await client.send('refuse')
        for words in ('one', 'two'):
            assert state_of(task) == 'INPUT_REQUIRED'
            task = await client.send(message(words, taskId=task['id']))
        assert (await _stored(client, task))[:1] == ['refuse']
