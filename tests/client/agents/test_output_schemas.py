"""Answers by a schema of the caller: `A2AClient` and `RemoteAgent` with agents that take schemas of clients."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, StructuredDict
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import A2AClient, RemoteAgent, RemoteError, Results, to_a2a
from pydantic_ai_a2a.client.targets import Target

from .sample_agents import last_prompt


class Weather(BaseModel):
    """How the weather is."""

    city: str
    celsius: int


class Coded(BaseModel):
    code: Annotated[str, Field(pattern='^[A-Z]+$')]


PARIS: dict[str, Any] = {'city': 'Paris', 'celsius': 21}


def forecaster(**options: Any) -> Target:
    """An agent for text that takes schemas of clients."""
    agent = Agent(TestModel(custom_output_args=PARIS), name='forecaster', **options)
    return to_a2a(agent, results=Results(client_schemas=True))


def data_of(task: Any) -> Any:
    return task['artifacts'][0]['parts'][0]['data']['result']


@pytest.mark.parametrize(
    ('wanted', 'output'), [(Weather, Weather(**PARIS)), (StructuredDict(Weather.model_json_schema()), PARIS)]
)
async def test_client_requests_output_by_output_type(wanted: Any, output: Any) -> None:
    async with A2AClient(forecaster()) as client:
        result = await client.send('How is Paris?', output_type=wanted)
        assert (result.output, result.data) == (output, PARIS)
        updates = [update async for update in client.stream('How is Paris?', output_type=wanted)]
        assert updates[-1].result.output == output


@pytest.mark.parametrize(('takes_schemas', 'wanted'), [(True, Coded), (False, Weather)])
async def test_output_type_unsupported_by_agent_is_only_checked_locally(takes_schemas: bool, wanted: Any) -> None:
    app = to_a2a(Agent('test', name='plain'), results=Results(client_schemas=takes_schemas))
    async with A2AClient(app) as client:
        result = await client.send('How is Paris?', output_type=wanted)
        assert result.state == 'completed'
        with pytest.raises(RemoteError, match=f'The answer does not fit {wanted.__name__}: '):
            print(result.output)


async def test_remote_agent_requests_output_by_output_type() -> None:
    remote = RemoteAgent(forecaster(), Weather)
    ended = await remote.run('How is Paris?')
    assert ended.output == Weather(**PARIS)
    other = await RemoteAgent(forecaster()).run(
        'How is Paris?', output_type=StructuredDict(Weather.model_json_schema())
    )
    assert other.output == PARIS


def recording_agent(prompts: list[str]) -> Any:
    """An agent that notes its prompts and answers with JSON in words."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(last_prompt(messages))
        return ModelResponse(parts=[TextPart('{"code": "ABC"}')])

    return to_a2a(Agent(FunctionModel(answer), name='coder'), results=Results(client_schemas=True))


async def test_schema_unsupported_by_extension_is_sent_as_text() -> None:
    prompts: list[str] = []
    ended = await RemoteAgent(recording_agent(prompts), Coded).run('A code, please.')
    assert ended.output == Coded(code='ABC')
    assert 'Answer with JSON' in prompts[0]


async def test_output_schema_applies_after_approval() -> None:
    agent = Agent(TestModel(custom_output_args=PARIS), name='forecaster')
    agent.tool_plain(requires_approval=True)(look)
    async with A2AClient(to_a2a(agent, results=Results(client_schemas=True))) as client:
        remote = RemoteAgent(client, [Weather, DeferredToolRequests])
        first = await remote.run('How is Paris?')
        assert isinstance(first.output, DeferredToolRequests)
        [call] = first.output.approvals
        ended = await remote.run(
            message_history=first.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={call.tool_call_id: True}),
        )
    assert ended.output == Weather(**PARIS)


def look() -> str:
    return 'looked'
