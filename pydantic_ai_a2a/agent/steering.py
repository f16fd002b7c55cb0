"""Messages of the client that enter a run while it is under way, at its steps. Knows Pydantic AI; no queue, no wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.run import AgentRun

__all__ = ('Content', 'Steering', 'Unread')

Content: TypeAlias = UserContent | ModelMessage
Unread: TypeAlias = Callable[[int], Awaitable[Sequence[tuple[int, Sequence[Content]]]]]
"""The messages that came after a row of the inbox, oldest first, each with its row."""


class Steering:
    """Looks for messages before each request to the model, and has Pydantic AI put them into that request.

    Never at another moment: what is enqueued when the model's calls all wait for approval would supersede them, and
    what comes with the last answer is the prompt of the task's next run.

    Args:
        unread: What there is.
        after: Row of the newest message that is in the run.
        take: Told the row of the newest message that the model has answered to.
    """

    def __init__(self, unread: Unread, after: int, take: Callable[[int], object]) -> None:
        self._unread = unread
        self._after = after
        self._take = take
        self._entering: list[str | None] = []
        self._newest = after

    async def step(self, run: AgentRun[Any, Any], following: Any) -> None:
        """A node of the run is done, or none yet, and this one follows."""
        if self._entering:
            self._entered(run)
        if Agent.is_model_request_node(following):
            for row, content in await self._unread(self._after):
                self._entering.append(run.enqueue(*content))
                self._newest = row

    def _entered(self, run: AgentRun[Any, Any]) -> None:
        """What was to enter has, unless a capability has done without the request: then it enters the next one."""
        left = [run.dequeue(each) for each in self._entering if each is not None]
        self._entering.clear()
        if not any(left):
            self._after = self._newest
            self._take(self._newest)
