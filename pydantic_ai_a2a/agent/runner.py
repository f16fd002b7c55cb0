"""Runs the agent: the only caller of it. Knows Pydantic AI; knows neither tasks' storage nor the wire.

A model request is streamed only while somebody watches and if the model can: a streamed request costs several times a
plain one, and a run is never done twice to find out.
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
"""Kinds of tools whose calls wait for an answer before they are carried out."""
Emit = Callable[[TextDelta | Note | Step], Awaitable[None]]
_Node: TypeAlias = Any
"""A node of an agent's graph, for which Pydantic AI exports no type."""
_Events: TypeAlias = AbstractAsyncContextManager[AsyncIterable[AgentStreamEvent]]


@dataclass(frozen=True, slots=True)
class RunOutput:
    """What a run came to."""

    output: Any
    files: Sequence[BinaryContent]
    """Files in the model's final response."""
    streamed: str | None
    """Text that was emitted as the answer; None if it was not streamed."""
    messages: Sequence[ModelMessage]
    """The run's new messages, over all its attempts."""
    usage: RunUsage
    """What it used, over all its attempts."""
    waits: bool = False
    """Whether the output is no answer, but what the task waits for, or why it is rejected."""
    schemas: Mapping[str, dict[str, Any]] | None = None
    """Where calls are deferred: JSON Schemas of the parameters of the tools that they call, by name."""
    calls: Sequence[str] = ()
    """Ids of the calls of the model's last response, in the model's order."""
    shown: Collection[str] = ()
    """Ids of the calls of the last response that clients have been shown."""
    result: AgentRunResult[Any] | None = None
    """What the agent has returned; None if it was stopped."""


