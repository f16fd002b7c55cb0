"""Turns exceptions that would end the process, such as the `SystemExit` of a tool, into errors of the task.

asyncio stops the whole event loop for a `SystemExit` or a `KeyboardInterrupt` that ends one of its tasks. Pydantic AI
runs each tool call and each streamed model request as a task of its own, and raises the error of a run in another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from pydantic_ai.capabilities import AbstractCapability, WrapperCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset

from .internals import replace_toolset, wrap_hooks, wrap_tool_hooks

__all__ = (
    'Exited',
    'Stalled',
    'contain_exits',
    'contain_model_exits',
    'contain_prepare_exits',
    'contained',
    'is_cancelled',
    'is_for_the_process',
)

T = TypeVar('T')


class Exited(Exception):
    """The user's code raised an exception that would end the process. Never sent to a client."""

    @classmethod
    def of(cls, error: BaseException) -> Exited:
        """Return the error to raise instead of `error`, and from it."""
        return cls(f'{type(error).__name__} was raised.')


class Stalled(Exception):
    """A run has done a step and is to do the same step again. Never sent to a client.

    Pydantic AI takes a `StopAsyncIteration` of a model, a hook or a function for the end of an iteration of its own,
    and gives the same step again. So the run would never end, and each step may ask the model.
    """

    def __init__(self) -> None:
        super().__init__('A model, a hook or a function of the agent raised StopAsyncIteration.')


async def contained(work: Awaitable[T]) -> T:
    """Await a user's code.

    Raises:
        Exited: The code raised `SystemExit` or `GeneratorExit`; see `is_for_the_process`.
    """
    task = asyncio.current_task()
    try:
        return await work
    except (SystemExit, GeneratorExit) as error:
        if is_for_the_process(error, task):
            raise
        raise Exited.of(error) from error


def is_for_the_process(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """True if an exception has to end the process or the event loop, and not only the task in which it was raised.

    This holds for `KeyboardInterrupt`, which nothing tells from Ctrl-C, and for the `GeneratorExit` of a coroutine that
    is closed.

    Args:
        error: The exception.
        task: The asyncio task that executed the code.
    """
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and not _is_running(task))


def is_cancelled(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """True if an exception is the cancellation of the task in which it was raised; code may raise another one."""
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _is_running(task: asyncio.Task[Any] | None) -> bool:
    """True if `task` executes this call. No task executes a coroutine that is closed."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no event loop is running
        return False


def contain_exits(run: AgentRun[Any, Any]) -> None:
    """Have the tools and output functions of a run raise `Exited` instead of what would end the process.

    As a capability of the run, the same would make each run about a fifth more expensive, also without a tool call.
    """
    wrap_tool_hooks(run, _contain)


def contain_model_exits(run: AgentRun[Any, Any]) -> None:
    """Have the streamed model requests of a run raise `Exited`: their hooks run in a task of Pydantic AI's."""
    wrap_hooks(run, _contain)


def _contain(capability: AbstractCapability[Any]) -> AbstractCapability[Any]:
    return capability if isinstance(capability, _Contained) else _Contained(capability)


def contain_prepare_exits(run: AgentRun[Any, Any]) -> None:
    """Have the `prepare` functions of tools raise `Exited`: those of several toolsets run in tasks of Pydantic AI's."""
    replace_toolset(run, _contain_prepare)


def _contain_prepare(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return _ContainedToolset(toolset) if isinstance(toolset, FunctionToolset) else toolset


class _ContainedToolset(WrapperToolset[Any]):
    """Gets the tools of a toolset for the steps of a run."""

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return await contained(self.wrapped.get_tools(ctx))


class _Contained(WrapperCapability[Any]):
    """Calls the hooks of a run's capabilities. The tool managers of all its steps inherit it."""

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        return await contained(self.wrapped.wrap_model_request(ctx, request_context=request_context, handler=handler))

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        return await contained(
            self.wrapped.wrap_tool_execute(ctx, call=call, tool_def=tool_def, args=args, handler=handler)
        )

    async def wrap_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any, handler: Any
    ) -> Any:
        return await contained(
            self.wrapped.wrap_output_process(ctx, output_context=output_context, output=output, handler=handler)
        )
