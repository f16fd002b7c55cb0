"""A dead letter, and the classes of failures that make one."""

from __future__ import annotations

from ....types.frozen_values import frozen

DEAD_LETTER = 'attempts'
"""Failure class of a task with too many attempts."""
DEAD_LETTERS = (DEAD_LETTER, 'storage')
"""Failure classes of dead letters: tasks to retry from the last checkpoint."""


@frozen
class DeadLetter:
    """A failed task, for an operator to retry."""

    task_id: str
    context_id: str
    owner: str
    at: int
    """Time of the failure (ms)."""
    attempts: int
    """Number of attempts."""
    failure: str
    """Class of the failure."""
    correlation_id: str | None
    """Id of the failure in the log and in the client's error."""
    retried_as: str | None
    """Id of the newest retry; None without a retry."""
