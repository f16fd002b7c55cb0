"""The options of every run of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, Literal

from pydantic_ai import AgentSpec
from pydantic_ai.agent import (
    AgentInstructions,  # pyright: ignore[reportPrivateImportUsage] - in Agent.run's signature, but exported nowhere
    AgentRetries,
)
from pydantic_ai.agent.abstract import AgentMetadata, AgentModelSettings
from pydantic_ai.capabilities import AgentCapability
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.output import OutputSpec
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import UsageLimits
from pydantic_ai.workspaces import WorkspaceBackend, WorkspaceRef
from typing_extensions import TypedDict, TypeVar

DepsT = TypeVar('DepsT', default=Any)


class CommonRunOptions(TypedDict, Generic[DepsT], total=False):
    """The `RunOptions` without `output_type`, whose presence chooses the overload of `to_a2a`."""

    model: Model | KnownModelName | str | None
    """Instead of the agent's own."""
    instructions: AgentInstructions[DepsT] | None
    """In addition to the agent's own."""
    deps: DepsT
    """The same object for every run."""
    model_settings: AgentModelSettings[DepsT] | None
    """Merged over the agent's own, setting by setting."""
    usage_limits: UsageLimits | None
    """A task beyond the limits is `failed`."""
    timeout: timedelta | float | None
    """Time for a run, as a `timedelta` or in seconds; a longer task is `failed`."""
    metadata: AgentMetadata[DepsT] | None
    """In addition to the agent's own. The value of `a2a` is always a `RunInfo`."""
    retries: int | AgentRetries | None
    """Instead of the agent's own."""
    toolsets: Sequence[AbstractToolset[DepsT]] | None
    """In addition to the agent's own."""
    capabilities: Sequence[AgentCapability[DepsT]] | None
    """In addition to the agent's own."""
    workspace: WorkspaceBackend | WorkspaceRef | Literal['new'] | None
    """As in `Agent.run`; the same for every run."""
    spec: dict[str, Any] | AgentSpec | None
    """In addition to the agent's own parts."""


class RunOptions(CommonRunOptions[DepsT], Generic[DepsT], total=False):
    """Options of `to_a2a` for every run of the agent, with the names and the meaning of `Agent.run`.

    Options of a single request are left out: prompt, history and conversation, run id, usage, cancellation token,
    deferred tool results, event handler. None stands for an absent option.
    """

    output_type: OutputSpec[Any] | None
    """Instead of the agent's own; not for agents with output validators."""
