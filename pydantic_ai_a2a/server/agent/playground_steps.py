"""The steps of tasks for a developer in the playground: tool calls, their results, and thoughts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any

from pydantic_ai.conversation_store import ConversationStore
from pydantic_ai.messages import BaseToolCallPart, BaseToolReturnPart, ModelMessage, TextPart, ThinkingPart

from ...wire.extensions.remote_calls import remote_tool

_TASKS = 100
"""Number of tasks whose runs are kept, so that the memory of a developer's server does not grow."""
_LONGEST = 4_000
"""Characters of a result, enough for a developer to know the result. The page asks again and again."""


class Trace:
    """The steps of the newest tasks of this process, also of tasks that run or have failed.

    Args:
        hidden: Names of the tools whose arguments are never shown. Their results may repeat the arguments.
    """

    wanted = False
    """True once a developer has opened the playground. Before, nothing is kept."""

    def __init__(self, hidden: Collection[str] = ()) -> None:
        self._hidden = hidden
        self._runs: dict[str, dict[str, list[dict[str, Any]]]] = {}

    def keep(self, task_id: str, run_id: str, messages: Sequence[ModelMessage]) -> None:
        """Keep the steps of a run so far, in place of its earlier steps. Files in the messages are not kept."""
        runs = self._runs.pop(task_id, {})
        resumed = [{'kind': 'resumed'}] if runs.keys() - {run_id} else []
        self._runs[task_id] = {**runs, run_id: [*resumed, *self._steps(messages)]}
        if len(self._runs) > _TASKS:
            del self._runs[next(iter(self._runs))]

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
                if part.part_kind == 'user-prompt':
                    items = [part.content] if isinstance(part.content, str) else part.content
                    yield {'kind': 'prompt', 'text': ''.join(item for item in items if isinstance(item, str))}
                elif isinstance(part, ThinkingPart | TextPart):
                    yield {'kind': part.part_kind, 'text': part.content}
                elif isinstance(part, BaseToolCallPart):
                    is_hidden = part.tool_name in self._hidden or remote_tool(part) in self._hidden
                    args = {} if is_hidden else {'args': part.args_as_dict()}
                    yield {'kind': 'call', 'id': part.tool_call_id, 'tool': part.tool_name, **args}
                elif isinstance(part, BaseToolReturnPart):
                    is_hidden = part.tool_name in self._hidden
                    result = None if is_hidden else _cut(part.model_response_str(wrap_if_error=False))
                    yield {'kind': 'return', 'id': part.tool_call_id, 'outcome': part.outcome, 'result': result}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'
