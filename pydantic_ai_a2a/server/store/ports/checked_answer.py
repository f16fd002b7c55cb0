"""A client's answer to a waiting task, after all checks without storage."""

from __future__ import annotations

from ....types.frozen_values import frozen
from .task_reader import Pause


@frozen
class Answer:
    """A message as the checked answer to a waiting task."""

    pause: Pause
    """The answered pause: a task with a newer event refuses the answer."""
    pending: bytes | None
    """The pending calls with the answer, for the resumed run; None if the task waits without calls."""
    rest: bytes | None = None
    """The status message that asks for the missing answers; None if the run resumes."""
    again: bool = False
    """True if the message is no answer: the deadline of the waiting task stays as before."""
