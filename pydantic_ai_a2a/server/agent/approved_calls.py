"""Approved calls: a tool that was changed since the approval is not called, because nobody has approved that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_core import from_json

from ...json_values import dump_json

logger = logging.getLogger('pydantic_ai_a2a')

_CHANGED = (
    'The tool was changed after the call was approved, so it was not called. Call it again if it is still needed.'
)
"""Result of the call, for the model."""


def schema_of(tool: ToolDefinition) -> dict[str, Any]:
    """Return what an approver sees of a tool: the JSON Schema of the parameters, with the tool's description."""
    return tool.parameters_json_schema | ({'description': tool.description} if tool.description else {})


def as_json(schema: dict[str, Any]) -> Any:
    """Return a schema as stores and engines return it: with lists in the place of tuples, and without NaN."""
    return from_json(dump_json(schema, inf_nan_mode='null'))


@dataclass
class AsApproved(WrapperToolset[Any]):
    """All tools of a run, of which an approved call reaches only the tool that the approver has seen."""

    approved: Mapping[str, dict[str, Any]]
    """What the approver has seen of the tool, by the id of the call."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool, unless the call was approved for another one."""
        seen = self.approved.get(ctx.tool_call_id or '') if ctx.tool_call_approved else None
        if seen is not None and (now := schema_of(tool.tool_def)) != seen and as_json(now) != as_json(seen):
            logger.warning('The tool %s was changed after a call was approved: the call is not carried out.', name)
            return _CHANGED
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)