class Runner:
    """Runs one agent, always with the same options.

    Args:
        agent: Any Pydantic AI agent.
        options: Given to every run.
        progress: What whoever watches sees beside the answer.
        hidden: Names of the tools whose arguments nobody sees of it.
        download_time: Seconds that the files by URL of a request to the model may take to be downloaded.
        outputs: Converts the outputs. If it is given, the model is asked again for one that holds NaN or infinity.

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
        left: Left | None = None,
        may_wait: bool = False,
        answers: DeferredToolResults | None = None,
        shown: Collection[str] = (),
        steering: Steering | None = None,
        given: RunOptions | None = None,
    ) -> RunOutput:
        """One run of the agent, in the current task; or what is left of it, if `turn` has come some way already.

        Args:
            prompt: What the user says; None if there are only answers.
            history: What goes before it; it stays as it is.
            info: For tools.
            run_id: Names the run.
            token: Cancels it.
            watched: Whether somebody reads what it says.
            emit: Takes that.
            text_output: Whether text of the model can be the output.
            turn: Stores the run step by step.
            usage: What the run begins with; grows with what it uses.
            left: What it may use at most.
            may_wait: Whether the run may end with deferred calls, whatever the agent's output types are.
            answers: The results of calls that the history ends with.
            shown: Ids of those calls that clients have been shown, and are not shown again.
            steering: Brings in what the user says meanwhile.
            given: Options of this run only, over those of every run.

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
                **self._options_of(info, given, left, downloads=downloads),
            ) as run:
                node = run.next_node
                if self._prepares_tools:
                    contain_prepare_exits(run)
                try:
                    if resumed:
                        node = await _resume(run, prompt, resumed[-1], steering, may_wait=may_wait)
                    seen = _Shown(run, None if resumed else answers, shown)
                    await self._drive(
                        run, node, answer, watched, emit, shown=seen, turn=turn, may_wait=may_wait, steering=steering
                    )
                except (asyncio.CancelledError, RunCancelled):
                    _charge_unanswered(run, left)
                    raise
                except SystemExit as error:  # within the block, whose errors Pydantic AI raises in a task of its own
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
        self, info: RunInfo, given: RunOptions | None, left: Left | None, *, downloads: bool
    ) -> dict[str, Any]:
        metadata: dict[str, Any] = {**self._metadata, 'a2a': info}
        options: dict[str, Any] = {**self._options, **(given or {}), 'metadata': metadata}
        if (metadata_of := self._metadata_of) is not None:
            options['metadata'] = _merged(metadata_of, metadata)
        if downloads:
            # Not for each run, because a run with capabilities of its own takes longer to begin.
            options['capabilities'] = self._with_downloads
        if left is not None:
            options['usage_limits'] = _within(left, options.get('usage_limits') or UsageLimits())
        return options

    async def _drive(
        self,
        run: AgentRun[Any, Any],
        node: _Node,
        answer: AnswerStream,
        watched: Callable[[], bool],
        emit: Emit,
        *,
        shown: _Shown,
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
                if asks:  # else a run before this one has shown and stored the response
                    shown.begin_response()
                    if self._steps.any and stream is None and watched():
                        await self._show(node.model_response, emit)
                    note = answer.end_response(node.model_response)
            if (turn is None or not await _step(run, before, node, turn, note)) and note is not None:
                await emit(note)

    def _stream(self, node: _Node, shown: _Shown) -> _Events | None:
        """The events of a node that somebody watches; None if nobody needs them, or the model cannot stream."""
        if Agent.is_model_request_node(node):
            if not can_stream(model_of(shown.run)):
                return None
            contain_model_exits(shown.run)
            return node.stream(shown.run.ctx)
        return shown.of_node(node) if self._steps.of_tools and Agent.is_call_tools_node(node) else None

    async def _observe(self, stream: _Events, answer: AnswerStream, emit: Emit) -> None:
        async with stream as events:
            async for event in events:
                if (said := answer.feed(event) or self._steps.of_event(event)) is not None:
                    await emit(said)

    async def _show(self, response: ModelResponse, emit: Emit) -> None:
        for step in self._steps.of_response(response):
            await emit(step)


class _Shown:
    """The events of a run's tools, for clients that may see them.

    Args:
        run: The run.
        answers: Decisions about the calls with which the run's history ends.
        shown: Ids of those calls that clients have been shown with the arguments that they still have.
    """

    def __init__(self, run: AgentRun[Any, Any], answers: DeferredToolResults | None, shown: Collection[str]) -> None:
        self._answers = answers
        self.run = run
        self.ids = {*shown}
        """Ids of the calls of the last response that clients have been shown."""

    def begin_response(self) -> None:
        """Forget the calls of the response before."""
        self._answers = None
        self.ids.clear()

    @asynccontextmanager
    async def of_node(self, node: CallToolsNode[Any, Any]) -> AsyncGenerator[AsyncIterable[AgentStreamEvent]]:
        """The events of a node: each call once, when it is carried out, with the arguments that the tool gets."""
        async with node.stream(self.run.ctx) as events:
            yield (event async for each in events if (event := self._as_carried_out(each)) is not None)

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


def _charge_unanswered(run: AgentRun[Any, Any], left: Left | None) -> None:
    """Add what a request has used that was broken off, if anybody counts that."""
    if left is not None and run.new_messages():
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
    """What a run came to that an output function has stopped, or a tool for good."""
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
    """The node with which a run goes on after the last message that is stored of it."""
    set_prompt(run, prompt)
    first = run.next_node
    assert not isinstance(first, End)
    node: _Node = await run.next(first)
    if Agent.is_model_request_node(node) and isinstance(last, ModelResponse) and last.state != 'suspended':
        # A final response, after which an agent with instructions would ask the model once more.
        response = run.all_messages()[-1]
        assert isinstance(response, ModelResponse)
        node = CallToolsNode[Any, Any](response)
    elif steering is not None:
        await steering.step(run, node)
    if Agent.is_call_tools_node(node):
        _prepare_tools(run, node.model_response, may_wait=may_wait)
    return node


async def _step(run: AgentRun[Any, Any], done: _Node, following: _Node, turn: Turn, note: Note | None) -> bool:
    """Store what the run has come to; whether it was."""
    if Agent.is_model_request_node(done) and done.is_resuming_without_prompt:
        turn.sent_again(done.request)
    if isinstance(following, End):
        return False
    unsent = following.request if Agent.is_model_request_node(following) else None
    return await turn.step(run.new_messages(), unsent, run.usage, note)


def _within(left: Left, limits: UsageLimits) -> UsageLimits:
    """The limits, and no more than is left."""
    if left.nothing:
        return replace(limits, request_limit=0)
    return replace(
        limits,
        request_limit=_least(limits.request_limit, left.requests),
        total_tokens_limit=_least(limits.total_tokens_limit, left.tokens),
        cost_limit=_least(limits.cost_limit, left.cost),
    )


def _least(one: T | None, other: T | None) -> T | None:
    return min((each for each in (one, other) if each is not None), default=None)


def can_stream(model: Model) -> bool:
    """Whether the model can stream a request, found out without making one."""
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(can_stream(each) for each in model.models)
    if getattr(model, 'stream_function', ...) is None:  # a FunctionModel, whose module takes long to import
        return False
    return type(model).request_stream is not Model.request_stream


def _calls(messages: Sequence[ModelMessage]) -> list[str]:
    """The ids of the calls of the last response, in the model's order."""
    responses = (message for message in reversed(messages) if isinstance(message, ModelResponse))
    return [call.tool_call_id for response in islice(responses, 1) for call in response.tool_calls]


def _files(messages: Sequence[ModelMessage]) -> list[BinaryContent]:
    """The files of the last response; the return of an output tool may follow it."""
    responses = (message for message in reversed(messages) if isinstance(message, ModelResponse))
    return [part.content for response in islice(responses, 1) for part in response.parts if isinstance(part, FilePart)]
