"""The options of every run of an agent, the information for its tools, and checks of both."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypeAlias, cast

from pydantic_ai import Agent, AgentSpec, CallToolsNode, ModelRetry, RunContext
from pydantic_ai.agent import (
    AbstractAgent,
    AgentInstructions,  # pyright: ignore[reportPrivateImportUsage] - in Agent.run's signature, but exported nowhere
    AgentRetries,
    WrapperAgent,
)
from pydantic_ai.agent.abstract import AgentMetadata, AgentModelSettings
from pydantic_ai.capabilities import (
    AbstractCapability,
    AgentCapability,
    DynamicCapability,
    Hooks,
    ModelFallback,
    ProcessHistory,
    SetToolMetadata,
    WrapperCapability,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    FinalResultEvent,
    FunctionToolCallEvent,
    ModelMessage,
    PartDeltaEvent,
    UserContent,
)
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.output import OutputContext, OutputSpec
from pydantic_ai.result import AgentStream
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    ExternalToolset,
    FilteredToolset,
    FunctionToolset,
    PreparedToolset,
    ToolsetTool,
    WrapperToolset,
)
from pydantic_ai.usage import UsageLimits
from pydantic_ai.workspaces import WorkspaceBackend, WorkspaceRef
from typing_extensions import TypedDict

from ..arguments import seconds, suggestion
from ..conversion.json_schema import problem
from ..conversion.output_mapper import OutputMapper
from ..conversion.output_types import has_output_functions
from ..errors import ToolConflict
from .pydantic_ai_internals import (
    capabilities_of,
    check_capabilities,
    check_metadata,
    check_model,
    check_toolsets,
    has_images,
    has_output_validators,
    has_workspaces,
    in_workflow,
    knows_name,
    refuses_images,
    tool_of,
    validates_output,
    wrap_all_hooks,
    wrap_toolset,
)
from .system_exits import contained

NO_MODEL = 'The agent has no model: give one to Agent(...), to_a2a(agent, model=...) or agent.override(model=...).'
NO_DEPS = (
    'The agent has a deps_type, and its runs have no deps: give them to to_a2a(agent, deps=...),'
    ' to_a2a(agent, deps_factory=...) or agent.override(deps=...).'
)
NO_ENGINE = 'The agent has the capability %s, which acts in workflows only. Without engine=, tasks run outside of them.'
_REFUSED = {'DBOSAgent': 'cancellation', 'PrefectAgent': 'cancellation', 'TemporalAgent': 'timeout='}
"""Wrappers for durable execution, and the option refused in every run, inside a workflow or not."""
_SAME_TOOLS = (ApprovalRequiredToolset, FilteredToolset, PreparedToolset)
"""Toolsets with the tools of an inner toolset, under the same names."""
_USERS_CODE = (DynamicCapability, Hooks, ProcessHistory, WrapperCapability)
"""Capabilities of Pydantic AI that call or hold user code."""


class RunOptions(TypedDict, total=False):
    """Options of `to_a2a` for every run of the agent, with the names and the meaning of `Agent.run`.

    Options of a single request are left out: prompt, history and conversation, run id, usage, cancellation token,
    deferred tool results, event handler. None stands for an absent option.
    """

    output_type: OutputSpec[Any] | None
    """Instead of the agent's own; not for agents with output validators."""
    model: Model | KnownModelName | str | None
    """Instead of the agent's own."""
    instructions: AgentInstructions[Any] | None
    """In addition to the agent's own."""
    deps: Any
    """The same object for every run."""
    model_settings: AgentModelSettings[Any] | None
    """Merged over the agent's own, setting by setting."""
    usage_limits: UsageLimits | None
    """A task beyond the limits is `failed`."""
    timeout: timedelta | float | None
    """Time for a run, as a `timedelta` or in seconds; a longer task is `failed`."""
    metadata: AgentMetadata[Any] | None
    """In addition to the agent's own. The value of `a2a` is always a `RunInfo`."""
    retries: int | AgentRetries | None
    """Instead of the agent's own."""
    toolsets: Sequence[AbstractToolset[Any]] | None
    """In addition to the agent's own."""
    capabilities: Sequence[AgentCapability[Any]] | None
    """In addition to the agent's own."""
    workspace: WorkspaceBackend | WorkspaceRef | Literal['new'] | None
    """As in `Agent.run`; the same for every run."""
    spec: dict[str, Any] | AgentSpec | None
    """In addition to the agent's own parts."""


