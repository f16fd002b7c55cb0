"""The tools of the local agent, and the names of its tools for pending calls."""

from __future__ import annotations

from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

APPROVAL = 'remote_approval'
"""Name of the tool whose calls are the remote calls that wait for an approval."""
QUESTION = 'remote_question'
"""Name of the tool whose calls are the remote questions, and the remote calls that wait for a result."""


def local_tools(parameters: ModelRequestParameters) -> dict[str, ToolDefinition]:
    """Return the tools of the local agent, by name, without the tools for pending calls."""
    return {tool.name: tool for tool in parameters.function_tools if tool.name not in (APPROVAL, QUESTION)}
