"""The methods of a Pydantic AI agent on a remote agent: run_sync, iter, run_stream_events, override, to_cli."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.exceptions import CallDeferred, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, PartStartEvent, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResultEvent

from pydantic_ai_a2a import A2A, AuthRequired, RemoteAgent, serve

from ...bounds import LIMIT
from .sample_agents import calling_agent, echo_agent, last_tool_results


async def test_iter_yields_nodes_of_run() -> None:
    async with asyncio.timeout(LIMIT), RemoteAgent(echo_agent()).iter('hello') as run:
        nodes = [type(node).__name__ async for node in run]
    assert nodes == ['UserPromptNode', 'ModelRequestNode', 'CallToolsNode', 'End']
    assert run.result is not None
    assert run.result.output == 'hello (0)'


async def test_run_stream_events_yields_text_and_result() -> None:
    async with asyncio.timeout(LIMIT), RemoteAgent(echo_agent()).run_stream_events('hello') as stream:
        events = [event async for event in stream]
    assert ''.join(
        event.part.content for event in events if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart)
    )
    assert isinstance(events[-1], AgentRunResultEvent)
    assert events[-1].result.output == 'hello (0)'


async def test_terminal_chat_keeps_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr('pydantic_ai._cli.PYDANTIC_AI_HOME', tmp_path)
    async with asyncio.timeout(LIMIT), RemoteAgent(echo_agent()) as remote:
        with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
            for line in ('hello', 'again', '/exit'):
                keys.send_text(f'{line}\n')
            await remote.to_cli()
    written = capsys.readouterr().out
    assert 'hello (0)' in written
    assert 'again (2)' in written


async def test_override_replaces_name_model_and_instructions() -> None:
    remote = RemoteAgent(echo_agent(), name='far')
    assert remote.name == 'far'
    with remote.override(name='near', instructions='Be brief.'):
        assert remote.name == 'near'
        assert (await remote.run('hello')).output == "['hello', 'Be brief.'] (0)"
    with remote.override(model=TestModel(custom_output_text='offline', call_tools=[])):
        assert (await remote.run('hello')).output == 'offline'
    assert (await remote.run('hello')).output == 'hello (0)'


@pytest.mark.parametrize('http', [True, False])
@pytest.mark.parametrize('as_tool', [True, False])
def test_agent_runs_in_several_event_loops(http: bool, as_tool: bool) -> None:
    def ask(target: Any) -> list[Any]:
        agent: Any = calling_agent(capabilities=[A2A(target)]) if as_tool else RemoteAgent(target)

        async def output(prompt: str) -> str:
            result: Any = await agent.run(prompt)
            return result.output

        async def twice() -> list[str]:
            async with asyncio.timeout(LIMIT):
                return [*await asyncio.gather(output('a'), output('b'))]

        with asyncio.Runner() as runner:
            asyncio.set_event_loop(runner.get_loop())
            synchronous = agent.run_sync('c').output
        return [*asyncio.run(twice()), *asyncio.run(twice()), synchronous]

    if http:
        with serve(echo_agent()) as server:
            answers = ask(server.url)
    else:
        answers = ask(echo_agent())
    assert answers == ['a (0)', 'b (0)', 'a (0)', 'b (0)', 'c (0)']


@pytest.mark.parametrize(
    ('answer', 'told'), [(7, 'weighs 7'), ({'kg': 7}, "weighs {'kg': 7}"), (ModelRetry('Ask another.'), 'Ask another.')]
)
async def test_external_call_result_is_sent_with_next_run(answer: Any, told: str) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if returned := last_tool_results(messages):
            return ModelResponse(parts=[TextPart(f'It weighs {returned[0].content}')])
        return ModelResponse(parts=[ToolCallPart('weigh', {'unit': 'kg'}, 'inner')])

    inner: Agent[None, Any] = Agent(FunctionModel(model), name='scales')

    @inner.tool_plain
    def weigh(unit: str) -> int:
        raise CallDeferred

    remote = RemoteAgent(inner, [str, DeferredToolRequests])
    async with asyncio.timeout(LIMIT), remote:
        first = await remote.run('How heavy is it?')
        assert isinstance(first.output, DeferredToolRequests)
        [call] = first.output.calls
        assert call.tool_name == 'remote_question'
        assert call.args_as_dict()['tool'] == 'weigh'
        assert call.args_as_dict()['args'] == {'unit': 'kg'}
        results = DeferredToolResults(calls={call.tool_call_id: answer})
        second = await remote.run(message_history=first.all_messages(), deferred_tool_results=results)
        assert told in str(second.output)


async def test_sign_in_is_output_with_schemes_and_url() -> None:
    prompts: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(str(messages[-1]))
        if len(prompts) == 1:
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {})])
        return ModelResponse(parts=[TextPart('Your mail.')])

    def sign_in() -> AuthRequired:
        raise AuthRequired('Please sign in.', schemes=['sso'], url='https://sso.example.com/')

    remote = RemoteAgent(Agent(FunctionModel(model), output_type=[str, sign_in], name='mail'))
    async with asyncio.timeout(LIMIT), remote:
        first = await remote.run('Read my mail.')
        assert first.output == 'Please sign in.'
        details = first.response.provider_details or {}
        assert details['state'] == 'auth-required'
        assert details['authorization'] == {'schemes': ['sso'], 'url': 'https://sso.example.com/'}
        second = await remote.run('I am in.', message_history=first.all_messages())
        assert second.output == 'Your mail.'
