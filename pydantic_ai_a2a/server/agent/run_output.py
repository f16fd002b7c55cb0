"""The end of a run, as its task needs it: the output, the new messages, and the calls that wait for an answer.

A run can end with

- an answer, which completes the task;
- a question or a refusal (`waits`): calls that need an answer, or a state of the task as the output. The schemas of the
  called tools and the order of the calls come along, to show the calls to the client;
- a state that code has raised (`stopped`). The run may then have made no step. Its prompt still becomes a message of
  the conversation, for the next run. But if the run was to begin with results of pending calls, the calls stay pending,
  and the next run gets the same results (`keeps_pending`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserContent, UserPromptPart
from pydantic_ai.run import AgentRun, AgentRunResult
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

from ...types.a2a_objects import Artifact
from ..conversion.chosen_states import State
from .added_messages import AddedMessages
from .approved_calls import schema_of
from .pydantic_ai_internals import tool_of
from .turn_messages import Turn

Answer: TypeAlias = tuple[Sequence[Artifact], str | None]
"""An answer as its task gets it: the artifacts, and the answer itself if it is a text."""


class RunOutput(NamedTuple):
    """The end of a run."""

    output: Any
    files: Sequence[BinaryContent]
    """Files in the model's final response."""
    streamed: str | None
    """Text emitted as the answer, if collected; None without streaming."""
    messages: Sequence[ModelMessage]
    """The run's new messages, over all attempts."""
    usage: RunUsage
    """Usage over all attempts."""
    rewritten: Sequence[ModelMessage] | None = None
    """The whole conversation, if a capability has put a `CompactionPart` in the place of messages."""
    waits: bool = False
    """True if the output is a question to the client or a rejection instead of an answer."""
    schemas: Mapping[str, dict[str, Any]] | None = None
    """For deferred calls: JSON Schemas of the parameters of the called tools, by name."""
    calls: Sequence[str] = ()
    """Ids of the calls of the model's last response, in the model's order."""
    shown: Sequence[str] = ()
    """Ids of the calls of the last response shown to clients."""
    result: AgentRunResult[Any] | None = None
    """The agent's result; None for a stopped run."""
    keeps_pending: bool = False
    """True if the run has made no step: the pending calls of the task stay pending."""
    answer: Answer | None = None
    """The answer, made where the run has ended; None if the server makes it from `output`."""
    whole: tuple[Sequence[ModelMessage], int] | None = None
    """From an engine: the messages of the result, and the index of the first new one. None if the messages are those of
    the conversation and `messages`."""


def schemas_of(run: AgentRun[Any, Any], output: object) -> dict[str, dict[str, Any]] | None:
    """Return the schemas of deferred calls, with the descriptions of their tools, by name; None for other outputs."""
    if not isinstance(output, DeferredToolRequests):
        return None
    names = {call.tool_name for call in (*output.approvals, *output.calls)}
    tools = {name: tool_of(run, name) for name in names}
    return {name: schema_of(tool) for name, tool in tools.items() if tool is not None}


def stopped(
    run: AgentRun[Any, Any] | None,
    added: AddedMessages,
    state: State,
    turn: Turn | None,
    prompt: str | Sequence[UserContent] | None,
    *,
    usage: RunUsage | None,
    answers: bool,
) -> RunOutput:
    """Return the output of a run that was stopped by an output function, a tool or a toolset.

    Args:
        run: The run; None if a toolset has stopped the run at its start, such as by `NoCredential`.
        added: Finds the messages of the run.
        state: The state of the task.
        turn: The stored part of the run.
        prompt: The prompt of the run.
        usage: Usage before the run.
        answers: True if the run was to begin with results of pending calls. A later run gets the same results.
    """
    new = [] if run is None else added.of(run)
    messages = new if turn is None else turn.all(new)
    usage = usage or RunUsage() if run is None else run.usage
    if new:
        return RunOutput(state, (), None, messages, usage, waits=True)
    # The run has made no step.
    if messages and isinstance(messages[-1], ModelResponse):
        # Pydantic AI takes no prompt after calls without results: the next run asks the model again.
        messages.pop()
    keeps_pending = answers and not messages
    if not messages and not answers and prompt is not None:
        messages = [ModelRequest(parts=[UserPromptPart(prompt)])]
    return RunOutput(state, (), None, messages, usage, waits=True, keeps_pending=keeps_pending)


def last_response(messages: Sequence[ModelMessage]) -> ModelResponse | None:
    """Return the last response of the model. A return of an output tool may follow the response."""
    return next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)


def calls_of(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the ids of the calls of the last response, in the model's order."""
    response = last_response(messages)
    return [] if response is None else [call.tool_call_id for call in response.tool_calls]
