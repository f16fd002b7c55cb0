"""Messages that answer messages, in the place of tasks (§3.1.1)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from ...types.a2a_objects import Message
from ..store.ports import Submission


class DirectMessage(NamedTuple):
    """A message that answers a message instead of a task (§3.1.1)."""

    body: bytes
    """The message as JSON of A2A 1.0."""


class DirectReplies(Protocol):
    """Answers messages with messages: `server.runs.direct_replies.DirectRuns`."""

    async def takes(self, message: Message) -> bool:
        """Return True if the server answers a message with a message."""
        ...

    async def answer(
        self, submission: Submission, correlation_id: str, gone: Callable[[], Coroutine[Any, Any, None]]
    ) -> bytes | None:
        """Run the agent. Return the answer as 1.0 JSON, or None if the client disconnects first."""
        ...
