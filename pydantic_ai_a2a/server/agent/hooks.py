"""The user's hooks: functions to call around tool calls, and after the end or the pause of a run is stored.

Errors of a hook are logged and change nothing. A client may have read the end of a task before the hook.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field, fields
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction
from threading import Thread
from typing import Any, Generic, TypeAlias, cast

from anyio import to_thread
from pydantic_ai import RunContext
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.run import AgentRun, AgentRunResult
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from typing_extensions import TypeVar

from ...base_exceptions import ends_task
from ...types.a2a_objects import TaskState
from ...types.callers import Caller
from ...types.frozen_values import frozen
from ..conversion.pending_calls import Kind
from .pydantic_ai_internals import wrap_toolset
from .system_exits import contained, contained_call

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')
OutputT = TypeVar('OutputT', default=Any)
DepsT_co = TypeVar('DepsT_co', default=Any, covariant=True)

OnComplete: TypeAlias = Callable[[AgentRunResult[OutputT]], object]
"""Sync (and then called in a thread) or async."""
OnCancel: TypeAlias = Callable[[RunCancelled], object]
"""Sync (and then called in a thread) or async."""


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
class ToolCall(Generic[DepsT_co]):
    """A call of a tool by a run: the argument of `on_tool_call`."""

    ctx: RunContext[DepsT_co] = field(repr=False)
    """The context of the call, the same as in the tool."""
    tool_name: str
    """Name of the tool for the model."""
    tool_call_id: str
    args: Mapping[str, Any]
    """The validated arguments of the tool, with the changes of approvers and of capabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(ToolCall[DepsT_co], Generic[DepsT_co]):
    """The end of a tool call: the argument of `on_tool_result`."""

    result: Any = None
    """The value that the tool returned; None after an error."""
    error: Exception | None = None
    """The exception of the tool, such as a `ModelRetry`, or an `ApprovalRequired` of a tool that asks for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A tool call that waits for an answer."""

    id: str
    """The id with which clients answer the call."""
    kind: Kind
    """`approval`, `question`, `external` for a result of the client, or `authorization` for a sign-in."""
    tool: str
    """Name of the tool."""
    text: str = field(repr=False)
    """The question for a person. It may have the arguments."""
    args: dict[str, Any] | None = field(repr=False)
    """The arguments, like those of a `WaitingTask`: also arguments that `Approvals.hide_arguments` hides from clients.
    None if the server does not know with which arguments the tool would run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPause:
    """A task that waits for an answer: the argument of `on_waiting`."""

    task_id: str
    context_id: str
    number: int
    """Grows with each pause of the task. A repeated call has the same task and number."""
    state: TaskState
    """`input-required`, or `auth-required` if all calls wait for a sign-in."""
    question: str | None = field(repr=False)
    """The question of the agent, or its request for a sign-in. None if tool calls wait instead."""
    calls: Sequence[OpenCall]
    """The tool calls that wait."""
    owner: Caller
    """Owner of the task, without scopes."""
    caller: Caller
    """Sender of the message whose run waits. With `Access.owner`, several callers may be one owner."""
    link: str | None
    """URL of the task in the playground. None without `url=`, or without the page of `docs_url=`."""


OnFailure: TypeAlias = Callable[[RunFailure], object]
"""Sync (and then called in a thread) or async."""


OnWaiting: TypeAlias = Callable[[TaskPause], object]
"""Sync (and then called in a thread) or async."""


OnToolCall: TypeAlias = Callable[[ToolCall[DepsT_co]], object]
"""Sync (and then called in a thread) or async."""


OnToolResult: TypeAlias = Callable[[ToolResult[DepsT_co]], object]
"""Sync (and then called in a thread) or async."""


@frozen
class Hooks:
    """The hooks for tool calls, and for the pauses and the ends of runs.

    Raises:
        TypeError: A hook is an async generator function, whose items would be lost.
    """

    on_complete: OnComplete | None = None
    on_cancel: OnCancel | None = None
    on_failure: OnFailure | None = None
    on_waiting: OnWaiting | None = None
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

    async def paused(self, pause: TaskPause) -> None:
        """Call `on_waiting` after a task has begun to wait. Even if cancelled, return only after the hook's thread."""
        await _call('on_waiting', self.on_waiting, pause, pause.task_id, call_in_thread=_in_own_thread)

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


async def _in_own_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function in a thread beside the threads of the app. The process may end before the thread does."""
    ended, context = Future[tuple[T | None, BaseException | None]](), copy_context()

    def call() -> None:
        try:
            ended.set_result((context.run(function, *args), None))
        except BaseException as error:
            ended.set_result((None, error))

    Thread(target=call, name='on_waiting', daemon=True).start()
    thread = asyncio.wrap_future(ended)
    try:
        result, error = await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise
    if error is not None:
        raise error
    return cast('T', result)


async def _call(
    name: str,
    hook: Callable[[Any], object] | None,
    argument: object,
    task_id: str,
    *,
    call_in_thread: Callable[..., Awaitable[object]] = to_thread.run_sync,
) -> None:
    assert hook is not None, 'only a hook that is set is called'
    current = asyncio.current_task()
    try:
        if iscoroutinefunction(hook):
            await contained(hook(argument))
        elif isawaitable(returned := await contained(call_in_thread(contained_call, hook, argument))):
            await contained(returned)
    except BaseException as error:
        if ends_task(error, current):
            raise
        logger.exception('The hook %s of task %s failed; the task stays as it is.', name, task_id)
