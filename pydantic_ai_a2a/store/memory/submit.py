"""The client's side of the state machine in memory: a message is accepted, a task is canceled."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import InvalidParamsError, OverloadedError, QuotaExceededError
from ...protocol import stored
from ...types import INTERRUPTED, TaskHeader, check_cancel, check_message
from ..ports import Accepted, Answer, Slot, Status, Submission
from ..rules import check_answer, replays
from .records import Message, Task
from .runs import take
from .store import Store


class Checked(NamedTuple):
    """A submission that the store can accept."""

    key: bytes | None
    """Recognises a repeated message."""
    replayed: Accepted | None = None
    """The answer to a message that was accepted before."""
    task: Task | None = None
    """The continued task; None for a new task."""
    waited: bool = False
    """True if the continued task waits for its client."""
    queues: bool = True
    """True if the message queues its task."""


def check(store: Store, message: Submission, *, queue_limit: int, window: int) -> Checked:
    """Check a submission without a change of the store. Raises the exceptions of `TaskQueue.submit`."""
    key = None
    if replays(message, window):  # like `rules.replay_key`, in fewer bytes
        key = message.message_id.encode() + (message.digest if message.anonymous else b'')
    if key is not None and (accepted := _replay(store, message, key, window)) is not None:
        return Checked(key, accepted)
    if message.refusal is not None:
        raise message.refusal
    if message.new:
        _check_tasks(store, message)
        if store.waiting.queued >= queue_limit:
            raise OverloadedError(headers={'Retry-After': '1'})
        checked = Checked(key)
    else:
        checked = _check_continued(store, message, key, queue_limit)
    if message.push is not None:
        store.webhooks.check_put(checked.task, message.push, message.push_limit)
    if checked.waited and checked.queues:
        _check_tasks(store, message)
    return checked


def _check_continued(store: Store, message: Submission, key: bytes | None, queue_limit: int) -> Checked:
    task = store.find(message.task_id, message.owner)
    header = task.header()
    check_message(header, message.context_id, only_waiting=message.only_waiting, pause=message.pause)
    check_answer(header, message, calls=task.progress.pending is not None)
    waited = task.state in INTERRUPTED
    unread = queue_limit if message.unread_limit is None else message.unread_limit
    if not waited and len(task.unread()) > unread:  # in a paused task, the unread messages wait for this answer
        raise OverloadedError(headers={'Retry-After': '1'})
    return Checked(key, None, task, waited, waited and (message.answer is None or message.answer.rest is None))


def _replay(store: Store, message: Submission, key: bytes, window: int) -> Accepted | None:
    first = store.repeatable.get(message.owner, {}).get(key)
    if first is None:
        return None
    if first.digest != message.digest and not message.anonymous:
        raise InvalidParamsError.of(
            'message.messageId', 'was already used for a message with different content: send a new messageId'
        )
    if message.anonymous and message.new and first.accepted_at < message.at - window:
        return None
    return Accepted(first.task.header(), first.after, replayed=True)


def _check_tasks(store: Store, message: Submission) -> None:
    """Refuse a new task above the owner's limit."""
    if message.task_limit is not None and store.waiting.live(message.owner) >= message.task_limit:
        raise QuotaExceededError.of('tasks', 1000)


def submit(store: Store, message: Submission, *, queue_limit: int, window: int, slot: Slot | None = None) -> Accepted:
    """See `TaskQueue.submit`."""
    checked = check(store, message, queue_limit=queue_limit, window=window)
    if checked.replayed is not None:
        return checked.replayed
    task, answer = checked.task or _create(store, message), message.answer
    if message.push is not None or message.credential is not None:
        _attach(store, task, message)
    header = task.header()
    if answer is not None and answer.rest is not None:
        _ask_for_rest(store, task, answer, answer.rest, message.at)
    elif checked.waited:
        _go_on(store, task, message.at)
        header = task.header()
    if message.logged:
        task.log_from_now()
    body = stored.with_ids(message.body, task.id, task.context_id)
    digest = b'' if message.anonymous else message.digest  # the key of an anonymous message has the digest
    accepted = Message(task, body, digest, after=header.last_event, at=message.at)
    if checked.task is not None:
        accepted.request = message.request or b''  # the request of the first message is the task's request
    if checked.waited:
        accepted.answer = 2 if message.answers_calls else 1
    store.accept(accepted, checked.key)
    if checked.waited and checked.queues:
        task.progress.answer = accepted.seq
        task.progress.pending = None if answer is None else answer.pending
    claim = None
    if slot is not None and checked.queues and store.waiting.is_next(task):
        claim = take(store, task, slot.holder, message.at, slot.lease)
    return Accepted(header, header.last_event, False, claim)


def _attach(store: Store, task: Task, message: Submission) -> None:
    """Store the webhook and the credential of a message."""
    if message.push is not None:  # before the event, which the webhook must get
        store.webhooks.put(task, message.push)
    if message.credential is not None:
        store.credentials.setdefault(task.id, {})[message.credential.id] = message.credential


def _create(store: Store, message: Submission) -> Task:
    assert message.context_id is not None
    task = Task(message.task_id, message.owner, message.context_id, message.dialect, message.at)
    task.request, task.traceparent = message.request, message.traceparent
    store.add(task)
    return task


def _ask_for_rest(store: Store, task: Task, answer: Answer, rest: bytes, at: int) -> None:
    """Store a partial answer and ask for the missing answers. A repeated question keeps the deadline."""
    status = Status(task.state, task.status_at if answer.again else at, rest)
    event = task.status_event(status)
    store.set_status(task, status)
    task.progress.pending = answer.pending
    store.log(task, [event])


def _go_on(store: Store, task: Task, at: int) -> None:
    """Queue an answered task; the state becomes `working`."""
    status = Status('working', at, None)
    event = task.status_event(status)
    task.run += 1
    store.set_status(task, status)
    store.waiting.add(task)
    store.log(task, [event])


def would_cancel(store: Store, task_id: str, owner: str | None, *, force: bool) -> tuple[TaskHeader, bool]:
    """Return the header of a task, and True if a cancellation ends the task at once.

    Raises:
        TaskNotFoundError: The owner has no such task.
        TaskNotCancelableError: The task has ended.
    """
    task = store.find(task_id, owner)
    header = task.header()
    check_cancel(header)
    return header, force or task.progress.holder is None


def cancel(store: Store, task_id: str, owner: str | None, *, at: int, force: bool) -> TaskHeader:
    """See `TaskQueue.cancel`."""
    header, ends = would_cancel(store, task_id, owner, force=force)
    task = store.tasks[task_id]
    if not ends:
        task.progress.cancel_requested = True
        return header
    store.end_unheld(task, Status('canceled', at, None))
    return task.header()
