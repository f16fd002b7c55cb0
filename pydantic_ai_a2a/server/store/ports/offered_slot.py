"""The free slots that a worker offers for tasks."""

from __future__ import annotations

from typing import NamedTuple


class Slot(NamedTuple):
    """The worker that offers free slots: for the task of a new message, for claims, or after the end of a run."""

    holder: str
    """Id of the worker."""
    lease: int
    """Milliseconds until other holders may claim the tasks, if no renewal comes."""
    owner_limit: int | None = None
    """The most running tasks of an owner. Further tasks of the owner are passed over. Default: no limit."""
