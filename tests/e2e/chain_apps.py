"""An agent that calls its peer as often as the message says: `3` calls with `2`. The environment names the peer."""

from __future__ import annotations

from os import environ

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, A2AClient, RemoteAgent, Workers, to_a2a


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    if isinstance(parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(f'{parts[-1].content}')])
    [*_, rest] = [int(str(part.content)) for part in parts if part.part_kind == 'user-prompt']
    if rest == 0:
        return ModelResponse(parts=[TextPart('done')])
    return ModelResponse(parts=[ToolCallPart('ask_agent' if rest % 2 else 'ask_client', {'rest': rest - 1})])


agent = Agent(FunctionModel(model), name='chain')


@agent.tool_plain
async def ask_agent(rest: int) -> str:
    """Ask the peer as an agent."""
    return (await RemoteAgent(environ['PEER']).run(str(rest))).output


@agent.tool_plain
async def ask_client(rest: int) -> str:
    """Ask the peer as a client, and return the answer or why there is none."""
    async with A2AClient(environ['PEER']) as client:
        task = (await client.send(str(rest))).outcome
    assert 'status' in task
    artifacts = task.get('artifacts') or [{'parts': [{'text': task['status']['state']}]}]
    return str(artifacts[0]['parts'][0].get('text'))


def make_app() -> A2AApp:
    return to_a2a(agent, workers=Workers(running=4))
