"""The states of a task, and the operations that a state forbids (§4.1.3)."""

from __future__ import annotations

from .errors import InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError
from .types.a2a_objects import TaskState
from .types.stored_tasks import TaskHeader

LIVE: frozenset[TaskState] = frozenset({'submitted', 'working'})
"""Queued or running."""
INTERRUPTED: frozenset[TaskState] = frozenset({'input-required', 'auth-required'})
"""Waiting for the client."""
TERMINAL: frozenset[TaskState] = frozenset({'completed', 'failed', 'canceled', 'rejected'})
"""Ended for good."""
STOPPED = INTERRUPTED | TERMINAL
"""States in which a blocking send answers (§3.2.2)."""


def check_message(
    task: TaskHeader, context_id: str | None, *, only_waiting: bool = False, pause: int | None = None
) -> None:
    """Refuse a message that the task cannot take (§3.4.3, §3.1.1).

    Raises:
        InvalidParamsError: The message names another context than the task's.
        UnsupportedOperationError: The task has ended; or `only_waiting` is set and the task is queued or running; or
            the message answers a `pause`, by the number of its event, that is over.
    """
    if context_id is not None and context_id != task.context_id:
        raise InvalidParamsError.of('message.contextId', "must be the task's own context, or absent")
    if task.state in TERMINAL:
        raise UnsupportedOperationError(
            f'The task is {task.state} and accepts no more messages: send a message with its contextId and'
            f' without taskId.'
        )
    if only_waiting and task.state in LIVE:
        raise UnsupportedOperationError(
            f'The task is {task.state} and takes messages only while it waits for its client; send this one once the'
            ' task has ended, without taskId.'
        )
    if pause is not None and task.last_event != pause:
        raise UnsupportedOperationError(
            f'The task is {task.state}, and no longer waits for this answer: read the task.'
        )


def check_cancel(task: TaskHeader) -> None:
    """Refuse to cancel a task that has ended (§3.1.5).

    Raises:
        TaskNotCancelableError: The task is in a terminal state.
    """
    if task.state in TERMINAL:
        raise TaskNotCancelableError


def check_subscribe(task: TaskHeader) -> None:
    """Refuse to subscribe to a task that has ended (§3.1.6).

    Raises:
        UnsupportedOperationError: The task is in a terminal state.
    """
    if task.state in TERMINAL:
        raise UnsupportedOperationError(f'The task is {task.state} and has no more events: use GetTask.')
