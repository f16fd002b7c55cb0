"""The parts of Pydantic AI that it does not document: each function says which public call would replace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset

__all__ = (
    'allow_deferred_calls',
    'has_output_validators',
    'model_of',
    'replace_toolset',
    'set_prompt',
    'tool_of',
    'wrap_hooks',
    'wrap_tool_hooks',
)

Wrap = Callable[[AbstractCapability[Any]], AbstractCapability[Any]]
"""Returns a capability that calls another one, or the same capability if it does that already."""


def has_output_validators(agent: AbstractAgent[Any, Any]) -> bool:
    """Return True if an agent has output validators. A public `Agent.output_validators` would replace it."""
    return bool(getattr(agent, '_output_validators', None))


def model_of(run: AgentRun[Any, Any]) -> Model:
    """Return the model of a run's next request. A public `AgentRun.model` would replace it."""
    return run.ctx.deps.model


def tool_of(run: AgentRun[Any, Any], name: str) -> ToolDefinition | None:
    """Return a tool of a run's step. A public `AgentRun.tools` would replace it."""
    return run.ctx.deps.tool_manager.get_tool_def(name)


def set_prompt(run: AgentRun[Any, Any], prompt: str | Sequence[UserContent] | None) -> None:
    """Tell a run that goes on from its messages its prompt. An argument of `Agent.iter` would replace it."""
    run.ctx.deps.prompt = prompt


def allow_deferred_calls(run: AgentRun[Any, Any]) -> None:
    """Let a run end with deferred calls.

    An argument of `Agent.iter` would replace it. As `output_type` of the run, `DeferredToolRequests` would have the
    output's schema built anew for each run, and is refused for agents with output validators.
    """
    deps = run.ctx.deps
    if not deps.output_schema.allows_deferred_tools:
        deps.output_schema = copy(deps.output_schema)  # the agent's own is shared
        deps.output_schema.allows_deferred_tools = True


def wrap_hooks(run: AgentRun[Any, Any], wrap: Wrap) -> None:
    """Wrap the hooks of a run's streamed model requests. Cheap capabilities of a run would replace it."""
    run.ctx.deps.root_capability = wrap(run.ctx.deps.root_capability)


def wrap_tool_hooks(run: AgentRun[Any, Any], wrap: Wrap) -> None:
    """Wrap the hooks of a run's tools and output functions. Cheap capabilities of a run would replace it."""
    tools = run.ctx.deps.tool_manager
    assert tools.root_capability is not None, 'Pydantic AI gives every run one'
    tools.root_capability = wrap(tools.root_capability)


def replace_toolset(run: AgentRun[Any, Any], replace: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]) -> None:
    """Replace toolsets of a run. A hook of `Agent.iter` for the toolsets of a run would replace it."""
    tools = run.ctx.deps.tool_manager
    tools.toolset = tools.toolset.visit_and_replace(replace)
