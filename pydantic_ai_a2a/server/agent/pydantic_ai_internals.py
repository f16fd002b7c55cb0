"""Undocumented parts of Pydantic AI: each function names the public call that would replace the function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset

Wrap = Callable[[AbstractCapability[Any]], AbstractCapability[Any]]
"""Returns a capability that calls another capability, or the same capability if already wrapped."""


def has_output_validators(agent: AbstractAgent[Any, Any]) -> bool:
    """Return True if an agent has output validators. Replaced by a public `Agent.output_validators`."""
    return bool(getattr(agent, '_output_validators', None))


def validates_output(run: AgentRun[Any, Any]) -> bool:
    """Return True if a run has output validators. Replaced by a public `Agent.output_validators`."""
    return bool(run.ctx.deps.output_validators)


def model_of(run: AgentRun[Any, Any]) -> Model:
    """Return the model of a run's next request. Replaced by a public `AgentRun.model`."""
    return run.ctx.deps.model


def tool_of(run: AgentRun[Any, Any], name: str) -> ToolDefinition | None:
    """Return a tool of a run's step. Replaced by a public `AgentRun.tools`."""
    return run.ctx.deps.tool_manager.get_tool_def(name)


def next_with(run: AgentRun[Any, Any], node: Any, observe: Callable[[Any], Awaitable[None]]) -> Awaitable[Any]:
    """Run a node inside of its hooks, and observe it there. Replaced by an `event_stream_handler` of `Agent.iter`."""

    async def step(node: Any) -> Any:
        await observe(node)
        return await run._stream_and_advance(node)  # pyright: ignore[reportPrivateUsage]

    return run._run_node_with_hooks(node, step)  # pyright: ignore[reportPrivateUsage]


def queue_of(run: AgentRun[Any, Any]) -> Sequence[Any]:
    """Return the enqueued messages of a run. Replaced by a public `AgentRun.pending_messages`."""
    return run.ctx.state.pending_messages


def capability_loads_of(run: AgentRun[Any, Any]) -> list[Any]:
    """Return the parts of `ctx.load_capability` for the next request. Replaced by a public list of the run."""
    queue: Any = run.ctx.state.pending_messages
    return [*queue._capability_loads]


def add_capability_loads(run: AgentRun[Any, Any], parts: Sequence[Any]) -> None:
    """Add parts of `capability_loads_of` to the next request. Replaced by a public `AgentRun.load_capability`."""
    queue: Any = run.ctx.state.pending_messages
    queue._capability_loads.extend(parts)


def set_prompt(run: AgentRun[Any, Any], prompt: str | Sequence[UserContent] | None) -> None:
    """Set the prompt of a run that resumes from messages. Replaced by an argument of `Agent.iter`."""
    run.ctx.deps.prompt = prompt


def allow_deferred_calls(run: AgentRun[Any, Any]) -> None:
    """Let a run end with deferred calls. Replaced by an argument of `Agent.iter`.

    As `output_type` of the run, `DeferredToolRequests` would build the output's schema anew for each run, and is
    refused for agents with output validators.
    """
    deps = run.ctx.deps
    if not deps.output_schema.allows_deferred_tools:
        deps.output_schema = copy(deps.output_schema)  # the agent's own is shared
        deps.output_schema.allows_deferred_tools = True


def wrap_all_hooks(run: AgentRun[Any, Any], wrap: Wrap) -> None:
    """Wrap all hooks of a run before its first step. Replaced by cheap capabilities of a run."""
    deps = run.ctx.deps  # once, because each `ctx` is a new context
    deps.root_capability = deps.tool_manager.root_capability = wrap(deps.root_capability)


def wrap_hooks(run: AgentRun[Any, Any], wrap: Wrap) -> None:
    """Wrap the hooks of a run's model requests, and of outputs without a tool. Replaced by cheap run capabilities."""
    deps = run.ctx.deps
    deps.root_capability = wrap(deps.root_capability)


def wrap_tool_hooks(run: AgentRun[Any, Any], wrap: Wrap) -> None:
    """Wrap the hooks of a run's tools and output functions. Replaced by cheap capabilities of a run."""
    tools = run.ctx.deps.tool_manager
    assert tools.root_capability is not None, 'Pydantic AI gives every run one'
    tools.root_capability = wrap(tools.root_capability)


def replace_toolset(run: AgentRun[Any, Any], replace: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]) -> None:
    """Replace toolsets of a run. Replaced by a hook of `Agent.iter` for the toolsets of a run."""
    tools = run.ctx.deps.tool_manager
    tools.toolset = tools.toolset.visit_and_replace(replace)


def wrap_toolset(run: AgentRun[Any, Any], wrap: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]) -> None:
    """Wrap all tools of a run in one toolset. Replaced by a hook of `Agent.iter` for the toolsets of a run."""
    tools = run.ctx.deps.tool_manager
    tools.toolset = wrap(tools.toolset)
