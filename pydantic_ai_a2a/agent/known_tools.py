"""The names of an agent's tools, as far as known before a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    ExternalToolset,
    FilteredToolset,
    FunctionToolset,
    PreparedToolset,
    WrapperToolset,
)

from ..arguments import suggestion
from .agent_inspection import all_capabilities
from .run_options import RunOptions

_SAME_TOOLS = (ApprovalRequiredToolset, FilteredToolset, PreparedToolset)
"""Toolsets with the tools of an inner toolset, under the same names."""


def check_tools(agent: AbstractAgent[Any, Any], options: RunOptions, argument: str, named: Collection[str]) -> None:
    """Refuse a name in an argument of `to_a2a` that is no tool of the agent, if all tools are known before a run.

    Raises:
        ValueError: There is no such tool.
    """
    tools, are_all = _tool_names([*agent.toolsets, *(options.get('toolsets') or ())])
    if not named or not are_all or options.get('spec') is not None:
        return
    if any(map(_may_bring_tools, all_capabilities(agent, options))):
        return
    if unknown := sorted(set(named) - tools):
        names = ', '.join(sorted(tools)) or 'no tools'
        near = suggestion(unknown[0], tools)
        raise ValueError(f'{argument} has {unknown[0]!r}, but the agent has no such tool.{near} It has {names}.')


def known_tools(agent: AbstractAgent[Any, Any], options: RunOptions) -> set[str]:
    """Return the names of the tools of the agent that are known before a run.

    Providers such as Anthropic refuse a request if a tool has the name of a native tool, such as `web_search`.
    """
    names, _ = _tool_names([*agent.toolsets, *(options.get('toolsets') or ())])
    return names.union(*map(_native_tools, all_capabilities(agent, options)))


def _native_tools(capability: object) -> set[str]:
    """Return the names of the native tools of a capability. A function that makes a native tool is left out."""
    if not isinstance(capability, AbstractCapability):
        return set()
    tools = cast('AbstractCapability[Any]', capability).get_native_tools() or ()
    return {tool.kind for tool in tools if isinstance(tool, AbstractNativeTool)}


def _tool_names(toolsets: Iterable[AbstractToolset[Any]]) -> tuple[set[str], bool]:
    """Return the names of tools; False if more tools are known in a run only, such as the tools of an MCP server."""
    names: set[str] = set()
    are_all = True
    for toolset in toolsets:
        complete = True
        if isinstance(toolset, FunctionToolset) and type(toolset).__module__.startswith('pydantic_ai.'):
            tools = {*toolset.tools}
        elif isinstance(toolset, ExternalToolset):
            tools = {tool.name for tool in toolset.tool_defs}
        elif isinstance(toolset, CombinedToolset):
            tools, complete = _tool_names(toolset.toolsets)
        elif isinstance(toolset, _SAME_TOOLS):
            tools, complete = _tool_names([cast('WrapperToolset[Any]', toolset).wrapped])
        else:
            tools, complete = set[str](), False
        names |= tools
        are_all = are_all and complete
    return names, are_all


def _may_bring_tools(capability: object) -> bool:
    if not isinstance(capability, AbstractCapability):
        return True
    kind = type(cast('AbstractCapability[Any]', capability))
    own = (kind.get_toolset, kind.get_native_tools, kind.get_wrapper_toolset) != (
        AbstractCapability.get_toolset,
        AbstractCapability.get_native_tools,
        AbstractCapability.get_wrapper_toolset,
    )
    return own and not kind.__module__.startswith('pydantic_ai.capabilities._')
