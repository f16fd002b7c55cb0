"""The steps of tasks for a developer in the playground: tool calls, their results, thoughts, and errors.

A step has the text of an exception, which nobody but the developer may read. `server.http.playground.steps_endpoint`
decides who gets steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from traceback import format_exception_only
from typing import Any

from pydantic_ai.conversation_store import ConversationStore
from pydantic_ai.messages import (
    AgentStreamEvent,
    BaseToolCallPart,
    BaseToolReturnPart,
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequestPart,
    ModelResponsePart,
    PartEndEvent,
    TextPart,
    ThinkingPart,
)

from ...wire.extensions.remote_calls import remote_tool
from .system_exits import raising_call

_TASKS = 100
"""Number of tasks whose runs are kept, so that the memory of a developer's server does not grow."""
_LONGEST = 4_000
"""Characters of a result or an error, enough for a developer to know it. The page asks again and again."""


class Trace:
    """The steps of the newest tasks of this process, also of tasks that run or have failed.

    Args:
        hidden: Names of the tools whose arguments are never shown. Their results and errors may repeat the arguments.
    """

    wanted = False
    """True once a developer has opened the playground. Before, nothing is kept."""

    def __init__(self, hidden: Collection[str] = ()) -> None:
        self._hidden = hidden
        self._runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.version = 0
        """Changes with each step."""
        self._wakes: set[Callable[[], object]] = set()

    async def changed(self, version: int) -> None:
        """Return once there are other steps than at a version."""
        change = asyncio.Event()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, change.set)
        self._wakes.add(wake)
        try:
            if self.version == version:
                await change.wait()
        finally:
            self._wakes.discard(wake)

    def keep(self, task_id: str, run_id: str, messages: Sequence[ModelMessage]) -> None:
        """Keep the steps of a run so far, in place of its earlier steps. Files in the messages are not kept."""
        runs = self._runs.pop(task_id, {})
        resumed = [{'kind': 'resumed'}] if runs.keys() - {run_id} else []
        self._runs[task_id] = {**runs, run_id: [*resumed, *self._steps(messages)]}
        self._change()

    def observe(self, task_id: str, run_id: str, event: AgentStreamEvent) -> None:
        """Keep the step of an event, until `keep` has the message of the step."""
        if isinstance(event, PartEndEvent | FunctionToolResultEvent):
            self._add(task_id, run_id, *self._of_part(event.part))

    def fail(self, task_id: str, run_id: str, error: Exception) -> None:
        """Keep the error that ends a run, as the result of the call whose tool has raised the error."""
        call, text = raising_call(error), _cut(''.join(format_exception_only(error)).strip())
        if call is not None:
            result = None if self._is_hidden(call) else text
            self._add(
                task_id, run_id, {'kind': 'return', 'id': call.tool_call_id, 'outcome': 'failed', 'result': result}
            )
        elif not self._hidden:  # such as of a model, which may quote the arguments of all tools
            self._add(task_id, run_id, {'kind': 'error', 'text': text})

    def _add(self, task_id: str, run_id: str, *steps: dict[str, Any]) -> None:
        self._runs.setdefault(task_id, {}).setdefault(run_id, []).extend(steps)
        self._change()

    def _change(self) -> None:
        if len(self._runs) > _TASKS:
            del self._runs[next(iter(self._runs))]
        self.version += 1
        for wake in [*self._wakes]:
            with suppress(RuntimeError):  # the loop of the reader is closed
                wake()

    async def steps(self, task_id: str, context_id: str, conversations: ConversationStore) -> list[dict[str, Any]]:
        """Return the steps of a task, of an older task from its conversation."""
        if task_id in self._runs:
            return [*chain.from_iterable(self._runs[task_id].values())]
        conversation = await conversations.load(context_id)
        stored = () if conversation is None else conversation.messages
        return [*self._steps([message for message in stored if (message.run_id or '').startswith(f'{task_id}.')])]

    def _steps(self, messages: Sequence[ModelMessage]) -> Iterator[dict[str, Any]]:
        before = messages[0].run_id if messages else None
        for message in messages:
            # A run without a prompt begins with the client's answers to pending calls.
            if message.run_id not in (None, before):
                before = message.run_id
                yield {'kind': 'resumed'}
            for part in message.parts:
                yield from self._of_part(part)

    def _of_part(self, part: ModelRequestPart | ModelResponsePart) -> Iterator[dict[str, Any]]:
        if part.part_kind == 'user-prompt':
            items = [part.content] if isinstance(part.content, str) else part.content
            yield {'kind': 'prompt', 'text': ''.join(item for item in items if isinstance(item, str))}
        elif isinstance(part, ThinkingPart | TextPart):
            yield {'kind': part.part_kind, 'text': part.content}
        elif isinstance(part, BaseToolCallPart):
            args = {} if self._is_hidden(part) else {'args': part.args_as_dict()}
            yield {'kind': 'call', 'id': part.tool_call_id, 'tool': part.tool_name, **args}
        elif isinstance(part, BaseToolReturnPart):
            is_hidden = part.tool_name in self._hidden
            result = None if is_hidden else _cut(part.model_response_str(wrap_if_error=False))
            yield {'kind': 'return', 'id': part.tool_call_id, 'outcome': part.outcome, 'result': result}

    def _is_hidden(self, call: BaseToolCallPart) -> bool:
        return call.tool_name in self._hidden or remote_tool(call) in self._hidden


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'
