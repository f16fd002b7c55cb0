"""The `deps` of a run: made from the call that started the run, and closed at the end of the run.

The process that accepted the call may differ from the process of the run, so the task stores the factory's input.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction, isgeneratorfunction
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast, overload

from anyio import to_thread
from pydantic_ai import CancellationToken, RunContext
from pydantic_ai.exceptions import RunCancelled, RunTimedOut
from pydantic_ai.run import AgentRun, AgentRunResult
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_core import from_json

from ..arguments import seconds
from ..conversion.outbound import Artifacts
from ..conversion.output_mapper import OutputMapper
from ..conversion.output_modes import OutputModes
from ..conversion.pending import NoCredential
from ..conversion.typed_input import ValidatedInput, input_of
from ..errors import ends_task, is_cancelled
from ..protocol import stored
from ..store.ports import Claim
from ..types import (
    ANONYMOUS,
    Caller,
    Message,
    Note,
    SecurityScheme,
    ToolArtifact,
    dump_caller,
    frozen,
    load_caller,
    sender_of,
)
from .agent_facts import RunInfo, RunOptions
from .pydantic_ai_internals import wrap_toolset
from .system_exits import contained, contained_call

logger = logging.getLogger('pydantic_ai_a2a')

_CREDENTIALS = frozenset({'authorization', 'cookie', 'proxy-authorization'})
"""Headers with credentials, never stored."""

T = TypeVar('T')
InputT = TypeVar('InputT')


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """The call that started a run, as accepted: the argument of `deps_factory`."""

    caller: Caller
    """Sender of the message, with the scopes of the sender's credentials at the call."""
    headers: Mapping[str, str]
    """The HTTP headers named by `deps_headers`, in lower case. Repeated headers are joined with `, `."""
    message: Message
    """The first message of the run."""
    metadata: Mapping[str, Any]
    """Metadata of the request. The message has metadata of its own."""
    task_id: str
    context_id: str
    validated: ValidatedInput | None = field(default=None, repr=False)
    """The data behind `input`; None without `Messages.input_type`."""

    @overload
    def input(self, input_type: type[InputT]) -> InputT: ...
    @overload
    def input(self, input_type: Any) -> Any: ...
    def input(self, input_type: Any) -> Any:
        """Return the validated data that has begun the task: the object that `a2a(ctx).input` also returns.

        Args:
            input_type: The type in `Messages.input_type`.

        Raises:
            NoInput: The task has no such data, or `Messages.input_type` is another type.
        """
        return input_of(self.validated, input_type)

    @property
    def tenant(self) -> str:
        """The caller's tenant; empty without tenants."""
        return self.caller.tenant


DepsFactory: TypeAlias = Callable[[CallContext], Any]
"""Makes the `deps` of one run. Returns `deps`, an awaitable, or a context manager, async or not."""


class DependenciesFailed(Exception):
    """The `deps` of a run could not be made or closed. Never sent to a client; the log has the cause."""


_ENTRY = 0.1
"""Seconds for which an entry holds a cancellation back."""
_TURNS = 100
"""Turns of the event loop after these seconds: on a busy machine, an entry may need more time, but not more turns."""


class RunToken(CancellationToken):
    """Cancels the runs of one task, and the making of `deps`.

    Pydantic AI leaves a task of its own behind for ever if a cancellation arrives in the last moment of the entry into
    a run or a stream. So the cancellation waits for the entry, or a little if the entry takes long.
    """

    on_entered: Callable[[AgentRun[Any, Any]], object] = id
    """Called with each run once it is entered. The token outlives its runs, and keeps none: `id` does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Timeout | None = None
        self.enters = False
        """True during an entry."""
        self._waits = False

    def cancel(self) -> None:
        """Cancel, from any thread. A second call does nothing."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self.enters:
            self._cancel_now()
        elif not self._waits:
            self._waits = True
            self._loop.call_later(_ENTRY, self._cancel_after, _TURNS)

    def _cancel_after(self, turns: int) -> None:
        if self.enters and turns:
            self._loop.call_soon(self._cancel_after, turns - 1)
        else:
            self._cancel_now()

    def _cancel_now(self) -> None:
        super().cancel()
        self._stop_opening()

    def entered(self) -> None:
        """End an entry, and cancel now if a cancellation has waited."""
        self.enters = False
        if self._waits:
            self._cancel_now()

    @contextmanager
    def opening(self, opening: asyncio.Timeout) -> Generator[None]:
        """End a timeout's block when the token is cancelled, or at once if cancelled before."""
        self._opening = opening
        self._stop_opening()
        try:
            yield
        finally:
            self._opening = None

    def _stop_opening(self) -> None:
        if self.cancelled and self._opening is not None and not self._opening.expired():
            self._opening.reschedule(self._loop.time())


