"""Runs the agent: the only caller of it. Knows Pydantic AI; knows neither tasks' storage nor the wire.

A model request is streamed only while somebody watches and if the model can: a streamed request costs several times a
plain one, and a run is never done twice to find out.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from pydantic_ai import Agent, AgentSpec, BinaryContent, CancellationToken
from pydantic_ai.agent import (
    AbstractAgent,
    AgentInstructions,  # pyright: ignore[reportPrivateImportUsage] - in Agent.run's signature, but exported nowhere
    AgentRetries,
)
from pydantic_ai.agent.abstract import AgentMetadata, AgentModelSettings
from pydantic_ai.capabilities import AgentCapability
from pydantic_ai.messages import AgentStreamEvent, FilePart, ModelMessage, ModelResponse, UserContent
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import OutputSpec
from pydantic_ai.run import AgentRun
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_ai.workspaces import WorkspaceBackend, WorkspaceRef
from pydantic_graph import End
from typing_extensions import TypedDict

from .conversion.progress import StepsShown
from .conversion.stream import AnswerStream
from .settings import Progress
from .types import Note, Step, TextDelta

__all__ = ('RunOptions', 'RunOutput', 'Runner', 'can_stream')


class RunOptions(TypedDict, total=False):
    """What `to_a2a` passes on to every run of the agent, with the names and the meaning of `Agent.run`.

    What belongs to one request is not among them: prompt, history and conversation, run id, usage, cancellation token,
    deferred tool results, event handler.
    """

    output_type: OutputSpec[Any]
    """Instead of the agent's own; not for agents with output validators."""
    model: Model | KnownModelName | str
    """Instead of the agent's own."""
    instructions: AgentInstructions[Any]
    """In addition to the agent's own."""
    deps: Any
    """The same object for every run."""
    model_settings: AgentModelSettings[Any]
    """Over the agent's own, one by one."""
    usage_limits: UsageLimits
    """A task that goes over them is `failed`."""
    timeout: float
    """Seconds; a task that takes longer is `failed`."""
    metadata: AgentMetadata[Any]
    """In addition to the agent's own."""
    retries: int | AgentRetries
    """Instead of the agent's own."""
    toolsets: Sequence[AbstractToolset[Any]]
    """In addition to the agent's own."""
    capabilities: Sequence[AgentCapability[Any]]
    """In addition to the agent's own."""
    workspace: WorkspaceBackend | WorkspaceRef | Literal['new']
    """As in `Agent.run`; the same for every run."""
    spec: dict[str, Any] | AgentSpec
    """In addition to what the agent is made of."""


Emit = Callable[[TextDelta | Note | Step], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RunOutput:
    """What a run came to."""

    output: Any
    files: Sequence[BinaryContent]
    """Files in the model's final response."""
    streamed: str | None
    """Text that was emitted as the answer; None if it was not streamed."""
    messages: Sequence[ModelMessage]
    """The run's new messages."""
    usage: RunUsage


class Runner:
    """Runs one agent, always with the same options.

    Args:
        agent: Any Pydantic AI agent.
        options: Given to every run.
        progress: What whoever watches sees beside the answer.

    Raises:
        TypeError: An option is none, or belongs to a request.
    """

    def __init__(self, agent: AbstractAgent[Any, Any], options: RunOptions, progress: Progress = Progress()) -> None:
        if unknown := options.keys() - RunOptions.__annotations__.keys():
            raise TypeError(f'to_a2a() takes no {", ".join(sorted(unknown))}: not an option of every run.')
        self._agent = agent
        self._options = options
        self._steps = StepsShown(progress)

    async def run(
        self,
        prompt: str | Sequence[UserContent],
        history: Sequence[ModelMessage],
        *,
        context_id: str,
        run_id: str,
        token: CancellationToken,
        watched: Callable[[], bool],
        emit: Emit,
        text_output: bool,
    ) -> RunOutput:
        """One run of the agent, in the current task.

        Raises:
            RunCancelled: The token was cancelled, or (RunTimedOut) the run's `timeout` passed.
        """
        answer = AnswerStream(text_output)
        async with self._agent.iter(
            prompt,
            message_history=history or None,
            conversation_id=context_id,
            run_id=run_id,
            cancellation_token=token,
            infer_name=False,
            **self._options,
        ) as run:
            await self._drive(run, answer, watched, emit)
        result = run.result
        assert result is not None, 'the run was driven to its end'
        messages = result.new_messages()
        return RunOutput(result.output, _files(messages), answer.streamed, messages, run.usage)

    async def _drive(
        self, run: AgentRun[Any, Any], answer: AnswerStream, watched: Callable[[], bool], emit: Emit
    ) -> None:
        node = run.next_node
        while not isinstance(node, End) and run.result is None:
            streamed = False
            if Agent.is_model_request_node(node):
                if streamed := watched() and can_stream(run.ctx.deps.model):
                    await self._observe(node.stream(run.ctx), answer, emit)
            elif self._steps.of_tools and Agent.is_call_tools_node(node) and watched():
                await self._observe(node.stream(run.ctx), answer, emit)
            node = await run.next(node)
            if Agent.is_call_tools_node(node):
                if self._steps.any and not streamed and watched():
                    await self._show(node.model_response, emit)
                if (note := answer.end_response(node.model_response)) is not None:
                    await emit(note)

    async def _observe(
        self, stream: AbstractAsyncContextManager[AsyncIterable[AgentStreamEvent]], answer: AnswerStream, emit: Emit
    ) -> None:
        async with stream as events:
            async for event in events:
                if (said := answer.feed(event) or self._steps.of_event(event)) is not None:
                    await emit(said)

    async def _show(self, response: ModelResponse, emit: Emit) -> None:
        for step in self._steps.of_response(response):
            await emit(step)


def can_stream(model: Model) -> bool:
    """Whether the model can stream a request, found out without making one."""
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(can_stream(each) for each in model.models)
    if getattr(model, 'stream_function', ...) is None:  # a FunctionModel, whose module takes long to import
        return False
    return type(model).request_stream is not Model.request_stream


def _files(messages: Sequence[ModelMessage]) -> list[BinaryContent]:
    """The files of the last response; the return of an output tool may follow it."""
    responses = (message for message in reversed(messages) if isinstance(message, ModelResponse))
    return [part.content for response in islice(responses, 1) for part in response.parts if isinstance(part, FilePart)]
