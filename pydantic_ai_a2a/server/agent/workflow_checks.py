"""Checks of an agent whose runs are workflows of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, DynamicCapability, SetToolMetadata
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model

from .agent_inspection import all_capabilities, models_of, unwrapped_agent
from .run_options import RunOptions
from .workflow_internals import (
    capabilities_of,
    check_capabilities,
    check_model,
    check_tool_metadata,
    check_toolsets,
    has_images,
    has_workspaces,
    in_workflow,
    knows_name,
    refuses_images,
)


def check_in_workflow(durability: object, agent: AbstractAgent[Any, Any], options: RunOptions) -> None:
    """Refuse what Pydantic AI refuses in each run in a workflow, as far as known before the run.

    Args:
        durability: The capability of the agent for durable execution.
        agent: The agent.
        options: The options of every run.

    Raises:
        TypeError: A part of the agent, or an option, works outside of workflows only.
    """
    inside = in_workflow(durability)
    engine: str = inside.engine_name
    if refuses_images(inside) and has_images(options.get('output_type') or agent.output_type):
        raise TypeError(
            f'Pydantic AI refuses images as output of a model at {engine}. Show them with a2a(ctx).artifact in a tool,'
            ' or return them from an output function.'
        )
    if options.get('workspace') is not None and not has_workspaces(inside):
        raise TypeError(
            f'At {engine}, workspace= needs a capability of the agent that supplies workspaces:'
            " Agent(…, capabilities=[LocalWorkspace('.')])."
        )
    toolsets = (*agent.toolsets, *(options.get('toolsets') or ()))
    try:
        check_capabilities(inside, _capabilities_of_options(agent, options))
        check_toolsets(inside, toolsets)
        if not any(isinstance(capability, SetToolMetadata) for capability in all_capabilities(agent, {})):
            check_tool_metadata(inside, toolsets)
        for model in models_of(agent, options):
            if isinstance(model, Model) and model is not agent.model:
                check_model(inside, model)
    except UserError as error:
        raise TypeError(str(error)) from error
    _check_fallbacks(inside, agent, options)


def _check_fallbacks(inside: Any, agent: AbstractAgent[Any, Any], options: RunOptions) -> None:
    """Refuse the name of a fallback that no capability knows: only the first model of a run may have any name.

    Raises:
        TypeError: There is such a name.
    """
    kind = cast('type[Any]', type(inside))
    resolvers = {getattr(type(capability), 'resolve_model_id', None) for capability in all_capabilities(agent, {})}
    if resolvers - {AbstractCapability[Any].resolve_model_id, kind.resolve_model_id}:
        return
    for name in models_of(agent, options)[1:]:
        if isinstance(name, str) and not knows_name(inside, name):
            raise TypeError(
                f'ModelFallback has the model {name!r}, which a workflow cannot change to. Make it known:'
                f' {kind.__name__}(models={{{name!r}: …}}).'
            )


def _capabilities_of_options(agent: AbstractAgent[Any, Any], options: RunOptions) -> Iterator[AbstractCapability[Any]]:
    """Yield the capabilities of the options."""
    for capability in options.get('capabilities') or ():
        if isinstance(capability, AbstractCapability):
            yield cast('AbstractCapability[Any]', capability)
        else:
            yield DynamicCapability(capability)
    yield from capabilities_of(unwrapped_agent(agent), options.get('spec'))