class Entering(AbstractAsyncContextManager[T]):
    """Enters a run or a stream of Pydantic AI whole, before a cancellation of its token."""

    def __init__(self, token: RunToken, entered: AbstractAsyncContextManager[T]) -> None:
        self._token = token
        self._entered = entered

    async def __aenter__(self) -> T:
        self._token.enters = True
        try:
            return await self._entered.__aenter__()
        finally:
            self._token.entered()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._entered.__aexit__(*error)


class Dependencies:
    """Gives each run `deps` of its own.

    Args:
        factory: Makes the `deps`.
        headers: Names of the HTTP headers for the factory.
        timeout: Seconds for the factory; None for no limit.
    """

    def __init__(self, factory: DepsFactory, headers: Iterable[str], timeout: float | None) -> None:
        self._factory = factory
        self._headers = frozenset(name.lower().encode('latin-1') for name in headers)
        self._timeout = timeout

    def keep(self, headers: Iterable[tuple[bytes, bytes]], caller: Caller) -> dict[str, Any]:
        """Return the stored part of a call besides its message and owner, as JSON values."""
        values: dict[str, str] = {}
        for name, value in headers:
            if name in self._headers:
                key, text = name.decode('latin-1'), value.decode('latin-1')
                values[key] = f'{values[key]}, {text}' if key in values else text
        return {**keep_caller((), caller), 'headers': values}

    async def use(
        self,
        claim: Claim,
        token: RunToken,
        info: RunInfo,
        run_id: str,
        run: Callable[[Any], Awaitable[T]],
        *,
        validated: ValidatedInput | None = None,
    ) -> T:
        """Run with `deps`, and close the `deps` after any end of the run, before the end is recorded.

        Raises:
            DependenciesFailed: The `deps` could not be made, or not be closed after a successful run.
            RunCancelled: The token was cancelled, or (RunTimedOut) the factory took too long.
        """
        opened = AsyncExitStack()
        deps = await self._open(_call_of(claim, validated), token, opened, info, run_id)
        try:
            result = await run(deps)
        except BaseException as error:
            await _close_after(error, opened, claim.header.id)
            raise
        try:
            await opened.aclose()
        except Exception as error:
            raise DependenciesFailed('deps_factory= failed while it closed the dependencies of a run.') from error
        return result

    async def _open(
        self, call: CallContext, token: RunToken, opened: AsyncExitStack, info: RunInfo, run_id: str
    ) -> Any:
        opening = asyncio.timeout(self._timeout)
        try:
            async with opening:
                with token.opening(opening):
                    return await self._enter(call, opened)
        except Exception as error:
            if not opening.expired():
                raise DependenciesFailed('deps_factory= failed before the run.') from error
            kind, why = (RunCancelled, 'cancelled') if token.cancelled else (RunTimedOut, 'not made in time')
            raise kind(
                f'The dependencies were {why}.',
                metadata={'a2a': info},
                run_id=run_id,
                conversation_id=call.context_id,
            ) from error

    async def _enter(self, call: CallContext, opened: AsyncExitStack) -> Any:
        made: Any = self._factory(call)
        # An awaitable context manager, such as a connection, is opened once only.
        if isawaitable(made) and not isinstance(made, AbstractAsyncContextManager):
            made = await made
        if isinstance(made, AbstractAsyncContextManager):
            return await opened.enter_async_context(cast('AbstractAsyncContextManager[Any]', made))
        if isinstance(made, AbstractContextManager):
            return opened.enter_context(cast('AbstractContextManager[Any]', made))
        return made


async def _close_after(error: BaseException, opened: AsyncExitStack, task_id: str) -> None:
    """Close the `deps` with the error of the run. The error of the run stays."""
    try:
        await opened.__aexit__(type(error), error, error.__traceback__)
    except Exception:
        logger.exception(
            'deps_factory= failed while it closed the dependencies of task %s; the error of the run stays.',
            task_id,
        )
    except asyncio.CancelledError as cancellation:
        if is_cancelled(cancellation, asyncio.current_task()):  # else a dependency raised the error
            raise


