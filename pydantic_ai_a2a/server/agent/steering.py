"""Messages of the client that enter a run under way, at its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.run import AgentRun

Content: TypeAlias = UserContent | ModelMessage
Unread: TypeAlias = Callable[[int], Awaitable[Sequence[tuple[int, Sequence[Content]]]]]
"""Returns the unread messages after a row, oldest first, each with its row."""


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
