"""The runner: the only caller of the agent.

A model request is streamed only for readers, and only if the model can stream: a streamed request costs several times a
plain request. No run is repeated to find out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from pydantic_ai import Agent, BinaryContent, CallToolsNode, CancellationToken, RunContext
from pydantic_ai.agent import (
    AbstractAgent,
)
from pydantic_ai.exceptions import RunCancelled, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    FilePart,
    FunctionToolCallEvent,
    ModelMessage,
    ModelResponse,
    UserContent,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRun, AgentRunResult
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_graph import End

from ..arguments import seconds
from ..conversion.outbound import OutputMapper
from ..conversion.progress import StepsShown
from ..conversion.states import STATES, AuthRequired, InputRequired, Rejected
from ..conversion.stream import AnswerStream
from ..errors import NoModel
from ..quotas import Left
from ..settings import Limits, Progress
from ..types import Note, Step, TextDelta
from .downloads import Downloads, has_files
from .exits import Exited, Stalled, contain_exits, contain_model_exits, contain_prepare_exits
from .finite_outputs import FiniteOutputs
from .internals import allow_deferred_calls, model_of, set_prompt, tool_of
from .options import (
    NO_MODEL,
    RunInfo,
    RunOptions,
    check_options,
    may_change_history,
    may_have_model,
    may_prepare_tools,
)
from .steering import Steering
from .turn import Turn
from .unanswered import add_unanswered

__all__ = ('RunOutput', 'Runner', 'can_stream')


T = TypeVar('T', int, Decimal)
_WAITS = (DeferredToolRequests, *STATES)
_DEFERRED = ('unapproved', 'external')
"""Kinds of tools whose calls wait for an answer before the call is made."""
Emit = Callable[[TextDelta | Note | Step], Awaitable[None]]
_Node: TypeAlias = Any
"""A node of an agent's graph. Pydantic AI exports no type for nodes."""
_Events: TypeAlias = AbstractAsyncContextManager[AsyncIterable[AgentStreamEvent]]


@dataclass(frozen=True, slots=True)
class RunOutput:
    """The end of a run."""

    output: Any
    files: Sequence[BinaryContent]
    """Files in the model's final response."""
    streamed: str | None
    """Text emitted as the answer; None without streaming."""
    messages: Sequence[ModelMessage]
    """The run's new messages, over all attempts."""
    usage: RunUsage
    """Usage over all attempts."""
    waits: bool = False
    """True if the output is a question to the client or a rejection instead of an answer."""
    schemas: Mapping[str, dict[str, Any]] | None = None
    """For deferred calls: JSON Schemas of the parameters of the called tools, by name."""
    calls: Sequence[str] = ()
    """Ids of the calls of the model's last response, in the model's order."""
    shown: Collection[str] = ()
    """Ids of the calls of the last response shown to clients."""
    result: AgentRunResult[Any] | None = None
    """The agent's result; None for a stopped run."""


