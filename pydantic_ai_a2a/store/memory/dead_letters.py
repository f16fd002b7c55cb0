"""Dead letters in memory: failed tasks for operators to retry."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ...errors import UnsupportedOperationError
from ...protocol import stored
from ...types import TaskHeader
from ..histories import load_usage
from ..ports import DEAD_LETTER, DEAD_LETTERS, DeadLetter
from ..rules import correlation_id, divided, repeated
from .records import Message, Task
from .store import Store


def dead_letters(
    store: Store, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
) -> list[DeadLetter]:
    """See `Housekeeping.dead_letters`."""
    keys = store.dead.get(owner, [])
    start = 0 if after is None else bisect_right(keys, after)
    return [_dead_letter(store.tasks[task_id]) for _, task_id in keys[start : start + limit]]


def _dead_letter(task: Task) -> DeadLetter:
    failure = task.failure or ''
    return DeadLetter(
        task_id=task.id,
        context_id=task.context_id,
        owner=task.owner,
        at=task.status_at,
        attempts=task.progress.attempt - (failure == DEAD_LETTER),  # the last attempt only failed the task
        failure=failure,
        correlation_id=correlation_id(task.status_message),
        retried_as=task.retried_as,
    )


def retry(store: Store, task_id: str, *, new_id: str, at: int, again: bool) -> TaskHeader:
    """See `Housekeeping.retry`."""
    task = store.find(task_id, None)
    if task.failure not in DEAD_LETTERS:
        raise UnsupportedOperationError(f'The task is {task.state} and is not a dead letter: list the dead letters.')
    if task.retried_as is not None and not again:
        raise UnsupportedOperationError(f'The dead letter has already been retried, as the task {task.retried_as}.')
    progress = task.progress
    messages = [
        message
        for message in task.inbox
        if message.seq >= progress.inbox_read and (not message.answer or progress.answer is not None)
    ]
    new = Task(new_id, task.owner, task.context_id, task.dialect, at)
    new.request, new.traceparent = task.request, task.traceparent
    bodies = [repeated(message.body, task_id)[1] for message in messages]
    task.retried_as = new_id
    store.add(new)
    for message, body in zip(messages, bodies, strict=True):
        copy = Message(new, stored.with_ids(body, new.id, new.context_id), message.digest, after=0, at=at)
        copy.request = message.request
        store.accept(copy, None)
    if progress.answer is not None:
        _move_turn(store, task, new, messages)
    if progress.checkpoint is not None:
        _move_checkpoint(task, new, messages)
    store.webhooks.copy(task, new)
    return new.header()


def _move_turn(store: Store, task: Task, new: Task, messages: Sequence[Message]) -> None:
    """Move the turn of an answered task to a new task, for the first run of the new task."""
    old, progress = task.progress, new.progress
    for message, copy in zip(messages, new.inbox, strict=True):
        copy.answer = message.answer
        if message.seq == old.answer:
            progress.answer = copy.seq
    progress.inbox_read = new.inbox[0].seq
    progress.own_messages, progress.own_usage, progress.pending = old.own_messages, old.own_usage, old.pending
    if old.context_head is not None and store.conversations.has_entry(task.owner, old.context_head):
        progress.context_head = old.context_head
    old.forget_turn()
    old.answer = None


def _move_checkpoint(task: Task, new: Task, messages: Sequence[Message]) -> None:
    """Move the checkpoint of a task to a new task, for the first run of the new task."""
    checkpoint, task.progress.checkpoint = task.progress.checkpoint, None
    assert checkpoint is not None
    entered = sum(message.seq <= checkpoint.taken for message in messages)
    checkpoint.taken = new.inbox[entered - 1].seq if entered else 0
    new.progress.checkpoint = checkpoint
    new.paid, task.paid = divided(task.run, task.paid or (), load_usage(checkpoint.usage))
