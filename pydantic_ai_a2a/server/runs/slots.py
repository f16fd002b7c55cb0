"""The slots of a worker: how many runs go on at once, and how a run that waits for another agent makes room.

A worker has `Workers.running` slots, and a run needs one. While the agent of a run waits for another agent, the run
lends its slot: else agents that call each other through one worker would wait for slots that their own callers hold.

| a slot is | from | until |
|---|---|---|
| free | the start, the end of a run, a returned offer, the loan by a run | a returning run or a new task takes it |
| offered | the arrival of a message, whose transaction claims its task | the end of that transaction |
| taken | the start of a run | the end of the run, or its wait for another agent |

A run without a slot is lent or returning. It is *lent* from the first to the last of its waits, because the calls of a
response may wait for several agents at once. Then it is *returning*: it stands in a line for the next free slot, before
all new tasks. With `most_lent` lent runs, only tasks of other agents start, because these end the waits.

What may come between:

- A returning run is cancelled. It has no slot yet, but its end gives one back: so it takes one first.
- A returning run waits for another agent once more. It lends the slot that it is about to get.
- A run ends, while something that it has left behind still waits for another agent. The run takes a slot to give it
  back, and the late end of the wait changes nothing.

What must hold: free, offered and taken slots are `Workers.running` together. Where a run takes a slot that is not
there, `free` falls below zero until a run gives one back. A slot that becomes free goes to a returning run, or the
worker is told, which starts a new task. The worker is also told when fewer than `most_lent` runs are lent again. All of
this happens in the event loop of the worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

_LENT = 4
"""Runs for each slot that wait for other agents, until only tasks of other agents start. These end such waits."""
_FEW = 8
"""Less than an eighth of the slots are few."""


class Slots:
    """The slots of one worker.

    Args:
        number: Number of slots.
        on_free: Called after a slot may have become free for a new task.
    """

    def __init__(self, number: int, on_free: Callable[[], object]) -> None:
        self.free = number
        """Number of free slots."""
        self.lent = 0
        """Number of runs that wait for other agents."""
        self.most_lent = _LENT * number
        self._few = number // _FEW
        self._on_free = on_free
        self._returning: deque[asyncio.Future[None]] = deque()
        """Runs that have waited, and need a slot again."""

    @property
    def claimable(self) -> int:
        """The most tasks to claim; not positive if none may start."""
        return min(self.free, self.most_lent - self.lent)

    @property
    def few(self) -> bool:
        """True if a slot is free, but so few that a claim may wait a moment for more."""
        return 0 < self.free < self._few

    @property
    def spare(self) -> bool:
        """True if the slot of a run that ends is for any task: no run needs it that has waited for another agent."""
        return not self._returning and self.lent < self.most_lent

    def give_back(self) -> None:
        """Give a slot to a run that has waited for another agent, or to a new task."""
        self.free += 1
        while self._returning and self.free > 0:
            turn = self._returning.popleft()
            if not turn.done():  # else the run was cancelled in the line
                turn.set_result(None)
                self.free -= 1
        self._on_free()

    def lend(self) -> None:
        """Give back the slot of a run that waits for another agent."""
        self.lent += 1
        self.give_back()

    def take_now(self) -> None:
        """Take a slot for a run that has waited, if need be one more than there are."""
        self.lent -= 1
        self.free -= 1

    async def take(self) -> None:
        """Take a slot for a run that has waited, before a new task gets it."""
        if self.free > 0:
            self.take_now()
            if self.lent == self.most_lent - 1:
                self._on_free()  # the other free slots may be for any task again
            return
        self.lent -= 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._returning.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # The run ends, and gives back a slot. If the cancel came before its turn, the run has none: take one. If
            # it came in the same round of the loop as its turn, the run has a slot already.
            self.free -= turn.cancelled()
            raise


class RunSlot(AbstractAsyncContextManager[None]):
    """The slot of one run, taken by its construction, and lent inside of the context."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waits = 0
        """Number of agents that the run waits for."""
        self._over = False
        slots.free -= 1

    async def __aenter__(self) -> None:
        self._waits += 1
        if self._waits == 1 and not self._over:
            self._slots.lend()

    async def __aexit__(self, *error: object) -> None:
        self._waits -= 1
        if self._waits == 0 and not self._over:
            await self._slots.take()

    @property
    def passes_on(self) -> bool:
        """True if the run, which ends, may pass its slot on to any task: it has not lent the slot."""
        return not self._waits and self._slots.spare

    def close(self) -> None:
        """Give the slot back at the end of the run, although a task that the run has left behind may still wait."""
        self._over = True
        if self._waits:
            self._slots.take_now()
        self._slots.give_back()
