"""The tools of the client in a run: external tools, whose calls end the run until the client has answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, ToolsetTool, WrapperToolset

from ...errors import ToolConflict
from .pydantic_ai_internals import wrap_toolset


def add_client_tools(run: AgentRun[Any, Any], tools: Sequence[ToolDefinition]) -> None:
    """Add tools of the client to all tools of a run.

    The tools are not an argument `toolsets` of the run: `agent.override(toolsets=...)` would drop them, and Pydantic
    AI's error about two tools with a name would be an error of the agent.
    """
    client = ExternalToolset[Any]([*tools])
    wrap_toolset(run, lambda toolset: _WithClientTools(toolset, client))


@dataclass
class _WithClientTools(WrapperToolset[Any]):
    """All tools of a run, also those for structured outputs, and the tools of the client."""

    client: ExternalToolset[Any]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools of a step.

        Raises:
            ToolConflict: The agent has a tool with the name of a tool of the client, such as a tool of an MCP server.
        """
        tools, added = await self.wrapped.get_tools(ctx), await self.client.get_tools(ctx)
        if taken := sorted(tools.keys() & added.keys()):
            raise ToolConflict(taken)
        return {**tools, **added}