def _call_of(claim: Claim, validated: ValidatedInput | None) -> CallContext:
    header = claim.header
    request = _request_of(claim)
    call: dict[str, Any] = request.get('call', {})
    return CallContext(
        caller=caller_of(claim),
        headers=call.get('headers', {}),
        message=stored.load_message(claim.message),
        metadata=request.get('metadata', {}),
        task_id=header.id,
        context_id=header.context_id,
        validated=validated,
    )


def _request_of(claim: Claim) -> dict[str, Any]:
    return {} if claim.request is None else from_json(claim.request)


def caller_of(claim: Claim) -> Caller:
    """Return the sender of the message of a run. Without a stored sender, return the owner of the task."""
    fields = sender_of(claim.request)
    return Caller.of(claim.header.owner) if fields is None else load_caller(fields)


def keep_caller(_: object, caller: Caller) -> dict[str, Any]:
    """Return the caller as JSON values, to be stored with the message."""
    return {'caller': dump_caller(caller)}


def dependencies(
    factory: DepsFactory | None,
    headers: Collection[str],
    options: RunOptions,
    schemes: Mapping[str, SecurityScheme],
) -> Dependencies | None:
    """Return the `Dependencies` of a factory; None without a factory.

    Raises:
        TypeError: The factory is a generator function.
        ValueError: A header has credentials, by its name or by one of the security schemes.
    """
    if factory is None:
        return None
    if isasyncgenfunction(factory) or isgeneratorfunction(factory):
        raise TypeError('deps_factory= yields: decorate it with contextlib.asynccontextmanager or contextmanager.')
    keys = {key['name'].lower() for scheme in schemes.values() if (key := scheme.get('api_key_security_scheme'))}
    if secret := sorted(name for name in headers if name.lower() in _CREDENTIALS | keys):
        raise ValueError(
            f'deps_headers= must not name {", ".join(secret)}: headers are stored with the task,'
            ' and credentials are never stored.'
        )
    timeout = options.get('timeout')
    return Dependencies(factory, headers, None if timeout is None else seconds(timeout))


# --- `a2a(ctx)` -------------------------------------------------------------------------------------------------------
# The task of a run, for the tools and hooks of its agent.


class Writer(Protocol):
    """Stores and publishes events of a run; a `Recorder` is a writer."""

    async def write(self, event: Note | ToolArtifact) -> None:
        """Store and publish an event."""


class Running(NamedTuple):
    """The run that the current asyncio task performs."""

    claim: Claim
    writer: Writer
    outputs: OutputMapper
    accepted: Callable[[], OutputModes]
    """Returns the output modes that the client accepts."""
    credential: Callable[[], Awaitable[str | None]] | None = None
    """Reads the valid credential of the caller; None without `Access.credentials`."""
    validated: ValidatedInput | None = None
    """The data that has begun the task; None without `Messages.input_type`."""


running: ContextVar[Running | None] = ContextVar('running', default=None)
"""The run of the current context; None outside of runs."""


class HasMetadata(Protocol):
    """A `RunContext`, an `AgentRunResult` or a `RunCancelled`."""

    @property
    def metadata(self) -> dict[str, Any] | None:
        """Metadata of the run."""
        ...


def a2a(ctx: HasMetadata) -> CurrentTask:
    """Return the A2A task of a run, for tools, output functions, validators and hooks.

    Args:
        ctx: The `RunContext` of a tool, the `AgentRunResult` of `on_complete`, or the `RunCancelled` of `on_cancel`.

    Returns:
        The task. Outside of A2A, such as in a test that calls `agent.run`, the task has no id and an anonymous caller,
        and `status` and `artifact` do nothing.
    """
    current, info = running.get(), (ctx.metadata or {}).get('a2a')
    # A tool may run another agent, whose runs belong to no task.
    if current is None or info is None or info['task_id'] != current.claim.header.id:
        return CurrentTask(None)
    return CurrentTask(current, getattr(ctx, 'tool_call_id', None))


def tool_artifact_prefix(claim: Claim) -> str:
    """Return the beginning of the ids of all artifacts from tools of a turn."""
    return f'{claim.header.id}.{claim.turn}.tool.'