class RunInfo(TypedDict):
    """Information for tools, under `a2a` in `RunContext.metadata`."""

    task_id: str
    context_id: str
    attempt: int
    """1, and one more for each process lost during the run."""
    idempotency_key: str
    """Names the run, the same in all attempts. With `RunContext.tool_call_id`, names one call of a tool."""


def check_options(agent: AbstractAgent[Any, Any], options: RunOptions) -> None:
    """Refuse options that would fail every run of the agent.

    Raises:
        TypeError: An option is unknown, or belongs to a request; the agent has output validators and the options have
            an output type; the class of the agent overrides `run`; or the agent is a deprecated wrapper for durable
            execution, for which runs are refused.
        ValueError: The timeout is not positive.
    """
    if unknown := options.keys() - RunOptions.__annotations__.keys():
        raise TypeError(
            f'to_a2a() takes no {", ".join(sorted(unknown))}: this is not an option that applies to every run.'
        )
    timeout = options.get('timeout')
    if timeout is not None and seconds(timeout) <= 0:
        raise ValueError(f'timeout must be positive, not {timeout!r}.')
    kind = next(kind for kind in type(agent).__mro__ if 'run' in vars(kind))
    if not kind.__module__.startswith(('pydantic_ai.', 'pydantic_ai_a2a.')):
        raise TypeError(
            f'{kind.__name__} overrides run(), which to_a2a() does not call: tasks are runs of iter(). Override iter(),'
            ' or give the agent a capability with wrap_run().'
        )
    while isinstance(agent, WrapperAgent):
        for kind in type(agent).__mro__:  # by name: the class cannot be imported without its engine
            durable = kind.__module__.startswith('pydantic_ai.durable_exec.')
            refused = _REFUSED.get(kind.__name__) if durable else None
            if refused == 'cancellation' or (refused is not None and timeout is not None):
                instead = kind.__name__.replace('Agent', 'Durability')
                raise TypeError(
                    f'{kind.__name__} takes no {refused}: give to_a2a() the wrapped agent, '
                    f'or an agent with the capability {instead}.'
                )
        agent = agent.wrapped
    if options.get('output_type') is not None and has_output_validators(agent):  # the agent may get validators later
        raise TypeError(
            'output_type= cannot be combined with output validators of the agent: set output_type= on the agent itself.'
        )


def check_partial_data(agent: AbstractAgent[Any, Any], options: RunOptions) -> None:
    """Refuse partial data for an agent whose functions would run on each partial output.

    Raises:
        TypeError: The agent has output functions or output validators.
    """
    output_type = options.get('output_type') or agent.output_type
    if has_output_functions(output_type) or has_output_validators(_unwrapped(agent)):
        raise TypeError(
            'Progress.partial_data cannot be combined with output functions or output validators of the agent, which'
            " would run on each partial output. Progress.partial_data='with-functions' allows that."
        )


def may_have_own_output(agent: AbstractAgent[Any, Any]) -> bool:
    """Return True if Pydantic AI lets a run have its own output type: the agent has no output validators."""
    return not has_output_validators(_unwrapped(agent))


def models_of(agent: AbstractAgent[Any, Any], options: RunOptions) -> list[Model | str]:
    """Return the models that a run may use, as far as known before the run.

    Included are the model of the options or of the agent, and the models of each `ModelFallback` capability. Models
    from `agent.override` or a model selector are unknown before the run.
    """
    model = options.get('model') or agent.model
    models: list[Model | str] = [] if model is None else [model]
    for capability in _capabilities(agent, options):
        if isinstance(capability, ModelFallback):
            models += cast('ModelFallback[Any]', capability).models
    return models


def may_have_model(agent: AbstractAgent[Any, Any], options: RunOptions) -> bool:
    """Return whether a run may have a model without `agent.override`: an option, the agent's, or a capability's."""
    if models_of(agent, options) or options.get('spec') is not None or not isinstance(_unwrapped(agent), Agent):
        return True
    return any(
        not isinstance(capability, AbstractCapability)
        or isinstance(capability, _USERS_CODE)
        or type(cast('AbstractCapability[Any]', capability)).get_model is not AbstractCapability.get_model
        for capability in _capabilities(agent, options)
    )


