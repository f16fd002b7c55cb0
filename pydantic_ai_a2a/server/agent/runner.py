"""The runner: the only caller of the agent. A run, from the entry into the agent to the output for the task.

Pydantic AI runs an agent as a chain of nodes. Each node returns the next one:

    UserPromptNode -> ModelRequestNode -> CallToolsNode -> ModelRequestNode -> CallToolsNode -> ... -> End

If the run begins with results of calls, or resumes after a response, the first node leads to `CallToolsNode` at once. A
hook may put another node in the place of the next one. A message that code has enqueued turns the end into one more
request.

`Runner` enters the agent, and wraps the parts of the run that need it (`RunNeeds`). Then `Drive` takes one node at a
time:

1. Choose whether to stream the node: only for readers who want to see what the node makes, and a request only from a
   model that can stream. A streamed request costs several times a plain one, and no request is repeated to find out.
2. Run the node inside of its hooks.
3. Refuse a node that returns itself (`Stalled`).
4. Before a request, look for new messages of the client, which Pydantic AI adds to the request (`Steering`).
5. After a response, prepare its tools, and show its thoughts and calls if the response was not streamed. The text of a
   response that calls tools becomes a note (`AnswerStream`).
6. Store the step with its note in one write (`Turn`), or only emit the note if there is nothing to store. A final
   response is stored with the end of the task (`server.runs.recorder`), unless code of the user gets the output before.

If the process dies, the next attempt resumes after the last stored step, and runs the later nodes again. If another
worker has taken the task, the next write of the run raises `LeaseLost`.

A run ends in one of three ways: with a result, which may be a question or a refusal (`Drive.output`); with a state of
the task, raised by a tool, an output function or a toolset (`run_output.stopped`); or with another exception, whose
meaning `server.runs.exception_outcomes` tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from functools import partial
from typing import Any, Protocol, TypeAlias

from pydantic_ai import Agent, CallToolsNode, ModelRequestNode, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import RunCancelled, UserError
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.usage import UsageLimits
from pydantic_graph import End

from ...errors import NoModel
from ...settings.limits import Limits
from ...settings.progress import Progress
from ...time_spans import seconds
from ...types.frozen_values import frozen
from ...types.run_events import Note
from ..conversion.answer_stream import AnswerStream
from ..conversion.chosen_states import STATES
from ..conversion.forwarded_questions import question_of
from ..conversion.output_mapper import OutputMapper
from ..conversion.output_types import calls_function, states_of
from ..conversion.progress_steps import StepsShown
from .added_messages import AddedMessages
from .agent_inspection import NO_MODEL, may_change_history, may_have_model, may_prepare_tools
from .approved_calls import AsApproved
from .budget import charge_unanswered, within
from .client_toolset import add_client_tools
from .compaction import is_compacted
from .downloads import Downloads, has_files
from .enqueued_messages import enqueue_again, enqueued_in
from .hooks import Hooks, observe_tools
from .mcp_connections import MCPConnections
from .option_checks import check_options
from .output_checks import check_outputs
from .playground_steps import Trace
from .pydantic_ai_internals import (
    allow_deferred_calls,
    model_of,
    next_with,
    set_prompt,
    tool_of,
    validates_output,
    wrap_toolset,
)
from .refused_files import check_files
from .run_arguments import RunArguments
from .run_options import RunOptions
from .run_output import RunOutput, calls_of, last_response, schemas_of, stopped
from .run_token import Entering
from .system_exits import Exited, contain_exits, contain_model_exits, contain_prepare_exits
from .tool_events import ToolEvents
from .turn_messages import Turn

_WAITS = (DeferredToolRequests, *STATES)
_Node: TypeAlias = Any
"""A node of an agent's graph. Pydantic AI exports no type for nodes. On the way of each run, nodes are told apart by
`type(node)`, because `isinstance` takes three calls for a class with an abstract base."""
_Events: TypeAlias = AbstractAsyncContextManager[AsyncIterable[AgentStreamEvent]]


class RunsAgent(Protocol):
    """Runs one agent, here or at an engine."""

    @property
    def timeout(self) -> float | None:
        """Seconds of a run; None for no limit."""

    def run(self, arguments: RunArguments, options: RunOptions | None = None) -> Coroutine[Any, Any, RunOutput]:
        """Run the agent once. See `Runner.run`."""
        ...


class Stalled(Exception):
    """A run repeats the same step for ever. Never sent to a client.

    Pydantic AI takes a `StopAsyncIteration` of a model, a hook or a function for the end of its own iteration, and
    returns the same step again. The run would never end, and each step may ask the model.
    """

    def __init__(self) -> None:
        super().__init__('A model, a hook or a function of the agent raised StopAsyncIteration.')


@frozen
class RunNeeds:
    """What the runs of one agent need beside the agent itself. A run does not pay for what its agent cannot do."""

    changes_history: bool
    """True if code of the user, such as a history processor, may change messages on their way to the model. Other runs
    save a deep copy of the history, and a list of the messages that they add (`AddedMessages.note`)."""
    ends_at_once: bool
    """True if no output function and no capability of the user gets the output. Then the end of the task follows the
    final response at once, and such runs save the write of their last step. Output validators, which an agent may get
    later, are looked for in each run (`Drive`)."""
    prepares_tools: bool
    """True if a tool has a `prepare` function, which may raise `SystemExit`. Other runs save a wrapper of toolsets."""
    observes_tools: bool
    """True if a hook is called for tool calls. Other runs save a wrapper of all tools."""
    checked_outputs: OutputMapper | None
    """Finds NaN and infinity in outputs; None if no output holds data. Such runs save a wrapper of all hooks."""
    may_have_model: bool
    """False if only `agent.override` can give the agent a model. An error at the entry then means that nobody did."""


class Runner:
    """Runs one agent, always with the same options.

    Args:
        agent: Any Pydantic AI agent.
        options: Options of every run.
        progress: Events for readers besides the answer.
        hidden: Names of the tools whose arguments are never shown.
        download_time: Seconds for the downloads of one request to the model.
        outputs: Converts the outputs; the model is then asked again for an output with NaN or infinity.
        hooks: Hooks for tool calls.

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
        hooks: Hooks = Hooks(),
    ) -> None:
        check_options(agent, options)
        self.agent = agent
        self.connections = MCPConnections(agent)
        """Connections of the agent to MCP servers."""
        self._options: Any = {name: value for name, value in options.items() if value is not None}
        timeout, metadata = options.get('timeout'), options.get('metadata')
        self.timeout = None if timeout is None else seconds(timeout)
        """Seconds of a run; None for no limit."""
        self._downloads = Downloads(download_time)
        self.output_type: Any = options.get('output_type') or agent.output_type
        self._states = [*states_of(self.output_type)]
        self._metadata_of, self._metadata = (metadata, {}) if callable(metadata) else (None, metadata or {})
        self.steps = StepsShown(progress, hidden)
        """The steps that clients may see."""
        self.trace = Trace(hidden)
        """Keeps the steps of runs for a developer."""
        self._hooks = hooks
        changes_history = may_change_history(agent, options)
        self.needs = RunNeeds(
            changes_history=changes_history,
            ends_at_once=not (changes_history or calls_function(self.output_type)),
            prepares_tools=may_prepare_tools(agent, options),
            observes_tools=hooks.of_tools,
            checked_outputs=outputs if outputs is not None and outputs.holds_data else None,
            may_have_model=may_have_model(agent, options),
        )

    def run(self, arguments: RunArguments, options: RunOptions | None = None) -> Coroutine[Any, Any, RunOutput]:
        """Run the agent once, in the current task, or the rest of a run that `RunArguments.turn` has stored in part.

        Args:
            arguments: The arguments of the run.
            options: Options of this run only, over the options of every run.

        Raises:
            RunCancelled: The token was cancelled, or (RunTimedOut) the run's `timeout` passed.
            LeaseLost: Another worker has the task, or the task was ended.
            NoModel: The agent has no model.
            UserError: Pydantic AI refuses the agent, its options or the messages.
            ToolConflict: The agent has a tool with the name of a tool of the client.
            Exited: Code of the user raised `SystemExit` or `GeneratorExit`.
            Stalled: The run repeats a step for ever, because code of the user raised `StopAsyncIteration`.
            InputRequired: The agent asks the client, and `RunArguments.may_wait` is False; also `AuthRequired` and
                `Rejected`. If `may_wait` is True, the output has the state.
            Exception: The model, a tool, or other code of the user failed.
        """
        if not self.connections.kept:
            return self._run(arguments, options)
        in_workflow = options is not None and 'cancellation_token' in options
        run = partial(self._run_unless_cancelled, arguments, options)
        return self.connections.counted(run, arguments.token, in_workflow=in_workflow)

    async def _run_unless_cancelled(self, arguments: RunArguments, options: RunOptions | None) -> RunOutput:
        """Run the agent. `Agent.iter` would enter the toolsets, whose servers may be down, before the cancel."""
        if arguments.token.cancelled:
            raise RunCancelled(
                'The run was cancelled before it began.',
                usage=arguments.usage,
                metadata={'a2a': arguments.info},
                run_id=arguments.run_id,
                conversation_id=arguments.info['context_id'],
            )
        return await self._run(arguments, options)

    async def _run(self, arguments: RunArguments, options: RunOptions | None) -> RunOutput:
        """Enter the agent, run all nodes, and return the output."""
        turn = arguments.turn
        history = deepcopy(arguments.history) if self.needs.changes_history else arguments.history
        resumed = turn is not None and turn.before
        answers = None if resumed else arguments.answers  # the stored messages have the results
        drive: Drive | None = None
        try:
            entered = self.agent.iter(
                None if resumed else arguments.prompt,
                message_history=turn.after(history) if turn is not None and resumed else history or None,
                deferred_tool_results=answers,
                conversation_id=arguments.info['context_id'],
                run_id=arguments.run_id,
                usage=arguments.usage,
                infer_name=False,
                **self._options_of(arguments, options, [*history, *(resumed or ())]),
            )
            # A cancellation that arrives during the entry waits for its end: see `RunToken`.
            async with Entering(arguments.token, entered) as run:
                arguments.token.on_entered(run)
                drive = Drive(self, run, arguments, answers)
                self._wrap(run, arguments)
                try:
                    await drive.to_end(resumed or ())
                except (asyncio.CancelledError, RunCancelled):
                    charge_unanswered(run, arguments.budget)
                    raise
                except SystemExit as error:
                    # Within the block: Pydantic AI raises the errors of the block in another task.
                    raise Exited.of(error) from error
        except UserError as error:
            if drive is not None or self.needs.may_have_model:
                raise
            raise NoModel(NO_MODEL) from error
        except STATES as state:
            if not arguments.may_wait:
                raise
            run, added = (None, AddedMessages()) if drive is None else (drive.run, drive.added)
            answered = arguments.answers is not None
            return stopped(run, added, state, turn, arguments.prompt, usage=arguments.usage, answers=answered)
        return drive.output()

    def _wrap(self, run: AgentRun[Any, Any], arguments: RunArguments) -> None:
        """Wrap the parts of a run that need it, before the first node."""
        if (client_output := arguments.client_output) is not None:
            check_outputs(run, client_output.outputs, client_output.schema)
        elif self.needs.checked_outputs is not None:
            check_outputs(run, self.needs.checked_outputs)
        if self.needs.prepares_tools:
            contain_prepare_exits(run)
        if self.needs.observes_tools:
            observe_tools(run, self._hooks, arguments.info['task_id'])
        if arguments.client_tools:
            add_client_tools(run, arguments.client_tools)
        if arguments.approved:
            wrap_toolset(run, partial(AsApproved, approved=arguments.approved))

    def _options_of(
        self, arguments: RunArguments, run_options: RunOptions | None, messages: Sequence[ModelMessage]
    ) -> dict[str, Any]:
        """Return the options of `Agent.iter` for a run, whose prompt follows the messages."""
        metadata: dict[str, Any] = {**self._metadata, 'a2a': arguments.info}
        options: dict[str, Any] = {'cancellation_token': arguments.token, **self._options, **(run_options or {})}
        options['metadata'] = metadata if self._metadata_of is None else _merged(self._metadata_of, metadata)
        if self.timeout is not None:
            options['timeout'] = self.timeout - arguments.spent
        if arguments.client_output is not None:
            options['output_type'] = [arguments.client_output.type, *self._states]
        in_workflow = options['cancellation_token'] is None
        if not in_workflow and (arguments.steering is not None or has_files(arguments.prompt, messages)):
            # Only when needed: a run with its own capabilities starts more slowly. In a workflow, which takes none, the
            # models download the files.
            options['capabilities'] = [*options.get('capabilities', ()), self._downloads]
        if arguments.budget is not None:
            options['usage_limits'] = within(arguments.budget, options.get('usage_limits') or UsageLimits())
        return options


