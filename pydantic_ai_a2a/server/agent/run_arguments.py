"""The arguments of one run of the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.tools import DeferredToolResults, ToolDefinition
from pydantic_ai.usage import RunUsage

from ...types.frozen_values import frozen
from ...types.run_events import Note, Step, TextDelta
from ..budget_rest import Left
from ..conversion.client_output import ClientOutput
from .partial_outputs import PartialOutputs
from .run_info import RunInfo
from .run_token import RunToken
from .steering import Steering
from .turn_messages import Turn

Emit = Callable[[TextDelta | Note | Step], Awaitable[None]]


@frozen
class RunArguments:
    """The arguments of one run of the agent."""

    prompt: str | Sequence[UserContent] | None
    """The user's prompt; None for answers only."""
    history: Sequence[ModelMessage]
    """Messages before the prompt, never changed."""
    info: RunInfo
    """Information for tools."""
    run_id: str
    """Name of the run."""
    token: RunToken
    """Cancels the run."""
    watched: Callable[[], bool]
    """Returns True if the run has readers."""
    watched_live: Callable[[], bool]
    """Returns True if the run has readers who want the text of the answer while the model writes the text."""
    emit: Emit
    """Takes the events of the run."""
    text_output: bool
    """True if text of the model can be the output."""
    partial_outputs: PartialOutputs | None = None
    """Takes partial outputs for readers; None for no partial outputs."""
    turn: Turn | None = None
    """Stores the run step by step."""
    usage: RunUsage | None = None
    """Usage before the run, increased by the run."""
    budget: Left | None = None
    """Remaining budget of the owner; None for no limit."""
    may_wait: bool = False
    """True to let the run end with deferred calls, for any output type of the agent."""
    answers: DeferredToolResults | None = None
    """Results of the calls at the end of the history."""
    approved: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """JSON Schemas of approved calls when they were shown, by the id of the call."""
    shown: Collection[str] = ()
    """Ids of those calls shown to clients before."""
    steering: Steering | None = None
    """Brings in messages of the user during the run."""
    client_tools: Sequence[ToolDefinition] = ()
    """Tools whose calls the client answers."""
    client_output: ClientOutput | None = None
    """The output by the schema of the client; None for the output of the agent."""
    spent: float = 0.0
    """Seconds of the run's timeout that earlier tries have taken."""
    on_model_error: Callable[[Exception], None] | None = None
    """Called with an error of a model request if another try of the run repeats no finished tool call."""
