"""An agent whose tools wait for its user, over a file; runs in the servers' processes. The environment says which."""

from __future__ import annotations

from os import environ
from pathlib import Path

from pydantic_ai import Agent, CallDeferred
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import InputRequired, to_a2a

from ..behaviour.stage import prompts


def obey(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Calls the tools that the prompt names, each with its argument; then says all prompts and what came of it."""
    returned = [
        str(part.content)
        for sent in messages
        if isinstance(sent, ModelRequest)
        for part in sent.parts
        if isinstance(part, ToolReturnPart)
    ]
    calls = [each.split(':') for each in prompts(messages)[-1].split() if ':' in each]
    if calls and not returned:
        return ModelResponse(
            parts=[ToolCallPart(name, {'path': path}, f'c{n}') for n, (name, path) in enumerate(calls, 1)]
        )
    return ModelResponse(parts=[TextPart(' + '.join([*prompts(messages), *returned]))])


agent = Agent(FunctionModel(obey), name='Keeper')


@agent.tool_plain(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    with Path(environ['A2A_TEST_LEDGER']).open('a') as ledger:
        ledger.write(f'{path}\n')
    return f'deleted {path}'


@agent.tool_plain
def fetch(path: str) -> str:
    """Have somebody else fetch a file."""
    raise CallDeferred


@agent.tool_plain
def ask(path: str) -> str:
    """Ask the user."""
    raise InputRequired(f'What about {path}?')


app = to_a2a(agent, backend=environ['A2A_TEST_BACKEND'])
