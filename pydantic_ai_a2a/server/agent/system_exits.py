"""Conversion of exceptions that would end the process, such as a tool's `SystemExit`, into errors of the task.

asyncio stops the whole event loop when a `SystemExit` or a `KeyboardInterrupt` ends an asyncio task. Pydantic AI runs
each tool call and each streamed model request in a separate task, and raises the error of a run in yet another task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from traceback import walk_tb
from typing import Any, TypeVar

from pydantic_ai.capabilities import AbstractCapability, WrapperCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset

from ...base_exceptions import causes, is_for_the_process
from .pydantic_ai_internals import replace_toolset, wrap_hooks, wrap_tool_hooks

T = TypeVar('T')


class Exited(Exception):
    """The user's code raised an exception to end the process. Never sent to a client."""

    @classmethod
    def of(cls, error: BaseException) -> Exited:
        """Return the error to raise from `error`."""
        return cls(f'{type(error).__name__} was raised.')


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


def contained_call(function: Callable[[Any], T], argument: object) -> T:
    """Call a user's function in a thread.

    Raises:
        Exited: The function raised `GeneratorExit`, which would close all coroutines that wait for the thread.
    """
    try:
        return function(argument)
    except GeneratorExit as error:
        raise Exited.of(error) from error


def contain_exits(run: AgentRun[Any, Any]) -> None:
    """Make the tools and output functions of a run raise `Exited` instead of an exception for the process.

    A capability of the run would have the same effect, but makes each run about a fifth more expensive.
    """
    wrap_tool_hooks(run, _contain)


def raising_call(error: BaseException) -> ToolCallPart | None:
    """Return the call whose tool raised an error, or the cause of the error; None if no tool did."""
    for cause in causes(error):
        for frame, _ in walk_tb(cause.__traceback__):
            if frame.f_code is _Contained.wrap_tool_execute.__code__:
                return frame.f_locals['call']
    return None


def contain_model_exits(run: AgentRun[Any, Any]) -> None:
    """Make the streamed model requests of a run raise `Exited`: Pydantic AI runs hooks in a separate task."""
    wrap_hooks(run, _contain)


def _contain(capability: AbstractCapability[Any]) -> AbstractCapability[Any]:
    return capability if isinstance(capability, _Contained) else _Contained(capability)


def contain_prepare_exits(run: AgentRun[Any, Any]) -> None:
    """Make the `prepare` functions of tools raise `Exited`: Pydantic AI may run each toolset in a separate task."""
    replace_toolset(run, _contain_prepare)


def _contain_prepare(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return _ContainedToolset(toolset) if isinstance(toolset, FunctionToolset) else toolset


class _ContainedToolset(WrapperToolset[Any]):
    """Gets the tools of a toolset for the steps of a run."""

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return await contained(self.wrapped.get_tools(ctx))


class _Contained(WrapperCapability[Any]):
    """Calls the hooks of a run's capabilities. Inherited by the tool managers of all steps."""

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