class Runner:
    """Runs one agent, always with the same options.

    Args:
        agent: Any Pydantic AI agent.
        options: Options of every run.
        progress: Events for readers besides the answer.
        hidden: Names of the tools whose arguments are never shown.
        download_time: Seconds for the downloads of one request to the model.
        outputs: Converts the outputs; the model is then asked again for an output with NaN or infinity.

    Raises:
        TypeError: See `check_options`.
    """

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        options: RunOptions,
        progress: Progress = Progress(),
        hidden: Collection[str] = (),
        download_time: float = Limits().download_time,
        *,
        outputs: OutputMapper | None = None,
    ) -> None:
        check_options(agent, options)
        self._agent = agent
        self._options: Any = {name: value for name, value in options.items() if value is not None}
        timeout, metadata = options.get('timeout'), options.get('metadata')
        if timeout is not None:
            self._options['timeout'] = seconds(timeout)
        if outputs is not None and outputs.holds_data:
            self._options['capabilities'] = [*self._options.get('capabilities', ()), FiniteOutputs(outputs)]
        self._with_downloads = [*self._options.get('capabilities', ()), Downloads(download_time)]
        self._metadata_of, self._metadata = (metadata, {}) if callable(metadata) else (None, metadata or {})
        self._steps = StepsShown(progress, hidden)
        self._changes_history = may_change_history(agent, options)
        self._prepares_tools = may_prepare_tools(agent, options)
        self._may_have_model = may_have_model(agent, options)

    async def run(
        self,
        prompt: str | Sequence[UserContent] | None,
        history: Sequence[ModelMessage],
        *,
        info: RunInfo,
        run_id: str,
        token: CancellationToken,
        watched: Callable[[], bool],
        emit: Emit,
        text_output: bool,
        turn: Turn | None = None,
        usage: RunUsage | None = None,
        budget: Left | None = None,
        may_wait: bool = False,
        answers: DeferredToolResults | None = None,
        shown: Collection[str] = (),
        steering: Steering | None = None,
        options: RunOptions | None = None,
    ) -> RunOutput:
        """Run the agent once, in the current task, or the rest of a run that `turn` has stored in part.

        Args:
            prompt: The user's prompt; None for answers only.
            history: Messages before the prompt, never changed.
            info: Information for tools.
            run_id: Names the run.
            token: Cancels the run.
            watched: Returns True if the run has readers.
            emit: Takes the events of the run.
            text_output: True if text of the model can be the output.
            turn: Stores the run step by step.
            usage: Usage before the run, increased by the run.
            budget: Remaining budget of the owner; None for no limit.
            may_wait: True to let the run end with deferred calls, for any output type of the agent.
            answers: Results of the calls at the end of the history.
            shown: Ids of those calls shown to clients before.
            steering: Brings in messages of the user during the run.
            options: Options of this run only, over the options of every run.

        Raises:
            RunCancelled: The token was cancelled, or (RunTimedOut) the run's `timeout` passed.
            NoModel: The agent has no model.
        """
        answer = AnswerStream(text_output)
        if self._changes_history:
            history = deepcopy(history)
        resumed = turn is not None and turn.before
        downloads = steering is not None or has_files(prompt, [*history, *(resumed or ())])
        run: AgentRun[Any, Any] | None = None
        try:
            async with self._agent.iter(
                None if resumed else prompt,
                message_history=turn.after(history) if turn is not None and resumed else history or None,
                deferred_tool_results=None if resumed else answers,
                conversation_id=info['context_id'],
                run_id=run_id,
                cancellation_token=token,
                usage=usage,
                infer_name=False,
                **self._options_of(info, options, budget, downloads=downloads),
            ) as run:
                node = run.next_node
                if self._prepares_tools:
                    contain_prepare_exits(run)
                try:
                    if resumed:
                        node = await _resume(run, prompt, resumed[-1], steering, may_wait=may_wait)
                    seen = _ToolEvents(run, None if resumed else answers, shown)
                    await self._drive(
                        run, node, answer, watched, emit, shown=seen, turn=turn, may_wait=may_wait, steering=steering
                    )
                except (asyncio.CancelledError, RunCancelled):
                    _charge_unanswered(run, budget)
                    raise
                except (
                    SystemExit
                ) as error:  # within the block: Pydantic AI raises the errors of the block in another task
                    raise Exited.of(error) from error
        except UserError as error:
            if run is not None or self._may_have_model:
                raise
            raise NoModel(NO_MODEL) from error
        except STATES as state:
            if run is None or not may_wait:
                raise
            return _stopped(run, state, turn)
        result = run.result
        assert result is not None, 'the run was driven to its end'
        messages = result.new_messages() if turn is None else turn.all(result.new_messages())
        waits = isinstance(result.output, _WAITS)
        schemas = _schemas(run, result.output) if waits else None
        calls = _calls(run.all_messages()) if waits else ()
        files = _files(messages)
        output, text = result.output, answer.streamed
        return RunOutput(output, files, text, messages, run.usage, waits, schemas, calls, seen.ids, result)

    def _options_of(
        self, info: RunInfo, run_options: RunOptions | None, budget: Left | None, *, downloads: bool
    ) -> dict[str, Any]:
        metadata: dict[str, Any] = {**self._metadata, 'a2a': info}
        options: dict[str, Any] = {**self._options, **(run_options or {}), 'metadata': metadata}
        if (metadata_of := self._metadata_of) is not None:
            options['metadata'] = _merged(metadata_of, metadata)
        if downloads:
            # Only when needed: a run with its own capabilities starts more slowly.
            options['capabilities'] = self._with_downloads
        if budget is not None:
            options['usage_limits'] = _within(budget, options.get('usage_limits') or UsageLimits())
        return options

    async def _drive(
        self,
        run: AgentRun[Any, Any],
        node: _Node,
        answer: AnswerStream,
        watched: Callable[[], bool],
        emit: Emit,
        *,
        shown: _ToolEvents,
        turn: Turn | None,
        may_wait: bool,
        steering: Steering | None,
    ) -> None:
        while not isinstance(node, End) and run.result is None:
            stream, asks = None, Agent.is_model_request_node(node)
            if (asks or self._steps.of_tools) and watched():
                stream = self._stream(node, shown)
            if stream is not None:
                await self._observe(stream, answer, emit)
            before, node, note = node, await run.next(node), None
            if node is before:
                raise Stalled
            if steering is not None:
                await steering.step(run, node)
            if Agent.is_call_tools_node(node):
                _prepare_tools(run, node.model_response, may_wait=may_wait)
                if asks:  # else an earlier run has shown and stored the response
                    shown.begin_response()
                    if self._steps.any and stream is None and watched():
                        await self._show(node.model_response, emit)
                    note = answer.end_response(node.model_response)
            if (turn is None or not await _step(run, before, node, turn, note)) and note is not None:
                await emit(note)

    def _stream(self, node: _Node, shown: _ToolEvents) -> _Events | None:
        """Return the events of a node with readers; None without need of events, or if the model cannot stream."""
        if Agent.is_model_request_node(node):
            if not can_stream(model_of(shown.run)):
                return None
            contain_model_exits(shown.run)
            return node.stream(shown.run.ctx)
        return shown.of_node(node) if self._steps.of_tools and Agent.is_call_tools_node(node) else None

    async def _observe(self, stream: _Events, answer: AnswerStream, emit: Emit) -> None:
        async with stream as events:
            async for event in events:
                if (output := answer.feed(event) or self._steps.of_event(event)) is not None:
                    await emit(output)

    async def _show(self, response: ModelResponse, emit: Emit) -> None:
        for step in self._steps.of_response(response):
            await emit(step)


