"""What the renewal of its leases tells a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Marks(NamedTuple):
    """Changes to the holder's tasks since its last renewal."""

    lost: Sequence[str]
    """Tasks of other holders by now: this holder stops the runs and writes nothing."""
    cancel: Sequence[str]
    """Tasks to cancel."""
