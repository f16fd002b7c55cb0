"""What is known of an agent before a run: its models, capabilities and dependencies, and what they may do in a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.capabilities import (
    AbstractCapability,
    DynamicCapability,
    Hooks,
    ModelFallback,
    ProcessHistory,
    WrapperCapability,
)
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from .pydantic_ai_internals import has_output_validators
from .run_options import RunOptions

NO_MODEL = 'The agent has no model: give one to Agent(...), to_a2a(agent, model=...) or agent.override(model=...).'
NO_DEPS = (
    'The agent has a deps_type, and its runs have no deps: give them to to_a2a(agent, deps=...),'
    ' to_a2a(agent, deps_factory=...) or agent.override(deps=...).'
)
NO_ENGINE = 'The agent has the capability %s, which acts in workflows only. Without engine=, tasks run outside of them.'
_USERS_CODE = (DynamicCapability, Hooks, ProcessHistory, WrapperCapability)
"""Capabilities of Pydantic AI that call or hold user code."""


def may_have_own_output(agent: AbstractAgent[Any, Any]) -> bool:
    """Return True if Pydantic AI lets a run have its own output type: the agent has no output validators."""
    return not has_output_validators(unwrapped_agent(agent))


def models_of(agent: AbstractAgent[Any, Any], options: RunOptions) -> list[Model | str]:
    """Return the models that a run may use, as far as known before the run.

    Included are the model of the options or of the agent, and the models of each `ModelFallback` capability. Models
    from `agent.override` or a model selector are unknown before the run.
    """
    model = options.get('model') or agent.model
    models: list[Model | str] = [] if model is None else [model]
    for capability in all_capabilities(agent, options):
        if isinstance(capability, ModelFallback):
            models += cast('ModelFallback[Any]', capability).models
    return models


def may_have_model(agent: AbstractAgent[Any, Any], options: RunOptions) -> bool:
    """Return whether a run may have a model without `agent.override`: an option, the agent's, or a capability's."""
    if models_of(agent, options) or options.get('spec') is not None or not isinstance(unwrapped_agent(agent), Agent):
        return True
    return any(
        not isinstance(capability, AbstractCapability)
        or isinstance(capability, _USERS_CODE)
        or type(cast('AbstractCapability[Any]', capability)).get_model is not AbstractCapability.get_model
        for capability in all_capabilities(agent, options)
    )


def durability(agent: AbstractAgent[Any, Any], options: RunOptions) -> str | None:
    """Return the name of a capability for durable execution; None if the agent has none."""
    kinds = (type(capability) for capability in all_capabilities(agent, options))
    # By name: the modules of engines take long to import.
    return next((kind.__name__ for kind in kinds if kind.__module__.startswith('pydantic_ai.durable_exec.')), None)


def lacks_deps(agent: AbstractAgent[Any, Any], options: RunOptions) -> bool:
    """Return whether the tools of the agent expect dependencies that the options of a run do not have."""
    kind = cast('object', agent.deps_type)
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return not any(kind in (object, Any, type(None)) for kind in kinds) and 'deps' not in options


def may_change_history(agent: AbstractAgent[Any, Any], options: RunOptions) -> bool:
    """Return whether messages may be changed in place on their way to the model, as by a history processor.

    Pydantic AI and its own capabilities never change the messages of a history.
    """
    if not isinstance(unwrapped_agent(agent), Agent) or options.get('spec') is not None:
        return True
    return any(
        isinstance(capability, _USERS_CODE) or not type(capability).__module__.startswith('pydantic_ai.')
        for capability in all_capabilities(agent, options)
    )


def may_prepare_tools(agent: AbstractAgent[Any, Any], options: RunOptions) -> bool:
    """Return whether a tool has a `prepare` function."""
    leaves: list[AbstractToolset[Any]] = []
    for toolset in (*agent.toolsets, *(options.get('toolsets') or ())):
        toolset.apply(leaves.append)
    functions = (leaf for leaf in leaves if isinstance(leaf, FunctionToolset))
    return any(tool.prepare is not None for leaf in functions for tool in leaf.tools.values())


def unwrapped_agent(agent: AbstractAgent[Any, Any]) -> AbstractAgent[Any, Any]:
    """Return the agent without its wrappers."""
    while isinstance(agent, WrapperAgent):
        agent = agent.wrapped
    return agent


def all_capabilities(agent: AbstractAgent[Any, Any], options: RunOptions) -> Iterator[object]:
    """Yield the capabilities of each run, with nested ones. A function that makes a capability is yielded as such."""
    nested: list[AbstractCapability[Any]] = []
    with suppress(NotImplementedError):  # a user's own agent class may have none
        agent.root_capability.apply(nested.append)
    for capability in options.get('capabilities') or ():
        if isinstance(capability, AbstractCapability):
            cast('AbstractCapability[Any]', capability).apply(nested.append)
        else:
            yield capability
    yield from nested
