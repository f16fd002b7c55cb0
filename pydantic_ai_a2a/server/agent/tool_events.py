"""The calls and results of tools, as clients see them during a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from pydantic_ai import CallToolsNode
from pydantic_ai.messages import AgentStreamEvent, FunctionToolCallEvent
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import DeferredToolResults, ToolApproved

from .pydantic_ai_internals import tool_of

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
