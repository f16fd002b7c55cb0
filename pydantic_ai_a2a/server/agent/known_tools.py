"""The names of an agent's tools, as far as known before a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.native_tools import AbstractNativeTool

from ...arguments import suggestion
from ..conversion import agent_tools
from .agent_inspection import all_capabilities
from .run_options import RunOptions


def check_tools(agent: AbstractAgent[Any, Any], options: RunOptions, argument: str, named: Collection[str]) -> None:
    """Refuse a name in an argument of `to_a2a` that is no tool of the agent, if all tools are known before a run.

    Raises:
        ValueError: There is no such tool.
    """
    tools, are_all = agent_tools.known_tools([*agent.toolsets, *(options.get('toolsets') or ())])
    if not named or not are_all or options.get('spec') is not None:
        return
    if any(map(_may_bring_tools, all_capabilities(agent, options))):
        return
    if unknown := sorted(set(named) - tools.keys()):
        names = ', '.join(sorted(tools)) or 'no tools'
        near = suggestion(unknown[0], tools)
        raise ValueError(f'{argument} has {unknown[0]!r}, but the agent has no such tool.{near} It has {names}.')


def known_names(agent: AbstractAgent[Any, Any], options: RunOptions) -> set[str]:
    """Return the names of the agent's tools, as far as known before a run: also of native tools.

    Providers such as Anthropic refuse a request if a tool has the name of a native tool, such as `web_search`.
    """
    tools, _ = agent_tools.known_tools([*agent.toolsets, *(options.get('toolsets') or ())])
    return set(tools).union(*map(_native_tools, all_capabilities(agent, options)))


def _native_tools(capability: object) -> set[str]:
    """Return the names of the native tools of a capability. A function that makes a native tool is left out."""
    if not isinstance(capability, AbstractCapability):
        return set()
    tools = cast('AbstractCapability[Any]', capability).get_native_tools() or ()
    return {tool.kind for tool in tools if isinstance(tool, AbstractNativeTool)}


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
