"""The query of ListTasks to a store, and the page of tasks that answers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .a2a_objects import TaskState
from .frozen_values import frozen
from .stored_tasks import StoredTask


@frozen
class TaskQuery:
    """The query of ListTasks to the store (§3.1.4)."""

    owner: str | None
    """Owner of the tasks; None, only in the Python API, for the tasks of all owners."""
    context_id: str | None = None
    state: TaskState | None = None
    since: int | None = None
    """Oldest time of the status (ms, inclusive)."""
    page_size: int = 50
    before: tuple[int, str] | None = None
    """Start of the page: after the task with this (status_at, id)."""
    max_bytes: int | None = None
    """Most bytes of a page's messages and artifacts, as stored. The page ends before the task that would exceed the
    limit, but has at least one task. None: no limit."""
    history_length: int | None = None
    include_artifacts: bool = False


class Page(NamedTuple):
    """One page of tasks, newest status first."""

    tasks: Sequence[StoredTask]
    next: tuple[int, str] | None
    """`TaskQuery.before` of the next page; None on the last one."""
    total: int
    """Number of matching tasks over all pages."""
