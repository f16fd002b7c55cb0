"""Messages that tools enqueue reach the model also if the run is tried again or goes on in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, RunContext
from pydantic_ai.capabilities import Capability
from pydantic_ai.exceptions import ModelHTTPError
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

from pydantic_ai_a2a import Messages, Workers

from ...app_client import message, texts
from ...constants import with_constants
from ...serving import wait_until_ended
from ..durable_handover import serving_until_handover, start_task

IMAGE = BinaryContent(b'\xff\x00', media_type='image/png')
LATER: list[Any] = ['First later.', 'Second later.']


def texts_of_messages(messages: list[ModelMessage]) -> list[str]:
    """What the model has been told in its conversation, in order: prompts, results and its own texts."""
    found: list[str] = []
    for part in (part for sent in messages for part in sent.parts):
        if isinstance(part, UserPromptPart):
            content = [part.content] if isinstance(part.content, str) else part.content
            found += [item.data.hex() if isinstance(item, BinaryContent) else str(item) for item in content]
        elif isinstance(part, (ToolReturnPart, TextPart)):
            found.append(str(part.content))
    return found


class Enqueues:
    """An agent that calls a tool, which enqueues messages, and answers; with faults or pauses at requests.

    Args:
        fails_at: Numbers of requests at which the model is not available.
    """

    def __init__(self, *fails_at: int) -> None:
        self.requests: list[list[str]] = []
        """What the model was told, for each request."""
        self.reached: asyncio.Event | None = None
        self.before_note: Callable[[], Awaitable[object]] | None = None
        """Awaited by the tool."""
        self._fails_at = fails_at
        self._hold_at = 0
        self.agent: Agent[object, str] = Agent(FunctionModel(self._answer), name='agent')
        self.agent.tool(self.note)

    def hold(self, request: int) -> asyncio.Event:
        """Let a request wait for ever."""
        self._hold_at, self.reached = request, asyncio.Event()
        return self.reached

    async def note(self, ctx: RunContext[object]) -> str:
        if self.before_note is not None:
            await self.before_note()
        ctx.enqueue('See this.', IMAGE)
        for text in LATER:
            ctx.enqueue(text, priority='when_idle')
        ctx.enqueue(ModelRequest(parts=[UserPromptPart('At once.')]))
        return 'noted'

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.requests.append(texts_of_messages(messages))
        number = len(self.requests)
        if number in self._fails_at:
            raise ModelHTTPError(503, 'model')
        if number == self._hold_at:
            assert self.reached is not None
            self.reached.set()
            await asyncio.Event().wait()
        if LATER[-1] in self.requests[-1]:
            return ModelResponse(parts=[TextPart('Done.')])
        if 'noted' in self.requests[-1]:
            return ModelResponse(parts=[TextPart('Read all.')])
        return ModelResponse(parts=[ToolCallPart('note', {}, 'c1')])


NOTED = ['go', 'noted', 'See this.', 'ff00', 'At once.']
WHOLE = [*NOTED, 'Read all.', *LATER]
TRIED = with_constants(Workers, backoff=0.001, drain_grace=0.01)


@pytest.fixture(params=['sqlite', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == 'postgres':
        return request.getfixturevalue('postgres_tables_url')
    return f'sqlite:///{tmp_path}/agent.db'


async def conversation(client: Any) -> list[str]:
    """What the stored conversation says, without the last answer."""
    stored = await client.messages_of('c')
    assert all(sent.metadata is None for sent in stored)
    return texts_of_messages(stored)[:-1]


@pytest.mark.parametrize('fails_at', [(2,), (3,), (2, 3), (2, 4, 5)])
async def test_enqueued_messages_reach_model_after_retry(fails_at: tuple[int, ...], url: str) -> None:
    agent = Enqueues(*fails_at)
    async with serving_until_handover(agent.agent, backend=url, workers=TRIED) as client:
        task = await client.send(message('go', contextId='c'))
        assert await conversation(client) == WHOLE
    assert (texts(task), agent.requests[-1]) == (['Done.'], WHOLE)
    assert [told for n, told in enumerate(agent.requests, 1) if n not in fails_at][1] == NOTED


@pytest.mark.parametrize('held', [2, 3])
async def test_enqueued_messages_reach_model_after_handover(held: int, url: str) -> None:
    agent = Enqueues()
    reached = agent.hold(held)
    async with serving_until_handover(agent.agent, backend=url) as client:
        task_id = await start_task(client, 'go')
        await reached.wait()
    async with serving_until_handover(agent.agent, backend=url) as client:
        await wait_until_ended(client, task_id)
        assert await conversation(client) == WHOLE
    assert agent.requests == [['go'], NOTED, *([NOTED] if held == 2 else [WHOLE]), WHOLE]


async def test_client_and_enqueued_messages_reach_model_once(url: str) -> None:
    agent, noting, sent = Enqueues(2), asyncio.Event(), asyncio.Event()

    async def wait_for_client() -> None:
        noting.set()
        await sent.wait()

    agent.before_note = wait_for_client
    async with serving_until_handover(
        agent.agent, backend=url, workers=TRIED, messages=Messages(while_working='steer')
    ) as client:
        task_id = await start_task(client, 'go')
        await noting.wait()
        await client.send(message('And this.', taskId=task_id), returnImmediately=True)
        sent.set()
        await wait_until_ended(client, task_id)
        assert await conversation(client) == [*NOTED, 'And this.', 'Read all.', *LATER]


async def test_canceled_run_leaves_no_enqueue_metadata(url: str) -> None:
    agent = Enqueues()
    reached = agent.hold(2)
    async with serving_until_handover(agent.agent, backend=url) as client:
        task_id = await start_task(client, 'go')
        await reached.wait()
    reached = agent.hold(3)
    async with serving_until_handover(agent.agent, backend=url) as client:
        await reached.wait()
        await client.call('CancelTask', {'id': task_id})
        stored = await client.messages_of('c')
    assert all(sent.metadata is None for sent in stored)


async def test_retry_resets_metadata_but_keeps_usage(url: str) -> None:
    seen: list[Any] = []
    requests = 0

    async def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        nonlocal requests
        requests += 1
        if requests == 2:
            raise ModelHTTPError(503, 'model')
        calls = len([sent for sent in messages if isinstance(sent, ModelResponse)])
        return ModelResponse(parts=[ToolCallPart('ask', {}, f'c{calls}') if calls < 2 else TextPart('Done.')])

    other = Agent(FunctionModel(lambda messages, _: ModelResponse(parts=[TextPart('yes')])))
    agent: Agent[object, str] = Agent(FunctionModel(model), name='agent')

    @agent.tool
    async def ask(ctx: RunContext[object]) -> str:
        assert ctx.metadata is not None
        seen.append(ctx.metadata.get('seen'))
        ctx.metadata['seen'] = ctx.tool_call_id
        return (await other.run('?', usage=ctx.usage)).output

    async with serving_until_handover(agent, backend=url, workers=TRIED) as client:
        await client.send(message('go', contextId='c'))
        record = await client.a2a_app.conversations().read_record('c')
    assert record is not None
    assert (seen, record.usage.requests, record.usage.tool_calls) == ([None, None], 3 + 2, 2)


async def test_capability_loaded_by_tool_survives_retry(url: str) -> None:
    offered: list[list[str]] = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append(sorted(tool.name for tool in info.function_tools if tool.name != 'load_capability'))
        if len(offered) == 2:
            raise ModelHTTPError(503, 'model')
        called = texts_of_messages(messages)
        return ModelResponse(parts=[TextPart('Done.') if 'loaded' in called else ToolCallPart('unlock', {}, 'c1')])

    agent: Agent[object, str] = Agent(FunctionModel(model), name='agent', capabilities=[vault_of()])

    @agent.tool
    def unlock(ctx: RunContext[object]) -> str:
        assert ctx.load_capability('vault')
        return 'loaded'

    async with serving_until_handover(agent, backend=url, workers=TRIED) as client:
        assert texts(await client.send(message('go', contextId='c'))) == ['Done.']
    assert offered[1:] == [['open_vault', 'unlock']] * 2


def vault_of() -> Capability[object]:
    def open_vault() -> str:
        raise AssertionError

    return Capability(id='vault', description='A vault.', tools=[open_vault], defer_loading=True)
