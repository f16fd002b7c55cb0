"""Undocumented parts of Pydantic AI's agents at engines: the checks of runs and requests in a workflow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any, cast

from pydantic_ai import Agent
from pydantic_ai._output import OutputSchema
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CombinedCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset

from .approved_calls import as_json


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
