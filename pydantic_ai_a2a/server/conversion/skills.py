"""An agent's tools as skills of its card: `tool_skills` for users. No tool is run and no server is connected.

The one skill of an agent without skills is made in `card.template`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.tools import ToolDefinition

from ...types.a2a_objects import Skill
from ...wire.schemas.foreign_schemas import is_small
from .agent_tools import known_tools


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
        agent: The agent, after all its tools are registered. Tools of servers, such as MCP's, and of toolsets with
            their own `get_tools` are left out, because they are unknown before a run.
        names: Names of the tools to list, as the model sees them. Default None: all function tools.

    Raises:
        ValueError: `names` has a name that is no function tool of the agent.
    """
    known, _ = known_tools(agent.toolsets)
    tools = {name: tool for name, tool in known.items() if tool.kind != 'external'}
    if unknown := set(names or ()) - tools.keys():
        raise ValueError(
            f'The agent has no function tool {min(unknown)!r}. It has {", ".join(tools) or "none at all"}.'
        )
    return [_skill(name, tool) for name, tool in tools.items() if names is None or name in names]


def _skill(name: str, tool: ToolDefinition) -> Skill:
    description = tool.description or f'Calls the tool {name}.'
    # Skills without modes use the default modes of the card.
    skill = {'id': name, 'name': name, 'description': description, 'tags': ['tool']}
    schema = tool.parameters_json_schema
    return cast('Skill', {**skill, 'inputSchema': schema} if schema.get('properties') and is_small(schema) else skill)
