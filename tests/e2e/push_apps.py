"""Apps that call webhooks on this machine, and keep their tasks in a file where they are started, or elsewhere."""

from __future__ import annotations

from os import environ

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Push, to_a2a

from ..bounds import LIMIT
from ..fixed import fixed


def step(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Three calls of the tool, each with a note, and then the answer."""
    n = len(messages) // 2
    if n < 3:
        return ModelResponse(parts=[TextPart(f'Step {n}.'), ToolCallPart('work', {})])
    return ModelResponse(parts=[TextPart('Done.')])


agent = Agent(FunctionModel(step), name='notifier')


@agent.tool_plain
def work() -> str:
    return 'worked'


app = to_a2a(
    agent,
    backend=environ.get('APPS_BACKEND', 'sqlite:///agent.db'),
    push=fixed(
        Push, private_hosts=['127.0.0.1'], backoff=0.05, timeout=float(environ.get('APPS_TIMEOUT', LIMIT)), tries=20
    ),
)