class _ToolEvents:
    """The events of a run's tools, for clients with permission to see them.

    Args:
        run: The run.
        answers: Decisions about the calls at the end of the run's history.
        shown: Ids of the calls shown to clients with unchanged arguments.
    """

    def __init__(self, run: AgentRun[Any, Any], answers: DeferredToolResults | None, shown: Collection[str]) -> None:
        self._answers = answers
        self.run = run
        self.ids = {*shown}
        """Ids of the calls of the last response shown to clients."""

    def begin_response(self) -> None:
        """Forget the calls of the previous response."""
        self._answers = None
        self.ids.clear()

    @asynccontextmanager
    async def of_node(self, node: CallToolsNode[Any, Any]) -> AsyncGenerator[AsyncIterable[AgentStreamEvent]]:
        """Yield the events of a node: each call once, at its execution, with the arguments of the tool."""
        async with node.stream(self.run.ctx) as events:
            yield (shown async for event in events if (shown := self._as_carried_out(event)) is not None)

    def _as_carried_out(self, event: AgentStreamEvent) -> AgentStreamEvent | None:
        if not isinstance(event, FunctionToolCallEvent):
            return event
        call, answers = event.part, self._answers or DeferredToolResults()
        approval = answers.approvals.get(call.tool_call_id)
        if approval is None and call.tool_call_id not in answers.calls:
            tool = tool_of(self.run, call.tool_name)
            if tool is not None and tool.kind in _DEFERRED:
                return None
        if call.tool_call_id in self.ids:
            return None
        self.ids.add(call.tool_call_id)
        if isinstance(approval, ToolApproved) and approval.override_args is not None:
            return replace(event, part=replace(call, args=approval.override_args))
        return event


def _charge_unanswered(run: AgentRun[Any, Any], budget: Left | None) -> None:
    """Add the usage of an interrupted request, if usage counts."""
    if budget is not None and run.new_messages():
        add_unanswered(run.usage, run.all_messages(), model_of(run))


