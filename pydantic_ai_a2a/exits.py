"""Turns exceptions that would end the process, such as the `SystemExit` of a tool, into errors of the task.

asyncio stops the whole event loop for a `SystemExit` or a `KeyboardInterrupt` that ends one of its tasks, and Pydantic
AI runs each tool call as a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from pydantic_ai.capabilities import WrapperCapability
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.output import OutputContext
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import RunContext, ToolDefinition

__all__ = ('Exited', 'Stalled', 'contain_exits', 'contained', 'is_for_the_process')

T = TypeVar('T')


class Exited(Exception):
    """A tool, an output function or a hook raised an exception that would end the process. Never sent to a client."""


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
        raise Exited(f'{type(error).__name__} was raised.') from error


def is_for_the_process(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """True if an exception has to end the process or the event loop, and not only the task in which it was raised.

    This holds for `KeyboardInterrupt`, which nothing tells from Ctrl-C, and for the `GeneratorExit` of a coroutine that
    is closed.

    Args:
        error: The exception.
        task: The asyncio task that executed the code.
    """
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and not _is_running(task))


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
    tools = run.ctx.deps.tool_manager
    assert tools.root_capability is not None, 'Pydantic AI gives every run one'
    if not isinstance(tools.root_capability, _Contained):
        tools.root_capability = _Contained(tools.root_capability)


class _Contained(WrapperCapability[Any]):
    """Calls the hooks of a run's capabilities. The tool managers of all its steps inherit it."""

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
