"""Undocumented parts of Pydantic AI: each function names the public call that would replace the function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from copy import copy
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any, cast

from pydantic_ai import Agent
from pydantic_ai._output import OutputSchema
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CombinedCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset

from .approved_calls import as_json

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


async def next_with(run: AgentRun[Any, Any], node: Any, observe: Callable[[Any], Awaitable[None]]) -> Any:
    """Run a node inside of its hooks, and observe it there. Replaced by an `event_stream_handler` of `Agent.iter`."""

    async def step(node: Any) -> Any:
        await observe(node)
        return await run._stream_and_advance(node)  # pyright: ignore[reportPrivateUsage]

    return await run._run_node_with_hooks(node, step)  # pyright: ignore[reportPrivateUsage]


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


# --- agents at engines ------------------------------------------------------------------------------------------------


def in_workflow(durability: object) -> Any:
    """Return a capability for durable execution that checks as in a workflow. Replaced by its public checks."""
    kind = cast('type[Any]', type(durability))
    inside: Any = copy(durability)
    inside.__class__ = type(kind.__name__, (kind,), {'in_durable_context': True})
    return inside


def check_toolsets(inside: Any, toolsets: Iterable[AbstractToolset[Any]]) -> None:
    """Check toolsets of a run as each run in a workflow does.

    Raises:
        UserError: A toolset must belong to the agent from the beginning.
    """
    inside.get_wrapper_toolset(CombinedToolset([*toolsets]))


def check_tool_metadata(inside: Any, toolsets: Iterable[AbstractToolset[Any]]) -> None:
    """Check the metadata of function tools as each call in a workflow does.

    Raises:
        UserError: A tool has metadata that the engine refuses.
    """
    leaves: list[AbstractToolset[Any]] = []
    CombinedToolset([*toolsets]).apply(leaves.append)
    no_run: Any = SimpleNamespace(max_retries=0)
    for leaf in leaves:
        # A toolset that the engine does not wrap has no such function.
        check = getattr(inside.get_wrapper_toolset(leaf), '_resolve_tool_config', None)
        if check is not None and isinstance(leaf, FunctionToolset):
            for name, tool in leaf.tools.items():
                if tool.prepare is None:
                    check(leaf.tool_for_tool_def(tool.tool_def, ctx=no_run), name)


def check_capabilities(inside: Any, capabilities: Iterable[AbstractCapability[Any]]) -> None:
    """Check capabilities of a run as each run in a workflow does.

    Raises:
        UserError: A capability must belong to the agent from the beginning.
    """
    leaves: list[AbstractCapability[Any]] = []
    CombinedCapability([*capabilities]).apply(leaves.append)
    inside._validate_runtime_capabilities(None, leaves)


def capabilities_of(agent: AbstractAgent[Any, Any], spec: Any) -> Sequence[AbstractCapability[Any]]:
    """Return the capabilities of the `spec` of a run. Replaced by a public function of `AgentSpec`."""
    resolved = agent._resolve_spec(spec) if isinstance(agent, Agent) else None  # pyright: ignore[reportPrivateUsage]
    return () if resolved is None or resolved.capability is None else resolved.capability.capabilities


def check_model(inside: Any, model: Model) -> None:
    """Check a model as each request in a workflow does.

    Raises:
        UserError: The capability does not know the model.
    """
    inside._find_model_id(model)


def knows_name(inside: Any, name: str) -> bool:
    """Return whether a capability has a model of this name. Replaced by a public `models` of the capability."""
    return name in inside._models_by_id


def has_images(output_type: Any) -> bool:
    """Return whether a model may answer with an image. Replaced by a public `OutputSchema`."""
    return OutputSchema[Any].build(output_type).allows_image


def refuses_images(inside: Any) -> bool:
    """Return whether each request in a workflow is refused whose answer may be an image."""
    try:
        inside._validate_model_request_parameters(ModelRequestParameters(allow_image_output=True))
    except UserError:
        return True
    return False


def has_workspaces(inside: Any) -> bool:
    """Return whether runs in a workflow may have a workspace: a capability of the agent supplies workspaces."""
    return inside._bound_workspace_operation is not None


def was_changed(error: BaseException | None) -> bool | None:
    """Return whether a call at Temporal fails because the tools here were changed; None for another error.

    False for tools that are the same: a validator has refused an argument that it has changed before. In both cases, no
    tool was called. Replaced by an error of Pydantic AI for each of them.
    """
    if error is None:
        return None
    for frame, _ in walk_tb(error.__traceback__):  # functions of Pydantic AI, before the tool is called
        if frame.f_code.co_name == 'tool_for_tool_def':
            return True
        if frame.f_code.co_name == 'revalidate_function_args':
            tools, tool = frame.f_locals['toolset'].tools, frame.f_locals['tool']
            here = tools[tool.original_name].tool_def.parameters_json_schema
            return as_json(tool.tool_def.parameters_json_schema) != as_json(here)
    return was_changed(error.__cause__)