def _merged(
    metadata_of: Callable[[RunContext[Any]], Mapping[str, Any]], metadata: Mapping[str, Any]
) -> Callable[[RunContext[Any]], dict[str, Any]]:
    return lambda ctx: {**metadata_of(ctx), **metadata}


def _prepare_tools(run: AgentRun[Any, Any], response: ModelResponse, *, may_wait: bool) -> None:
    """If a response calls tools, contain their exits and, with `may_wait`, let the run end with deferred calls."""
    for part in response.parts:
        if part.part_kind == 'tool-call':
            break
    else:
        return
    contain_exits(run)
    if may_wait:
        allow_deferred_calls(run)


def _schemas(run: AgentRun[Any, Any], output: object) -> dict[str, dict[str, Any]] | None:
    if not isinstance(output, DeferredToolRequests):
        return None
    names = {call.tool_name for call in (*output.approvals, *output.calls)}
    tools = {name: tool_of(run, name) for name in names}
    return {name: tool.parameters_json_schema for name, tool in tools.items() if tool is not None}


def _stopped(run: AgentRun[Any, Any], state: InputRequired | AuthRequired | Rejected, turn: Turn | None) -> RunOutput:
    """Return the output of a run that was stopped by an output function or a tool."""
    messages = run.new_messages() if turn is None else turn.all(run.new_messages())
    return RunOutput(state, (), None, messages, run.usage, waits=True)


async def _resume(
    run: AgentRun[Any, Any],
    prompt: str | Sequence[UserContent] | None,
    last: ModelMessage,
    steering: Steering | None,
    *,
    may_wait: bool,
) -> _Node:
    """Return the first node of a run that resumes after its last stored message."""
    set_prompt(run, prompt)
    first = run.next_node
    assert not isinstance(first, End)
    node: _Node = await run.next(first)
    if Agent.is_model_request_node(node) and isinstance(last, ModelResponse) and last.state != 'suspended':
        # After a final response, an agent with instructions would ask the model again.
        response = run.all_messages()[-1]
        assert isinstance(response, ModelResponse)
        node = CallToolsNode[Any, Any](response)
    elif steering is not None:
        await steering.step(run, node)
    if Agent.is_call_tools_node(node):
        _prepare_tools(run, node.model_response, may_wait=may_wait)
    return node


async def _step(run: AgentRun[Any, Any], done: _Node, following: _Node, turn: Turn, note: Note | None) -> bool:
    """Store a step of the run. Return False if the step was not stored."""
    if Agent.is_model_request_node(done) and done.is_resuming_without_prompt:
        turn.sent_again(done.request)
    if isinstance(following, End):
        return False
    unsent = following.request if Agent.is_model_request_node(following) else None
    return await turn.step(run.new_messages(), unsent, run.usage, note)


def _within(budget: Left, limits: UsageLimits) -> UsageLimits:
    """The limits, and no more than is left."""
    if budget.nothing:
        return replace(limits, request_limit=0)
    return replace(
        limits,
        request_limit=_least(limits.request_limit, budget.requests),
        total_tokens_limit=_least(limits.total_tokens_limit, budget.tokens),
        cost_limit=_least(limits.cost_limit, budget.cost),
    )


def _least(one: T | None, other: T | None) -> T | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


def can_stream(model: Model) -> bool:
    """Return whether the model can stream a request, without a request."""
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(can_stream, model.models))
    if getattr(model, 'stream_function', ...) is None:  # a FunctionModel, whose module takes long to import
        return False
    return type(model).request_stream is not Model.request_stream


def _calls(messages: Sequence[ModelMessage]) -> list[str]:
    """The ids of the calls of the last response, in the model's order."""
    responses = (message for message in reversed(messages) if isinstance(message, ModelResponse))
    return [call.tool_call_id for response in islice(responses, 1) for call in response.tool_calls]


def _files(messages: Sequence[ModelMessage]) -> list[BinaryContent]:
    """Return the files of the last response. An output tool's return may follow the response."""
    responses = (message for message in reversed(messages) if isinstance(message, ModelResponse))
    return [part.content for response in islice(responses, 1) for part in response.parts if isinstance(part, FilePart)]