def durability(agent: AbstractAgent[Any, Any], options: RunOptions) -> str | None:
    """Return the name of a capability for durable execution; None if the agent has none."""
    kinds = (type(capability) for capability in _capabilities(agent, options))
    # By name: the modules of engines take long to import.
    return next((kind.__name__ for kind in kinds if kind.__module__.startswith('pydantic_ai.durable_exec.')), None)


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
        check_capabilities(inside, _capabilities_of_runs(agent, options))
        check_toolsets(inside, toolsets)
        if not any(isinstance(capability, SetToolMetadata) for capability in _capabilities(agent, {})):
            check_metadata(inside, toolsets)
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
    resolvers = {getattr(type(capability), 'resolve_model_id', None) for capability in _capabilities(agent, {})}
    if resolvers - {AbstractCapability[Any].resolve_model_id, kind.resolve_model_id}:
        return
    for name in models_of(agent, options)[1:]:
        if isinstance(name, str) and not knows_name(inside, name):
            raise TypeError(
                f'ModelFallback has the model {name!r}, which a workflow cannot change to. Make it known:'
                f' {kind.__name__}(models={{{name!r}: …}}).'
            )


def _capabilities_of_runs(agent: AbstractAgent[Any, Any], options: RunOptions) -> Iterator[AbstractCapability[Any]]:
    """Yield the capabilities of the options."""
    for capability in options.get('capabilities') or ():
        if isinstance(capability, AbstractCapability):
            yield cast('AbstractCapability[Any]', capability)
        else:
            yield DynamicCapability(capability)
    yield from capabilities_of(_unwrapped(agent), options.get('spec'))


def lacks_deps(agent: AbstractAgent[Any, Any], options: RunOptions) -> bool:
    """Return whether the tools of the agent expect dependencies that the options of a run do not have."""
    kind = cast('object', agent.deps_type)  # a union is no class
    return isinstance(kind, type) and kind not in (object, Any, type(None)) and 'deps' not in options


def check_tools(agent: AbstractAgent[Any, Any], options: RunOptions, argument: str, named: Collection[str]) -> None:
    """Refuse a name in an argument of `to_a2a` that is no tool of the agent, if all tools are known before a run.

    Raises:
        ValueError: There is no such tool.
    """
    tools, are_all = _tool_names([*agent.toolsets, *(options.get('toolsets') or ())])
    if not named or not are_all or options.get('spec') is not None:
        return
    if any(map(_may_bring_tools, _capabilities(agent, options))):
        return
    if unknown := sorted(set(named) - tools):
        names = ', '.join(sorted(tools)) or 'no tools'
        near = suggestion(unknown[0], tools)
        raise ValueError(f'{argument} has {unknown[0]!r}, but the agent has no such tool.{near} It has {names}.')


def known_tools(agent: AbstractAgent[Any, Any], options: RunOptions) -> set[str]:
    """Return the names of the tools of the agent that are known before a run.

    Providers such as Anthropic refuse a request if a tool has the name of a native tool, such as `web_search`.
    """
    names, _ = _tool_names([*agent.toolsets, *(options.get('toolsets') or ())])
    return names.union(*map(_native_tools, _capabilities(agent, options)))


def _native_tools(capability: object) -> set[str]:
    """Return the names of the native tools of a capability. A function that makes a native tool is left out."""
    if not isinstance(capability, AbstractCapability):
        return set()
    tools = cast('AbstractCapability[Any]', capability).get_native_tools() or ()
    return {tool.kind for tool in tools if isinstance(tool, AbstractNativeTool)}


def _tool_names(toolsets: Iterable[AbstractToolset[Any]]) -> tuple[set[str], bool]:
    """Return the names of tools; False if more tools are known in a run only, such as the tools of an MCP server."""
    names: set[str] = set()
    are_all = True
    for toolset in toolsets:
        complete = True
        if isinstance(toolset, FunctionToolset) and type(toolset).__module__.startswith('pydantic_ai.'):
            tools = {*toolset.tools}
        elif isinstance(toolset, ExternalToolset):
            tools = {tool.name for tool in toolset.tool_defs}
        elif isinstance(toolset, CombinedToolset):
            tools, complete = _tool_names(toolset.toolsets)
        elif isinstance(toolset, _SAME_TOOLS):
            tools, complete = _tool_names([cast('WrapperToolset[Any]', toolset).wrapped])
        else:
            tools, complete = set[str](), False
        names |= tools
        are_all = are_all and complete
    return names, are_all


