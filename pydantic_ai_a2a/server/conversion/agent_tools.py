"""The tools of an agent that are known before a run, for checks of names and for skills. No server is connected.

The names are those that the model sees. Pydantic AI has a few toolsets that change the names of an inner toolset. All
its other wrappers keep them: they filter or prepare the tools of a run, ask for approval, or run in a workflow. The
tools of a server, and those of a toolset with its own `get_tools`, are known in a run only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    WrapperToolset,
)


def known_tools(toolsets: Iterable[AbstractToolset[Any]]) -> tuple[dict[str, ToolDefinition], bool]:
    """Return the tools of toolsets by their names; False if there may be more tools in a run."""
    tools: dict[str, ToolDefinition] = {}
    are_all = True
    for toolset in toolsets:
        own, complete = _tools_of(toolset)
        tools |= own
        are_all = are_all and complete
    return tools, are_all


def _tools_of(toolset: AbstractToolset[Any]) -> tuple[Mapping[str, ToolDefinition], bool]:
    definer = next(kind for kind in type(toolset).__mro__ if 'get_tools' in vars(kind))
    if not definer.__module__.startswith('pydantic_ai.'):
        return {}, False
    if isinstance(toolset, FunctionToolset):
        return {name: tool.tool_def for name, tool in toolset.tools.items()}, True
    if isinstance(toolset, ExternalToolset):
        definitions = toolset.tool_defs
        return {tool.name: replace(tool, kind='external') for tool in definitions}, True
    if isinstance(toolset, CombinedToolset):
        return known_tools(toolset.toolsets)
    if not isinstance(toolset, WrapperToolset):
        return {}, False
    tools, are_all = _tools_of(toolset.wrapped)
    if isinstance(toolset, PrefixedToolset):
        prefix = toolset.prefix
        tools = {f'{prefix}_{name}': tool for name, tool in tools.items()}
    elif isinstance(toolset, RenamedToolset):
        names = {name: new for new, name in toolset.name_map.items()}
        tools = {names.get(name, name): tool for name, tool in tools.items()}
    return tools, are_all