class CurrentTask:
    """The task of a run. Returned by `a2a`.

    Args:
        current: The run; None outside of A2A.
        tool_call_id: Id of the tool call; None outside of tools.
    """

    def __init__(self, current: Running | None, tool_call_id: str | None = None) -> None:
        self._current = current
        self._tool_call_id = tool_call_id

    @property
    def task_id(self) -> str:
        """Id of the task; empty outside of A2A."""
        return '' if self._current is None else self._current.claim.header.id

    @property
    def context_id(self) -> str:
        """Id of the conversation; empty outside of A2A."""
        return '' if self._current is None else self._current.claim.header.context_id

    @property
    def caller(self) -> Caller:
        """Sender of the message that began the run, with scopes and claims. Anonymous outside of A2A."""
        return ANONYMOUS if self._current is None else caller_of(self._current.claim)

    @overload
    def input(self, input_type: type[InputT]) -> InputT: ...
    @overload
    def input(self, input_type: Any) -> Any: ...
    def input(self, input_type: Any) -> Any:
        """Return the validated data that has begun the task: the same object for all tools and hooks of a run.

        Args:
            input_type: The type in `Messages.input_type`.

        Raises:
            NoInput: The task has no such data, or `Messages.input_type` is another type.
        """
        return input_of(None if self._current is None else self._current.validated, input_type)

    async def credential(self) -> str:
        """Return the credential that `Credentials.exchange` has returned for the message that began the run.

        Raises:
            NoCredential: There is no credential, or it has expired. If the tool does not catch the error, the task
                waits in `auth-required`, and the next message of the caller brings a new credential.
        """
        read = None if self._current is None else self._current.credential
        value = None if read is None else await read()
        if value is None:
            raise NoCredential
        return value

    async def status(self, text: str) -> None:
        """Show a text to the client as the status message of the working task (§4.1.2), until the next status.

        The text is stored, and watching clients get the text as an event.

        Args:
            text: The text. Clients see the text, so the text must not hold secrets.

        Raises:
            LeaseLost: The task has ended, or has moved to another process.
        """
        if self._current is not None:
            await self._current.writer.write(Note(text))

    async def artifact(self, value: Any, *, name: str, key: str | None = None) -> None:
        """Add an artifact to the task (§4.1.7) before the answer. Watching clients get the artifact as an event.

        Args:
            value: A string, a file (`BinaryContent`, `ImageUrl` and the like), a list of files, or any value for
                Pydantic's JSON.
            name: Name of the artifact.
            key: Names the artifact within the turn: a later artifact with the same key replaces the artifact. Default:
                the id of the tool call and the name. After a crash, the run may repeat a tool call.

        Raises:
            UnserializableOutput: The value cannot be written as JSON.
            UnacceptableOutput: The client accepts nothing of the value.
            LeaseLost: The task has ended, or has moved to another process.
        """
        current = self._current
        if current is None:
            return
        key = f'{self._tool_call_id or "run"}.{name}' if key is None else key
        [artifact] = current.outputs.artifacts(
            Artifacts({name: value}),
            artifact_id=tool_artifact_prefix(current.claim) + key,
            accepted=current.accepted(),
        )
        await current.writer.write(ToolArtifact(artifact))