def _may_bring_tools(capability: object) -> bool:
    if not isinstance(capability, AbstractCapability):
        return True
    kind = type(cast('AbstractCapability[Any]', capability))
    own = (kind.get_toolset, kind.get_native_tools, kind.get_wrapper_toolset) != (
        AbstractCapability.get_toolset,
        AbstractCapability.get_native_tools,
        AbstractCapability.get_wrapper_toolset,
    )
    return own and not kind.__module__.startswith('pydantic_ai.capabilities._')


def may_change_history(agent: AbstractAgent[Any, Any], options: RunOptions) -> bool:
    """Return whether messages may be changed in place on their way to the model, as by a history processor.

    Pydantic AI and its own capabilities never change the messages of a history.
    """
    if not isinstance(_unwrapped(agent), Agent) or options.get('spec') is not None:
        return True
    return any(
        isinstance(capability, _USERS_CODE) or not type(capability).__module__.startswith('pydantic_ai.')
        for capability in _capabilities(agent, options)
    )


def may_prepare_tools(agent: AbstractAgent[Any, Any], options: RunOptions) -> bool:
    """Return whether a tool has a `prepare` function."""
    leaves: list[AbstractToolset[Any]] = []
    for toolset in (*agent.toolsets, *(options.get('toolsets') or ())):
        toolset.apply(leaves.append)
    functions = (leaf for leaf in leaves if isinstance(leaf, FunctionToolset))
    return any(tool.prepare is not None for leaf in functions for tool in leaf.tools.values())


def _unwrapped(agent: AbstractAgent[Any, Any]) -> AbstractAgent[Any, Any]:
    while isinstance(agent, WrapperAgent):
        agent = agent.wrapped
    return agent


def _capabilities(agent: AbstractAgent[Any, Any], options: RunOptions) -> Iterator[object]:
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


# --- a new request to the model if an output holds NaN or infinity, or does not fit the schema of a client ------------


def check_outputs(run: AgentRun[Any, Any], outputs: OutputMapper, schema: Mapping[str, Any] | None = None) -> None:
    """Make a wrong output of a run a failed validation, within the output retries of the agent.

    A capability of the run would have the same effect, but makes each run about a fifth more expensive.

    Args:
        run: The run, before its first step.
        outputs: Converts the outputs, which must not hold NaN or infinity.
        schema: The schema of the client, which the outputs must fit; None for the outputs of the agent.
    """
    wrap_all_hooks(run, lambda capability: _Checked(capability, outputs, schema))


class _Checked(WrapperCapability[Any]):
    """Calls the hooks of a run's capabilities, which may replace numbers, and then checks the output."""

    def __init__(
        self, wrapped: AbstractCapability[Any], outputs: OutputMapper, schema: Mapping[str, Any] | None
    ) -> None:
        super().__init__(wrapped)
        self._outputs = outputs
        self._schema = schema

    async def wrap_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any, handler: Any
    ) -> Any:
        processed: Any = await self.wrapped.wrap_output_process(
            ctx, output_context=output_context, output=output, handler=handler
        )
        # The states of a task, such as `InputRequired`, are no data.
        if self._schema is not None and isinstance(processed, dict) and not ctx.partial_output:
            misfit = problem(cast('dict[str, Any]', processed), self._schema, 'output')
            if misfit is not None:
                raise ModelRetry(' '.join(misfit))
        fault = self._outputs.not_finite(processed)
        if fault is not None:
            raise ModelRetry(fault)
        return cast('Any', processed)


# --- the tools of the client in a run ---------------------------------------------------------------------------------
# External tools, whose calls end the run until the client has answered.


def add_client_tools(run: AgentRun[Any, Any], tools: Sequence[ToolDefinition]) -> None:
    """Add tools of the client to all tools of a run.

    The tools are not an argument `toolsets` of the run: `agent.override(toolsets=...)` would drop them, and Pydantic
    AI's error about two tools with a name would be an error of the agent.
    """
    client = ExternalToolset[Any]([*tools])
    wrap_toolset(run, lambda toolset: _WithClientTools(toolset, client))