class Drive:
    """One run that was entered: runs its nodes, shows and stores what they make, and returns the output.

    Args:
        runner: Has the steps that clients may see, and the needs of the run.
        run: The run, before its first node.
        arguments: The arguments of the run.
        answers: Results of the calls at the end of the history; None for a run that resumes.
    """

    def __init__(
        self, runner: Runner, run: AgentRun[Any, Any], arguments: RunArguments, answers: DeferredToolResults | None
    ) -> None:
        self.run = run
        self.added = AddedMessages()
        """The messages that the run adds, in this attempt."""
        self._arguments = arguments
        self._needs = runner.needs
        self._steps = runner.steps
        self._trace = runner.trace
        self._key = arguments.info['task_id'], arguments.run_id
        self._answer = AnswerStream(arguments.text_output)
        self._tools = ToolEvents(run, answers, arguments.shown)

    async def to_end(self, resumed: Sequence[ModelMessage]) -> None:
        """Run all nodes.

        Args:
            resumed: The stored messages of earlier attempts. The run resumes after them.
        """
        run, arguments = self.run, self._arguments
        turn, steering = arguments.turn, arguments.steering
        node: _Node = await self._resume(resumed[-1]) if resumed else run.next_node
        following: _Node
        # A capability may give the run its result, without the rest of the nodes.
        while not isinstance(node, End) and run.result is None:
            # Once for the node: a reader who comes while a plain request runs gets its text in one piece.
            streams = self._streams(node)
            asks = type(node) is ModelRequestNode
            try:
                # Streamed inside of the hooks for nodes, as `Agent.run` does: a hook acts before the model is asked.
                following = await (next_with(run, node, self._observe) if streams else run.next(node))
            except Exception as error:
                self._report(node, error)
                raise
            # The hooks of the node have ended, so its messages are whole. A later request may build them anew.
            before, node = node, following
            if self._needs.changes_history:
                self.added.note(run, before, node)
            if node is before:
                raise Stalled
            if steering is not None:
                # A message that arrives after this look waits for the next request, or for the next run of the task.
                await steering.step(run, node)
            note, responded = None, type(node) is CallToolsNode
            if responded:
                _prepare_tools(run, node.model_response, may_wait=arguments.may_wait)
                if asks:  # else an earlier run has shown and stored the response
                    note = await self._end_response(node.model_response, is_shown=streams)
            # Before the next node. After a crash between this node and the write, the next attempt repeats the node.
            is_stored = turn is not None and await self._store_step(turn, before, node, note)
            if note is not None and not is_stored:
                await arguments.emit(note)
            if self._trace.wanted:
                self._keep_trace(node)

    async def _resume(self, last: ModelMessage) -> _Node:
        """Return the first node of a run that resumes after its last stored message."""
        run, arguments = self.run, self._arguments
        assert arguments.turn is not None, 'a stored message has a turn'
        enqueue_again(run, arguments.turn.enqueued)
        set_prompt(run, arguments.prompt)
        first = run.next_node
        assert not isinstance(first, End)
        node: _Node = await run.next(first)
        if Agent.is_model_request_node(node) and isinstance(last, ModelResponse) and last.state != 'suspended':
            # After a final response, an agent with instructions would ask the model again.
            response = run.all_messages()[-1]
            assert isinstance(response, ModelResponse)
            node = CallToolsNode[Any, Any](response)
        elif arguments.steering is not None:
            await arguments.steering.step(run, node)
        if Agent.is_call_tools_node(node):
            _prepare_tools(run, node.model_response, may_wait=arguments.may_wait)
        return node

    def _streams(self, node: _Node) -> bool:
        """Return whether readers or a developer want the events of a node, and the node has events."""
        arguments = self._arguments
        if type(node) is ModelRequestNode:
            shows = self._steps.any or arguments.partial_outputs is not None
            wanted = (arguments.text_output and arguments.watched_live()) or (shows and arguments.watched())
            return wanted and can_stream(model_of(self.run))
        return type(node) is CallToolsNode and (self._trace.wanted or self._shows_tools())

    def _shows_tools(self) -> bool:
        return self._steps.of_tools and self._arguments.watched()

    async def _observe(self, node: _Node) -> None:
        """Show the events of a node, which hooks may have put in the place of another node."""
        run, arguments = self.run, self._arguments
        if Agent.is_model_request_node(node):
            contain_model_exits(run)
            self._answer.begin_response()
            stream: _Events = Entering(arguments.token, node.stream(run.ctx))
        elif Agent.is_call_tools_node(node) and self._shows_tools():
            stream = self._tools.of_node(node)
        elif Agent.is_call_tools_node(node) and self._trace.wanted:
            async with node.stream(run.ctx) as own_events:
                async for event in own_events:
                    self._trace.observe(*self._key, event)
            return
        else:
            return
        # Once for the node: a reader who comes later would get the text from its middle on.
        live = arguments.watched_live()
        async with stream as events:
            observe = None if arguments.partial_outputs is None else arguments.partial_outputs.of(run, events)
            async for event in events:
                if self._trace.wanted:
                    self._trace.observe(*self._key, event)
                text = self._answer.feed(event) if live else None
                if (output := text or self._steps.of_event(event)) is not None:
                    await arguments.emit(output)
                if observe is not None:
                    await observe(event)

    async def _end_response(self, response: ModelResponse, *, is_shown: bool) -> Note | None:
        """Show a new response, if it was not streamed. Return its text as a note, if it calls tools."""
        self._tools.begin_response()
        if self._steps.any and not is_shown and self._arguments.watched():
            for step in self._steps.of_response(response):
                await self._arguments.emit(step)
        return self._answer.end_response(response)

    async def _store_step(self, turn: Turn, done: _Node, following: _Node, note: Note | None) -> bool:
        """Store a step of the run with its note. Return False if the step was not stored.

        A final response is stored only if code of the user receives the output before the run ends, or if an enqueued
        message lets the run go on. Otherwise the end of the task follows at once, and stores the response
        (`Recorder.complete` in `server.runs.recorder`). If the model is asked again, for an output of another form, the
        step is stored with the next request.
        """
        run, steering = self.run, self._arguments.steering
        if Agent.is_model_request_node(done) and done.is_resuming_without_prompt:
            turn.sent_again(done.request)
        # Messages of the client stay unread until the model has answered them.
        enqueued = enqueued_in(run, () if steering is None else steering.entering)
        if isinstance(following, End):
            return False
        if type(following) is CallToolsNode:
            unsent = None
            if not enqueued and self._ends_at_once(done, following.model_response):
                return False
        else:
            unsent = following.request if Agent.is_model_request_node(following) else None
        return await turn.step(self.added.of(run), unsent, run.usage, note, enqueued=enqueued)

    def _ends_at_once(self, done: _Node, response: ModelResponse) -> bool:
        """Return True if the response of a node ends the run, and no code of the user gets it."""
        needs, calls = self._needs, response.tool_calls
        if not needs.ends_at_once or validates_output(self.run):
            return False
        if calls and (needs.observes_tools or type(done) is not ModelRequestNode):
            return False  # a hook gets the calls, or the calls of an earlier run have their answers
        tools = (tool_of(self.run, call.tool_name) for call in calls)
        return all(tool is not None and tool.kind == 'output' for tool in tools)

    def _report(self, node: _Node, error: Exception) -> None:
        """Report a failed node to a developer, and a failed request to the model, also one that fails for a file."""
        if self._trace.wanted and not isinstance(error, STATES):
            self._trace.fail(*self._key, error)
        if type(node) is not ModelRequestNode:
            return
        arguments = self._arguments
        on_model_error = arguments.on_model_error
        # A stored step has the results of its tools. Without stored steps, another try would repeat tool calls.
        if on_model_error is not None and (arguments.turn is not None or not self.run.usage.tool_calls):
            on_model_error(error)
        check_files(error, self.run.all_messages(), node.request)

    def _keep_trace(self, following: _Node) -> None:
        turn = self._arguments.turn
        unsent = [following.request] if Agent.is_model_request_node(following) else []
        new = [*self.added.of(self.run), *unsent]
        self._trace.keep(*self._key, new if turn is None else turn.all(new))

    def output(self) -> RunOutput:
        """Return the output of the run at its end."""
        run, arguments = self.run, self._arguments
        result = run.result
        assert result is not None, 'the run was driven to its end'
        new = self.added.of(run)
        messages = new if arguments.turn is None else arguments.turn.all(new)
        response = last_response(messages)  # None if a capability has ended the run without the model
        output = (question_of(response) if arguments.may_wait and response is not None else None) or result.output
        waits = isinstance(output, _WAITS)
        whole = result.all_messages()
        return RunOutput(
            output=output,
            files=() if response is None else response.files,
            streamed=self._answer.streamed,
            messages=messages,
            rewritten=whole if is_compacted(whole, arguments.history, messages) else None,
            usage=run.usage,
            waits=waits,
            schemas=schemas_of(run, result.output) if waits else None,
            calls=calls_of(whole) if waits else (),
            shown=[*self._tools.ids],
            result=result,
        )


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


def can_stream(model: Model) -> bool:
    """Return whether the model can stream a request, without a request."""
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(can_stream, model.models))
    if getattr(model, 'stream_function', ...) is None:  # a FunctionModel, whose module takes long to import
        return False
    return type(model).request_stream is not Model.request_stream
