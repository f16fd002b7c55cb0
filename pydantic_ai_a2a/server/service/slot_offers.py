"""Slots of the workers of this process, offered for the tasks of new messages, and for the next queued tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ..store.ports import Claim, Slot


class Offer(NamedTuple):
    """A free slot, reserved until the call of `settle`, or the slot of a run that ends."""

    slot: Slot
    settle: Callable[[Claim | None], object]
    """Run the claimed task in the slot; None returns a reserved slot. To be called once."""


Offers: TypeAlias = Callable[[], Offer | None]
"""Returns the offer of a free slot, or None if tasks have to wait."""
