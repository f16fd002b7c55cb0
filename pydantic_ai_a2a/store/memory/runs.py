"""The worker's side of the state machine in memory: claim, renew, emit, finish, release."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import LeaseLost
from ...types import TaskEvent
from ..histories import dump_message, dump_usage, load_message_rows, load_messages, load_usage
from ..ports import Checkpoint, Claim, Marks, Status
from .records import Checkpointed, Task
from .store import Store


def claimable(store: Store, holder: str, limit: int, task_id: str | None = None) -> list[Task]:
    """Return the tasks to claim now, in the order of claims."""
    now = store.clock.steady()
    if task_id is None:
        return store.waiting.next(holder, now, limit)
    task = store.tasks.get(task_id)
    return [task] if task is not None and store.waiting.claimable(task, holder, now) else []


def claim(store: Store, holder: str, *, at: int, lease: int, limit: int, task_id: str | None = None) -> list[Claim]:
    """See `TaskQueue.claim`."""
    return [take(store, task, holder, at, lease) for task in claimable(store, holder, limit, task_id)]


def take(store: Store, task: Task, holder: str, at: int, lease: int) -> Claim:
    """Claim a claimable task."""
    progress = task.progress
    store.waiting.run(task, store.clock.steady() + lease)
    if task.state != 'working':  # an answered task is `working` since its answer
        task.state, task.status_at = 'working', at
        store.lists.note(task)
    if progress.holder is not None or not progress.attempt:
        progress.attempt += 1
    progress.holder = holder
    task.fence += 1
    task.run = task.run or 1
    if progress.shown != 'working':
        store.log(task, [task.status_event(Status('working', at, None))])
    checkpoint = None if progress.checkpoint is None else _loaded(progress.checkpoint)
    return claim_of(store, task, holder, checkpoint=checkpoint)


def _loaded(checkpoint: Checkpointed) -> Checkpoint:
    return Checkpoint(
        run=checkpoint.run,
        messages=load_message_rows(checkpoint.messages),
        usage=load_usage(checkpoint.usage),
        taken=checkpoint.taken,
    )


def claim_of(store: Store, task: Task, holder: str, *, checkpoint: Checkpoint | None = None) -> Claim:
    """Return the claim of a running task. An interrupted task continues from the context head at its pause."""
    progress, answer = task.progress, task.progress.answer
    if answer is None:
        message = task.unread()[0]
        inbox = message.seq
    else:
        message = next(message for message in reversed(task.inbox) if message.seq == answer)
        inbox = progress.inbox_read
    own_messages, head = None, progress.context_head
    if progress.own_messages is None:
        head = store.conversations.head(task.owner, task.context_id)
    else:
        own_messages = load_messages(progress.own_messages)
    return Claim(
        header=task.header(),
        holder=holder,
        fence=task.fence,
        attempt=progress.attempt,
        run=task.run,
        turn=progress.turn,
        inbox=inbox,
        message=message.body,
        head=head,
        own_messages=own_messages,
        request=task.request_of(message),
        traceparent=task.traceparent,
        checkpoint=checkpoint,
        push=task.push > 0,
        pending=progress.pending,
    )


def renew(store: Store, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
    """See `TaskQueue.renew`."""
    until = store.clock.steady() + lease
    lost: list[str] = []
    cancel: list[str] = []
    for task_id in tasks:
        task = store.tasks.get(task_id)
        if task is None or task.state != 'working' or task.progress.holder != holder:
            lost.append(task_id)
            continue
        store.waiting.renew(task, until)
        if task.progress.cancel_requested:
            cancel.append(task_id)
    return Marks(lost, cancel)


def held(store: Store, claimed: Claim) -> Task | None:
    """Return the task of a claim; None if the claim is no longer valid."""
    task = store.tasks.get(claimed.header.id)
    if task is None or task.fence != claimed.fence or task.state != 'working':
        return None
    return task if task.progress.holder == claimed.holder else None


def check_held(store: Store, claimed: Claim) -> Task:
    """Return the task of a valid claim.

    Raises:
        LeaseLost: The claim is no longer valid.
    """
    task = held(store, claimed)
    if task is None:
        raise LeaseLost
    return task


def emit(
    store: Store,
    claim: Claim,
    events: Sequence[TaskEvent],
    status: Status | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """See `TaskQueue.emit`."""
    events = [*events]
    task = check_held(store, claim)
    if events and events[0].n <= task.last_event:  # the first call has stored the events
        return
    saved = None if checkpoint is None else _saved(task, checkpoint)
    if status is not None:
        store.set_status(task, status)
    if saved is not None:
        task.progress.checkpoint = saved
    store.log(task, events)


def _saved(task: Task, checkpoint: Checkpoint) -> Checkpointed:
    """Return the checkpoint of a task after a write: messages from the write's first message on are replaced."""
    before = task.progress.checkpoint
    messages = [] if before is None else before.messages[: checkpoint.first]
    messages += map(dump_message, checkpoint.messages)
    return Checkpointed(checkpoint.run, messages, dump_usage(checkpoint.usage), checkpoint.taken)


def release(store: Store, claim: Claim) -> None:
    """See `TaskQueue.release`."""
    task = held(store, claim)
    if task is not None:
        store.waiting.hand_back(task)