@dataclass
class _WithClientTools(WrapperToolset[Any]):
    """All tools of a run, also those for structured outputs, and the tools of the client."""

    client: ExternalToolset[Any]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools of a step.

        Raises:
            ToolConflict: The agent has a tool with the name of a tool of the client, such as a tool of an MCP server.
        """
        tools, added = await self.wrapped.get_tools(ctx), await self.client.get_tools(ctx)
        if taken := sorted(tools.keys() & added.keys()):
            raise ToolConflict(taken)
        return {**tools, **added}


# --- the calls and results of tools, as clients see them during a run -------------------------------------------------

_DEFERRED = ('unapproved', 'external')
"""Kinds of tools whose calls wait for an answer before the call is made."""


class ToolEvents:
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


# --- partial outputs --------------------------------------------------------------------------------------------------
# The structured output of a response, validated while the model writes the response.


class PartialOutputs:
    """The partial outputs of a run, for clients that watch the run.

    Args:
        show: Takes a partial output.
        interval: Seconds between two validations, each of which reads the whole output so far.
        with_validators: True to call the output validators of the agent, too.
    """

    def __init__(
        self, show: Callable[[Any], Awaitable[None]], interval: float, *, with_validators: bool = False
    ) -> None:
        self._show = show
        self._interval = interval
        self._with_validators = with_validators

    def of(self, run: AgentRun[Any, Any], events: object) -> Observe | None:
        """Return a function for each event of a model request; None for other events."""
        # The agent may have got validators after the check of `to_a2a`.
        if not isinstance(events, AgentStream) or (validates_output(run) and not self._with_validators):
            return None
        return _Response(cast('AgentStream[Any, Any]', events), self._show, self._interval).observe


Observe = Callable[[AgentStreamEvent], Awaitable[None]]


class _Response:
    """The partial outputs of one response."""

    def __init__(self, stream: AgentStream[Any, Any], show: Callable[[Any], Awaitable[None]], interval: float) -> None:
        self._stream = stream
        self._show = show
        self._interval = interval
        self._has_begun = False
        self._due = 0.0

    async def observe(self, event: AgentStreamEvent) -> None:
        """Show the output after an event, if the output has changed and is due."""
        if isinstance(event, FinalResultEvent):
            self._has_begun = True
        elif not self._has_begun or not isinstance(event, PartDeltaEvent):
            return
        now = asyncio.get_running_loop().time()
        if now < self._due:
            return
        self._due = now + self._interval
        try:
            output = await contained(self._stream.validate_response_output(self._stream.response, allow_partial=True))
        except Exception:
            return  # also an error of an output function: the run calls the function again, with the whole output
        await self._show(output)


# --- messages of the client that enter a run under way, at its steps --------------------------------------------------

Content: TypeAlias = UserContent | ModelMessage
Unread: TypeAlias = Callable[[int], Awaitable[Sequence[tuple[int, Sequence[Content]]]]]
"""Returns the messages after a row of the inbox, oldest first, each with its row."""


class Steering:
    """Looks for messages before each request to the model, and has Pydantic AI add them to the request.

    At other moments no message enters. While all calls of the model wait for approval, a new message would supersede
    the calls. A message with the last answer is the prompt of the task's next run.

    Args:
        unread: Returns the messages after a row.
        after: Row of the newest message in the run.
        take: Called with the row of the newest message that the model has answered.
    """

    def __init__(self, unread: Unread, after: int, take: Callable[[int], object]) -> None:
        self._unread = unread
        self._after = after
        self._take = take
        self.entering: list[str | None] = []
        """Ids of the messages that Pydantic AI adds to the next request."""
        self._newest = after

    async def step(self, run: AgentRun[Any, Any], following: Any) -> None:
        """Take up messages between two nodes of the run, or before the first node."""
        if self.entering:
            self._entered(run)
        if Agent.is_model_request_node(following):
            for row, content in await self._unread(self._after):
                self.entering.append(run.enqueue(*content))
                self._newest = row

    def _entered(self, run: AgentRun[Any, Any]) -> None:
        """Note the entered messages. Messages wait for the next request if a capability answered this request."""
        waiting = [run.dequeue(entry) for entry in self.entering if entry is not None]
        self.entering.clear()
        if not any(waiting):
            self._after = self._newest
            self._take(self._newest)
