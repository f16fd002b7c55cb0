"""Remote agents as tools of an agent at an engine: what is taken works as without one, and the rest is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import DynamicToolset

from pydantic_ai_a2a import A2A, A2AToolset, to_a2a

from ...agents import user_prompts
from ...app_client import lifespan, state_of
from ...engines import TemporalSetup
from ...serving import serving
from ..pending_calls import ApprovalAgent

remote = ApprovalAgent(name='remote')
"""Deletes a path, once somebody approves it."""


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Pass the prompt on to the remote agent, and answer with what it has answered."""
    parts = [part for sent in messages for part in sent.parts]
    if isinstance(parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(f'It says: {parts[-1].content}')])
    [tool] = [tool.name for tool in info.function_tools]
    return ModelResponse(parts=[ToolCallPart(tool, {'message': user_prompts(messages)[-1]})])


@asynccontextmanager
async def remote_app() -> AsyncGenerator[Any]:
    app = to_a2a(remote.agent)
    async with lifespan(app):
        yield app


REFUSED: dict[str, dict[str, Any]] = {
    'capability': {'capabilities': [A2A('https://example.com')]},
    'toolset': {'toolsets': [A2AToolset('https://example.com')]},
    'prefixed toolset': {'toolsets': [A2AToolset[Any]('https://example.com').prefixed('remote')]},
}


@pytest.mark.parametrize('case', REFUSED)
def test_temporal_refuses_remote_agent_outside_dynamic_toolset(tmp_path: Path, temporal: str, case: str) -> None:
    kit = TemporalSetup(tmp_path, temporal)
    agent = kit.agent(TestModel(), **REFUSED[case])
    with pytest.raises(TypeError, match=r"DynamicToolset\(lambda ctx: A2AToolset\(…, context='call'\)"):
        to_a2a(agent, **kit.options())


async def test_temporal_dynamic_toolset_failure_names_context_setting(
    tmp_path: Path, temporal: str, caplog: pytest.LogCaptureFixture
) -> None:
    kit = TemporalSetup(tmp_path, temporal)
    async with remote_app() as app:

        def toolset(ctx: RunContext[Any]) -> A2AToolset[Any]:
            return A2AToolset(app)

        agent = kit.agent(FunctionModel(model), toolsets=[DynamicToolset(toolset, id='remote')])
        async with serving(agent, **kit.options()) as client:
            assert state_of(await client.send('hello')) == 'FAILED'
    assert "Use context='call'." in caplog.text


def test_temporal_refuses_remote_agent_in_app_toolsets(tmp_path: Path, temporal: str) -> None:
    kit = TemporalSetup(tmp_path, temporal)
    toolset: A2AToolset[Any] = A2AToolset('https://example.com')
    with pytest.raises(TypeError, match='which has no network'):
        to_a2a(kit.agent(TestModel()), toolsets=[toolset], **kit.options())
