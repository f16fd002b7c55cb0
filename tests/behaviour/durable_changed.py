"""An agent that was changed, or not yet, at an engine or without one; runs in the servers' processes.

The environment says how it was changed, and which engine there is.
"""

from __future__ import annotations

from datetime import timedelta
from os import environ
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from temporalio.workflow import ActivityConfig

from pydantic_ai_a2a import Workers, to_a2a
from pydantic_ai_a2a.engines.dbos import DBOS
from pydantic_ai_a2a.engines.temporal import Temporal
from pydantic_ai_a2a.server.runs.engine import Engine

from ..e2e.gates import ROUTES, gates

FOLDER = Path(environ['A2A_TEST_FOLDER'])
CHANGE = environ['A2A_TEST_CHANGE']
ENGINE = environ['A2A_TEST_ENGINE']


def note(line: str) -> None:
    with (FOLDER / 'ledger.txt').open('a') as ledger:
        ledger.write(f'{line}\n')


class City(BaseModel):
    city: str


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls the tool, and then answers with what it heard from the tool."""
    heard = [part.content for sent in messages for part in sent.parts if isinstance(part, ToolReturnPart)]
    note(f'model-{len(messages)}')
    if not any(isinstance(part, ToolCallPart) for sent in messages for part in sent.parts):
        return ModelResponse(parts=[ToolCallPart('look', {'city': 'Rome'}, 'c1')])
    if info.output_tools:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'city': str(heard)}, 'o1')])
    return ModelResponse(parts=[TextPart(str(heard))])


async def look(city: str) -> str:
    note(f'look {city}')
    await gates['look'].wait()
    return f'saw {city}'


async def look_at(city: str) -> str:
    note(f'look_at {city}')
    return f'looked at {city}'


async def look_around(city: str, country: str) -> str:
    note(f'look_around {city} {country}')
    return f'looked around {city}'


async def look_in(city: str, country: str = 'Italy') -> str:
    note(f'look_in {city} {country}')
    return f'looked in {city}'


TOOLS: dict[str, dict[str, Any]] = {
    'renamed': {'look_at': look_at},
    'parameters': {'look': look_around},
    'default': {'look': look_in},
}
CAPABILITIES: dict[str, list[AbstractCapability[Any]]] = {
    'dbos': [DBOSDurability()],
    # Without `maximum_attempts`: Temporal tries again for ever.
    'temporal': [
        TemporalDurability(
            activity_config=ActivityConfig(
                start_to_close_timeout=timedelta(minutes=10), heartbeat_timeout=timedelta(seconds=1)
            )
        )
    ],
}
tools = FunctionToolset[object](id='other' if CHANGE == 'toolset' else 'tools')
for name, function in TOOLS.get(CHANGE, {'look': look}).items():
    tools.add_function(function, name=name, requires_approval=environ['A2A_TEST_APPROVAL'] == '1')
agent: Agent[object, Any] = Agent(
    FunctionModel(model),
    name='agent',
    output_type=City if CHANGE == 'output' else str,
    toolsets=[tools],
    model_settings={'temperature': 0.5} if CHANGE == 'settings' else None,
    capabilities=CAPABILITIES.get(ENGINE, []),
)


def engine() -> Engine | None:
    """The engine of the environment."""
    if ENGINE == 'dbos':
        return DBOS(f'sqlite:///{FOLDER}/dbos.db')
    if ENGINE == 'temporal':
        return Temporal(environ['A2A_TEST_TEMPORAL'], task_queue=environ['A2A_TEST_QUEUE'])
    return None


app = to_a2a(
    agent,
    name='agent',
    backend=f'sqlite:///{FOLDER}/agent.db',
    engine=engine(),
    routes=ROUTES,
    workers=Workers(lease=1.0, drain_grace=1.0),
)
