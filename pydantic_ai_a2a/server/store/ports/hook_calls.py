"""The port for calls of the hook `on_waiting` that have not returned yet.

`TaskQueue.finish` stores a call in the transaction of the pause (`Finish.hook_lease`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from ....types.stored_tasks import TaskHeader
from .task_reader import Pause


class HookCall(NamedTuple):
    """A call of the hook for a pause."""

    task_id: str
    run: int
    """Number of the run that has paused. The run after the pause has another number."""


class HookCalls(ABC):
    """The calls, each with the lease of the process that calls the hook."""

    @abstractmethod
    async def pause(self, call: HookCall) -> tuple[TaskHeader, Pause] | None:
        """Return the task with the pause of a call; None if the pause has ended."""

    @abstractmethod
    async def take(self, *, lease: int, limit: int) -> Sequence[HookCall]:
        """Take calls whose lease has expired, for `lease` milliseconds."""

    @abstractmethod
    async def renew(self, calls: Sequence[HookCall], *, lease: int) -> None:
        """Let the leases of calls expire in `lease` milliseconds. Calls that were deleted stay deleted."""

    @abstractmethod
    async def done(self, call: HookCall) -> None:
        """Delete a call."""
