"""What must hold of tasks and contexts, in plain Python, beside a store that is put through a schedule.

A right to write is a fence and nothing else. Leases expire whatever the wall clocks of the holders say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic_ai_a2a.server.store.ports import Claim, Submission
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.task_states import INTERRUPTED, LIVE, STOPPED, TERMINAL
from pydantic_ai_a2a.types import TaskEvent, TaskState

from .values import START, WINDOW, text_of_body

__all__ = ('A_DAY', 'CONTEXTS', 'OWNERS', 'SHORT', 'Context', 'HeldClaim', 'Holder', 'Model', 'Task', 'may_move')

Context = tuple[str, str]
"""Owner and context id."""
OWNERS = ('/ada', '/')
CONTEXTS: Sequence[Context] = [(owner, name) for owner in OWNERS for name in ('red', 'blue')]
SHORT = Retention(
    events=timedelta(seconds=60), waiting=timedelta(seconds=300), tasks=timedelta(seconds=900), contexts=timedelta(1)
)
A_DAY = 24 * 60 * 60 * 1000


_MOVES: dict[TaskState, frozenset[TaskState]] = {
    'submitted': frozenset({'working', 'failed', 'canceled', 'rejected'}),
    'working': STOPPED | frozenset[TaskState]({'working'}),
    'input-required': frozenset({'working', 'failed', 'canceled', 'input-required'}),
    'auth-required': frozenset({'working', 'failed', 'canceled'}),
    **dict.fromkeys(TERMINAL, frozenset[TaskState]()),
}


def may_move(state: TaskState, to: TaskState) -> bool:
    """Return True if a task may go from `state` to `to`; a terminal task never moves again."""
    return to in _MOVES[state]


@dataclass(eq=False)
class Task:
    """What the model knows of a task."""

    id: str
    context: Context
    place: int
    """In the queue."""
    at: int
    """Of its status."""
    state: TaskState = 'submitted'
    queued: bool = True
    """True while it waits for a worker."""
    round: int | None = None
    """In which it is claimed; None while an earlier task of its context is queued or running."""
    holder: str | None = None
    expired: bool = False
    """Whether its lease is over."""
    fence: int = 0
    """Of its newest claim."""
    begun_by: tuple[str, int] | None = None
    """The task and the fence of the end that has made the newest claim."""
    attempt: int = 0
    run: int = 1
    turn: int = 1
    messages: list[str] = field(default_factory=list[str])
    """All that it accepted."""
    order: list[str] = field(default_factory=list[str])
    """The same, as they are run: the answer to what it waited with comes before what nobody has read."""
    read: int = 0
    """How many of them were run."""
    base: list[str] = field(default_factory=list[str])
    """What its context said when its run began."""
    own: list[str] | None = None
    """What it said itself before it was interrupted."""
    come: list[str] | None = None
    """How far its run has come, as it was stored."""
    cancel: bool = False
    log: list[TaskState | TaskEvent] = field(default_factory=list['TaskState | TaskEvent'])
    """Its events: those of its holders, and the states that the store tells of by itself."""
    swept: bool = False
    """Whether its log is gone, or was never there."""
    read_events: bool = True
    """Whether it has a log."""


@dataclass(eq=False)
class HeldClaim:
    """A claim that somebody has, valid or not."""

    holder: str
    process: int
    claim: Claim


@dataclass(eq=False)
class Holder:
    name: str
    process: int
    now: int = START
    hands: list[HeldClaim] = field(default_factory=list[HeldClaim])


class Model:
    """All that is known.

    Args:
        holders: Who runs tasks.
    """

    def __init__(self, holders: Sequence[Holder]) -> None:
        self.holders = [*holders]
        self.frozen: list[HeldClaim] = []
        """Claims of processes that were taken for dead."""
        self.tasks: dict[str, Task] = {}
        self.contexts: dict[Context, list[str]] = {context: [] for context in CONTEXTS}
        self.used: dict[Context, int] = {}
        """When contexts were written last."""
        self.accepted: dict[tuple[str, ...], tuple[Submission, str, int]] = {}
        """What was accepted under a message id: the first message, its task, the newest event then."""
        self.completed: Counter[tuple[str, int]] = Counter()
        """Messages whose run came to an end that keeps it: task and number."""
        self.dirty: set[Task] = set()
        """Tasks that have changed since they were compared."""
        self.created: int = 0
        self.places: int = 0

    # --- messages ---------------------------------------------------------------------------------------------------

    def key(self, sent: Submission) -> tuple[str, ...]:
        """The key of a message that is sent again; none where another anonymous client may use the same short id.

        A task id is known to its client only, so a message with one is recognised whatever the length of its own id.
        """
        if not sent.anonymous:
            return (sent.owner, sent.message_id)
        if sent.new and len(sent.message_id) < 16:
            return ()
        return (sent.owner, sent.message_id, sent.digest.hex())

    def known(self, sent: Submission) -> tuple[Submission, str, int] | None:
        """What was accepted before under the id of a message."""
        known = self.accepted.get(self.key(sent))
        if known is None or (sent.anonymous and sent.new and known[0].at < sent.at - WINDOW):
            return None
        return known

    def accept(self, sent: Submission, task: Task | None) -> None:
        """A message of which nobody knows, for a new task or one that has not ended."""
        answers = task is not None and task.state in INTERRUPTED
        if task is None:
            assert sent.context_id is not None
            task = Task(sent.task_id, (sent.owner, sent.context_id), self.place(), sent.at)
            task.read_events, task.swept = sent.logged, not sent.logged
            self.tasks[task.id] = task
            self.let_go(task.context)
        elif answers:
            task.place = self.place()
            task.run += 1
            self.move(task, 'working', sent.at)
            task.queued = True
            self.let_go(task.context)
        text = text_of_body(sent.body)
        task.messages.append(text)
        task.order.insert(task.read if answers else len(task.order), text)
        self.dirty.add(task)

    # --- who may do what --------------------------------------------------------------------------------------------

    def place(self) -> int:
        self.places += 1
        return self.places

    def pick(self, which: int) -> Task:
        """One of the tasks, the newest first."""
        return [*self.tasks.values()][-1 - which % len(self.tasks)]

    def claimed(self) -> list[Task]:
        """The tasks that run or were handed back, in their order."""
        return sorted((task for task in self.live() if not task.queued), key=lambda task: task.place)

    def claimable(self) -> list[Task]:
        """The queued tasks that are the first of their contexts, in their order."""
        found = sorted((task.round, task.place, task.id) for task in self.tasks.values() if task.round is not None)
        return [self.tasks[task_id] for *_, task_id in found]

    def let_go(self, context: Context) -> None:
        """Give a round to the first task of a context, if that waits and has none.

        It is the round after the owner's last one, or the one that is claimed now.
        """
        live = [task for task in self.live() if task.context == context]
        if live and (first := min(live, key=lambda task: task.place)).queued and first.round is None:
            rounds = [(task.round, task.context[0]) for task in self.tasks.values() if task.round is not None]
            now = min((number for number, _ in rounds), default=0)
            first.round = max(now, *(number + 1 for number, owner in rounds if owner == context[0]), now)

    def lost(self, task: Task, holder: Holder) -> bool:
        return task.holder is None or (task.holder != holder.name and task.expired)

    def live(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.state in LIVE]

    def holding(self) -> list[Holder]:
        return [holder for holder in self.holders if holder.hands]

    def hands(self) -> list[HeldClaim]:
        return [*self.frozen, *(hand for holder in self.holders for hand in holder.hands)]

    def valid_hands(self) -> list[HeldClaim]:
        found = [(hand, self.tasks.get(hand.claim.header.id)) for hand in self.hands()]
        return [hand for hand, task in found if task is not None and self.valid(hand, task)]

    def hand(self, which: int) -> tuple[HeldClaim, Task | None]:
        """One of the claims, most often one that is valid, and its task if that is still there."""
        hands = (which % 3 and self.valid_hands()) or self.hands()
        hand = hands[which % len(hands)]
        return hand, self.tasks.get(hand.claim.header.id)

    def holder_of(self, hand: HeldClaim) -> Holder | None:
        return next((holder for holder in self.holders if holder.name == hand.holder), None)

    def valid(self, hand: HeldClaim, task: Task) -> bool:
        """Whether a claim may write."""
        return task.state == 'working' and (task.fence, task.holder) == (hand.claim.fence, hand.holder)

    def move(self, task: Task, state: TaskState, at: int, event: TaskEvent | None = None) -> None:
        assert may_move(task.state, state)
        task.state, task.at = state, at
        task.log.append(event or state)
        self.dirty.add(task)

    def end(self, task: Task, state: TaskState, at: int, event: TaskEvent | None = None) -> None:
        """Let it wait or be over."""
        self.move(task, state, at, event)
        task.queued, task.round, task.holder, task.cancel, task.come = False, None, None, False, None
        self.let_go(task.context)
        if state in TERMINAL:
            task.own = None

    def say(self, task: Task, texts: Sequence[str], at: int) -> None:
        self.contexts[task.context] += texts
        self.used[task.context] = at

    def expire(self, at: int) -> list[Task]:
        """What the retention `SHORT` does; the tasks that go."""
        gone: list[Task] = []
        for task in self.tasks.values():
            if task.state in INTERRUPTED and task.at < at - 300_000:
                self.end(task, 'failed', at)
            elif task.state in TERMINAL:
                task.swept |= task.at < at - 60_000
                gone += [task] if task.at < at - 900_000 else []
        lives = {task.context for task in self.tasks.values() if task.state not in TERMINAL}
        for context in [context for context, used in self.used.items() if used < at - A_DAY and context not in lives]:
            self.drop(context)
        return gone

    def drop(self, context: Context) -> None:
        """Nothing has been said there."""
        self.contexts[context] = []
        self.used.pop(context, None)

    def forget(self, task: Task) -> None:
        """It is no longer there, and neither are the ids of its messages."""
        del self.tasks[task.id]
        self.dirty.discard(task)
        self.accepted = {key: known for key, known in self.accepted.items() if known[1] != task.id}