# --- the user's hooks -------------------------------------------------------------------------------------------------
# Functions to call around tool calls, and after the end of a run is stored.
#
# Errors of a hook are logged and change nothing. A client may have read the end of a task before the hook.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """The failure of a task: the argument of `on_failure`."""

    task_id: str
    context_id: str
    caller: Caller
    """Owner of the task, without scopes."""
    kind: str
    """Name of the failure, also sent to the client."""
    correlation_id: str
    """Names the failure in the log and in the client's message."""
    error: BaseException | None
    """The raised exception; None if no code raised, such as at a shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool by a run: the argument of `on_tool_call`."""

    ctx: RunContext[Any] = field(repr=False)
    """The context of the call, the same as in the tool."""
    tool_name: str
    """Name of the tool for the model."""
    tool_call_id: str
    args: Mapping[str, Any]
    """The validated arguments of the tool, with the changes of approvers and of capabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(ToolCall):
    """The end of a tool call: the argument of `on_tool_result`."""

    result: Any = None
    """The value that the tool returned; None after an error."""
    error: Exception | None = None
    """The exception of the tool, such as a `ModelRetry`, or an `ApprovalRequired` of a tool that asks for itself."""


OnComplete: TypeAlias = Callable[[AgentRunResult[Any]], object]
"""Sync (and then called in a thread) or async."""
OnCancel: TypeAlias = Callable[[RunCancelled], object]
"""Sync (and then called in a thread) or async."""
OnFailure: TypeAlias = Callable[[RunFailure], object]
"""Sync (and then called in a thread) or async."""
OnToolCall: TypeAlias = Callable[[ToolCall], object]
"""Sync (and then called in a thread) or async."""
OnToolResult: TypeAlias = Callable[[ToolResult], object]
"""Sync (and then called in a thread) or async."""


@frozen
class Hooks:
    """The hooks for tool calls and for the ends of runs.

    Raises:
        TypeError: A hook is an async generator function, whose items would be lost.
    """

    on_complete: OnComplete | None = None
    on_cancel: OnCancel | None = None
    on_failure: OnFailure | None = None
    on_tool_call: OnToolCall | None = None
    on_tool_result: OnToolResult | None = None

    def __post_init__(self) -> None:
        for name, hook in self.given.items():
            if isasyncgenfunction(hook):
                raise TypeError(f'{name}= must be a function or an async function without yield, not {hook!r}.')

    @property
    def given(self) -> dict[str, Any]:
        """The hooks by name, without absent hooks."""
        return {hook.name: value for hook in fields(self) if (value := getattr(self, hook.name)) is not None}

    @property
    def of_tools(self) -> bool:
        """True if a hook is called for tool calls."""
        return self.on_tool_call is not None or self.on_tool_result is not None

    async def completed(self, task_id: str, result: AgentRunResult[Any]) -> None:
        """Call `on_complete` after a run's answer is stored."""
        await _call('on_complete', self.on_complete, result, task_id)

    async def canceled(self, task_id: str, canceled: RunCancelled) -> None:
        """Call `on_cancel` after a run and its task were cancelled."""
        await _call('on_cancel', self.on_cancel, canceled, task_id)

    async def failed(self, failure: RunFailure) -> None:
        """Call `on_failure` after a task has failed."""
        await _call('on_failure', self.on_failure, failure, failure.task_id)

    async def tool_called(self, task_id: str, call: ToolCall) -> None:
        """Call `on_tool_call` before a tool runs."""
        if self.on_tool_call is not None:
            await _call('on_tool_call', self.on_tool_call, call, task_id)

    async def tool_returned(self, task_id: str, result: ToolResult) -> None:
        """Call `on_tool_result` after a tool has returned or raised."""
        if self.on_tool_result is not None:
            await _call('on_tool_result', self.on_tool_result, result, task_id)


def observe_tools(run: AgentRun[Any, Any], hooks: Hooks, task_id: str) -> None:
    """Call the hooks for the tool calls of a run."""
    if hooks.of_tools:
        wrap_toolset(run, lambda toolset: _ObservedToolset(toolset, hooks, task_id))


@dataclass
class _ObservedToolset(WrapperToolset[Any]):
    """All tools of a run, below the capabilities of the run, which may change the arguments of a call."""

    hooks: Hooks
    task_id: str

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        call: dict[str, Any] = {
            'ctx': ctx,
            'tool_name': name,
            'tool_call_id': ctx.tool_call_id or '',
            'args': tool_args,
        }
        await self.hooks.tool_called(self.task_id, ToolCall(**call))
        try:
            result = await contained(self.wrapped.call_tool(name, tool_args, ctx, tool))
        except Exception as error:
            await self.hooks.tool_returned(self.task_id, ToolResult(**call, error=error))
            raise
        await self.hooks.tool_returned(self.task_id, ToolResult(**call, result=result))
        return result


async def _call(name: str, hook: Callable[[Any], object] | None, argument: object, task_id: str) -> None:
    assert hook is not None, 'only a hook that is set is called'
    try:
        if iscoroutinefunction(hook):
            await contained(hook(argument))
        elif isawaitable(returned := await contained(to_thread.run_sync(contained_call, hook, argument))):
            await contained(returned)
    except BaseException as error:
        if ends_task(error, asyncio.current_task()):
            raise
        logger.exception('The hook %s of task %s failed; the task stays as it is.', name, task_id)
