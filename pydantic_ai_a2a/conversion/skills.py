"""An agent's tools as skills of its card. No tool is run and no server is connected."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from ..types import Skill
from .foreign_schemas import is_small


def tool_skills(agent: AbstractAgent[Any, Any], names: Collection[str] | None = None) -> list[Skill]:
    """An agent's function tools as skills of its card: names, descriptions and JSON Schemas of the arguments.

    Everybody who reads the card reads them.

    ```python
    from pydantic_ai import Agent

    from pydantic_ai_a2a import to_a2a, tool_skills

    agent = Agent('test')


    @agent.tool_plain(description='Tell how the weather will be.')
    def forecast(city: str) -> str:
        return f'Sunny in {city}.'


    app = to_a2a(agent, skills=tool_skills(agent))
    ```

    Args:
        agent: The agent, after all its tools are registered. Tools of servers, such as MCP's, are left out, because
            they are unknown before a run.
        names: Names of the tools to list, as registered with the agent. Default None: all function tools.

    Raises:
        ValueError: `names` has a name that is no function tool of the agent.
    """
    tools = _tools(agent)
    if unknown := set(names or ()) - tools.keys():
        raise ValueError(
            f'The agent has no function tool {min(unknown)!r}. It has {", ".join(tools) or "none at all"}.'
        )
    return [_skill(name, tool) for name, tool in tools.items() if names is None or name in names]


def _tools(agent: AbstractAgent[Any, Any]) -> dict[str, Tool[Any]]:
    tools: dict[str, Tool[Any]] = {}

    def visit(toolset: AbstractToolset[Any]) -> None:
        if isinstance(toolset, FunctionToolset):
            tools.update(toolset.tools)

    for toolset in agent.toolsets:
        toolset.apply(visit)
    return tools


def _skill(name: str, tool: Tool[Any]) -> Skill:
    description = tool.description or f'Calls the tool {name}.'
    # Skills without modes use the default modes of the card.
    skill = {'id': name, 'name': name, 'description': description, 'tags': ['tool']}
    schema = tool.tool_def.parameters_json_schema
    return cast('Skill', {**skill, 'inputSchema': schema} if schema.get('properties') and is_small(schema) else skill)
