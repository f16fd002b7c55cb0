"""The end of a run in memory."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ...conversion.stream import closed
from ...errors import LeaseLost
from ...types import INTERRUPTED, TERMINAL
from ..histories import dump_messages, dump_usage, load_usage
from ..ports import DEAD_LETTERS, Claim, Finish
from ..rules import handed_on, hands_on, unpaid
from .conversations import Turn
from .records import OVER, Task
from .runs import check_held, claim_of, held
from .splices import LONG, splice, splice_deltas, splice_event
from .store import Store


class _Ending:
    """The values of the end of a run: everything that can fail is done before the first change of the store."""

    def __init__(self, store: Store, task: Task, claimed: Claim, end: Finish) -> None:
        self.end = end
        self.read = end.taken or claimed.inbox
        self.inbox = claimed.inbox
        self.head = claimed.head
        self.goes_on = hands_on(end) and bool(task.unread(self.read))
        self.events = [*end.events, *(handed_on(claimed.header, end) if self.goes_on else (end.final,))]
        self.history = [] if task.status_message is None else [task.status_message]
        self.history += [body for _, body in end.history]
        if self.goes_on and end.status.message is not None:
            self.history.append(end.status.message)
        self.artifacts: Sequence[tuple[str, bytes]] = ()
        if end.artifacts is not None:
            self.artifacts = [*end.artifacts]
        elif end.status.state in TERMINAL:
            self.artifacts = store.streamed(task)
        self.charges = unpaid(task.run, task.paid or (), end.charges) if end.charges else None
        messages: Sequence[ModelMessage] = end.messages
        if claimed.own_messages is not None:
            messages = [*claimed.own_messages, *messages]
        self.turn, self.own_messages, self.own_usage = None, b'', None
        usage = _usage(task.progress.own_usage, end.usage)
        if end.status.state in ('completed', 'canceled'):
            self.turn = _turn(store, task, messages, usage, end)
        elif end.status.state in INTERRUPTED:
            self.own_messages = dump_messages(messages)
            self.own_usage = None if usage is None else dump_usage(usage)


def _usage(before: bytes | None, usage: RunUsage | None) -> RunUsage | None:
    """Return the usage of a turn: of this run and of the interrupted runs before it."""
    if before is None:
        return usage
    return load_usage(before) if usage is None else load_usage(before) + usage


def _turn(store: Store, task: Task, messages: Sequence[ModelMessage], usage: RunUsage | None, end: Finish) -> Turn:
    if end.status.state == 'canceled':
        messages = closed(messages)
    run_id = f'{task.id}.{task.run}'
    return store.conversations.turn(task.owner, task.context_id, messages, run_id=run_id, usage=usage, at=end.status.at)


def finish(store: Store, claimed: Claim, end: Finish) -> Claim | None:
    """See `TaskQueue.finish`."""
    task = held(store, claimed)
    if task is None or task.run != claimed.run:
        return _finished(store, claimed, end)
    ending = _Ending(store, task, claimed, end)
    if ending.charges is not None:
        charges, task.paid = ending.charges
        store.quotas.charge(charges)
    if ending.turn is not None:
        store.conversations.append(ending.turn)
    if end.failure not in DEAD_LETTERS:
        task.progress.checkpoint = None
    store.add_messages(task, *ending.history)
    store.add_artifacts(task, ending.artifacts)
    if end.metadata is not None:
        task.metadata = end.metadata
    if ending.goes_on:
        _hand_on(task, ending)
        store.log(task, ending.events, ending.artifacts)
        return claim_of(store, task, claimed.holder)
    store.waiting.remove(task)
    task.state, task.status_at, task.status_message = end.status
    task.failure = end.failure
    store.lists.note(task)
    store.log(task, ending.events, ending.artifacts)
    for _, artifact in ending.artifacts:
        if len(artifact) >= LONG:
            _splice(task, ending, artifact)
    _leave(store, task, ending)
    return None


def _splice(task: Task, ending: _Ending, artifact: bytes) -> None:
    """Let the values of an end refer to a long artifact, after the events were published."""
    messages, events = len(task.history) - len(ending.history), max(0, len(task.events) - len(ending.events))
    task.history = [*task.history[:messages], *(splice(body, artifact) for body in task.history[messages:])]
    task.events[events:] = [splice_event(event, artifact) for event in task.events[events:]]
    task.events = splice_deltas(task.events, artifact)
    for entry in () if ending.turn is None else ending.turn.entries:
        entry.message = splice(entry.message, artifact)


def _hand_on(task: Task, ending: _Ending) -> None:
    """Begin the next turn of a task with unread messages."""
    progress = task.progress
    task.run += 1
    progress.turn += 1
    progress.inbox_read = ending.read
    progress.answer = None
    progress.forget_turn()
    task.status_message = None


def _leave(store: Store, task: Task, ending: _Ending) -> None:
    """Release a task. An interrupted task and a dead letter keep the turn."""
    progress = task.progress
    if store.credentials and ending.end.status.state in TERMINAL:
        store.credentials.pop(task.id, None)
    progress.holder = None
    progress.cancel_requested = False
    if ending.end.failure in DEAD_LETTERS:
        progress.inbox_read = ending.inbox  # a retry goes on from the checkpoint, or begins anew
        store.note_dead(task)
    elif ending.end.status.state in TERMINAL:
        task.results, task.progress = (*progress.artifacts.values(),), OVER
        task.history, task.inbox = (*task.history,), (*task.inbox,)
    else:
        progress.inbox_read = ending.read
        progress.own_messages, progress.own_usage = ending.own_messages, ending.own_usage
        progress.pending = ending.end.pending
        progress.context_head = ending.head
        progress.answer = None


def goes_on(store: Store, claimed: Claim, end: Finish) -> bool:
    """Return True if a task goes on with its unread messages after this end of a run.

    Raises:
        LeaseLost: The claim is no longer valid.
    """
    task = check_held(store, claimed)
    return hands_on(end) and bool(task.unread(end.taken or claimed.inbox))


def _finished(store: Store, claimed: Claim, end: Finish) -> Claim | None:
    """Return the result of a stored finish, for a call that is repeated. LeaseLost for any other end."""
    task = store.tasks.get(claimed.header.id)
    if task is None or task.fence != claimed.fence:
        raise LeaseLost
    first = [*end.events, end.final][0].n
    if hands_on(end) and (task.progress.holder, task.run) == (claimed.holder, claimed.run + 1):
        if task.events_after(first - 1) == [*end.events, *handed_on(claimed.header, end)]:
            return claim_of(store, task, claimed.holder)
    elif (task.run, task.state, task.status_at, task.last_event) == (
        claimed.run,
        end.status.state,
        end.status.at,
        end.final.n,
    ):
        return None
    raise LeaseLost
