"""Agents without a model: an outer agent that asks a remote one, and remote agents that answer, wait and fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext, RunUsage
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import A2A, AuthRequired, InputRequired, RemoteAgent

from ...agents import call_output_tool, model_that_calls, scripted_model, user_prompts


def last_prompt(messages: list[ModelMessage]) -> str:
    return user_prompts(messages)[-1]


def last_tool_results(messages: list[ModelMessage]) -> list[Any]:
    """What the tools of the last step have returned."""
    return [part for part in messages[-1].parts if part.part_kind in ('tool-return', 'retry-prompt')]


def calling_agent(
    *, name: str = 'caller', arguments: dict[str, Any] | None = None, tool: str | None = None, **options: Any
) -> Agent[Any, Any]:
    """An agent that calls the remote tool with the prompt, and returns the results of the tool as text."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if returned := last_tool_results(messages):
            texts = [
                part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()
                for part in returned
            ]
            return ModelResponse(parts=[TextPart(' | '.join(texts))])
        called = tool or info.function_tools[0].name
        return ModelResponse(
            parts=[ToolCallPart(called, arguments or {'message': last_prompt(messages)}, 'outer-call')]
        )

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for part in model(messages, info).parts:
            if isinstance(part, ToolCallPart):
                yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    return Agent(
        FunctionModel(model, stream_function=stream), output_type=[str, DeferredToolRequests], name=name, **options
    )


class HangingAgent:
    """A remote agent that never ends, and knows when it was reached and stopped."""

    def __init__(self) -> None:
        self.reached, self.stopped = asyncio.Event(), asyncio.Event()

        async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            self.reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()
            raise AssertionError

        self.agent = Agent(FunctionModel(model), name='stuck')


def echo_agent(name: str = 'echo') -> Agent[None, str]:
    """An agent that answers with what it was told, and with the number of earlier messages."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f'{last_prompt(messages)} ({len(messages) - 1})')])

    return Agent(FunctionModel(model), name=name, description='Repeats.')


def deleting_agent(deleted: list[str]) -> Agent[None, Any]:
    """An agent whose tool needs an approval."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if returned := last_tool_results(messages):
            return ModelResponse(parts=[TextPart(str(returned[0].content))])
        return ModelResponse(parts=[ToolCallPart('delete_file', {'path': last_prompt(messages)}, 'inner-call')])

    agent: Agent[None, Any] = Agent(FunctionModel(model), name='files')

    @agent.tool_plain(requires_approval=True)
    def delete_file(path: str) -> str:
        """Delete a file."""
        deleted.append(path)
        return f'deleted {path}'

    return agent


def agent_calling_tools(*calls: tuple[str, dict[str, Any]]) -> Agent:
    """An agent that calls tools at once, and answers with their results: an approval, a question, and a sign-in."""
    parts = [ToolCallPart(*call, f'call-{n}') for n, call in enumerate(calls)]
    agent = Agent(model_that_calls(parts), name='clerk')

    @agent.tool_plain(requires_approval=True)
    def delete_file(path: str) -> str:
        return f'{path} is deleted'

    @agent.tool_plain
    def ask(what: str) -> str:
        raise InputRequired(f'Which {what}?', {'type': 'string'})

    signed_in: list[bool] = []

    @agent.tool_plain
    def mail() -> str:
        if not signed_in:
            signed_in.append(True)
            raise AuthRequired('Please sign in.')
        return 'Lunch?'

    return agent


def asking_agent() -> Agent[None, str | InputRequired]:
    """An agent that asks a question of its own, and takes any answer."""
    model = scripted_model(call_output_tool(question='Which pizza?'), 'With salami.')
    return Agent(model, output_type=[str, InputRequired])


MakeAgent = Callable[[Any, str], AbstractAgent[Any, Any]]
"""Makes an agent with a name that calls a remote agent."""


def agent_with_remote_tool(target: Any, name: str) -> Agent[Any, Any]:
    """An agent whose tool calls the remote agent with the prompt."""
    return calling_agent(name=name, capabilities=[A2A(target)])


def agent_of_remote(target: Any, name: str) -> RemoteAgent[Any]:
    """The remote agent itself."""
    return RemoteAgent(target, name=name)


each_middle_agent = pytest.mark.parametrize('between', [agent_with_remote_tool, agent_of_remote])
"""Run a test with a tool, and with a remote agent, between the client and the innermost agent."""


def run_context() -> RunContext[None]:
    """The context of a run outside of which a toolset is called."""
    return RunContext(deps=None, model=TestModel(), usage=RunUsage(), tool_call_id='c', run_id='r')
