"""Random orders of all operations on tasks, compared with a small model of the queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pydantic_ai_a2a.errors import LeaseLost, TaskNotCancelableError, UnsupportedOperationError
from pydantic_ai_a2a.store.ports import Backend, Claim, Slot
from pydantic_ai_a2a.types import INTERRUPTED, LIVE, STOPPED, TERMINAL, TaskQuery, TaskState

from .base import MakeBackend, PortSuite
from .values import (
    AT,
    LEASE,
    OVER,
    OWNER,
    chunk,
    claim_some,
    conversation,
    ending,
    events,
    message,
    said,
    submit,
    text_of,
    turn,
)

__all__ = ('QueueMachineSuite', 'may_move')


T = TypeVar('T')
CONTEXTS = ('red', 'blue')
HOLDERS = ('one', 'two')
ENDS: Sequence[TaskState] = sorted(TERMINAL | INTERRUPTED)


@dataclass
class Task:
    """A task in the model."""

    id: str
    context: str
    place: int
    """In the queue."""
    state: TaskState = 'submitted'
    queued: bool = True
    """True while the task waits for a worker."""
    round: int | None = None
    """Round of the claim; None while an earlier task of the context is queued or running."""
    holder: str | None = None
    expired: bool = False
    """True after the expiry of the lease."""
    claim: Claim | None = None
    """The newest; valid while the task has a holder."""
    attempt: int = 0
    run: int = 1
    turn: int = 1
    unread: list[str] = field(default_factory=list[str])
    own: list[str] | None = None
    """The output of the run before the interruption."""
    cancel: bool = False
    last_event: int = 0

    def end(self, state: TaskState) -> None:
        self.state, self.queued, self.round, self.holder, self.cancel = state, False, None, None, False


class Machine(RuleBasedStateMachine):
    tasks: Bundle[Task] = Bundle('tasks')

    def __init__(self, make_backend: MakeBackend) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.backend: Backend = make_backend()
        self.now = AT
        self.known: dict[str, Task] = {}
        self.contexts: dict[str, list[str]] = {context: [] for context in CONTEXTS}
        self.completed: Counter[str] = Counter()
        self.accepted = 0
        self.places = 0
        self.before: dict[str, TaskState] = {}
        self.stale: list[Claim] = []
        """Claims of lost or finished runs."""

    def teardown(self) -> None:
        try:
            self.do(self.check_events())
        finally:
            self.backend.close()
            self.loop.close()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def place(self) -> int:
        self.places += 1
        return self.places

    def new_text(self) -> str:
        self.accepted += 1
        return f'message {self.accepted}'

    # --- what clients do --------------------------------------------------------------------------------------------

    @rule(target=tasks, context=st.sampled_from(CONTEXTS))
    def begin(self, context: str) -> Task:
        task = Task(f'task {len(self.known)}', context, self.place())
        task.unread.append(self.new_text())
        self.known[task.id] = task
        self.let_go(context)
        accepted = self.do(submit(self.backend, message(task.unread[0], new=task.id, context=context, at=self.now)))
        assert (accepted.header.state, accepted.replayed) == ('submitted', False)
        return task

    @rule(task=tasks)
    def go_on(self, task: Task) -> None:
        text = self.new_text()
        more = message(text, to=task.id, at=self.now)
        if task.state in TERMINAL:
            with pytest.raises(UnsupportedOperationError):
                self.do(submit(self.backend, more))
            return
        if task.state in INTERRUPTED:
            task.state, task.queued, task.place, task.run = 'working', True, self.place(), task.run + 1
            self.let_go(task.context)
            task.last_event += 1
            task.unread.insert(0, text)  # the answer
        else:
            task.unread.append(text)
        first = self.do(submit(self.backend, more))
        assert (first.after, first.replayed) == (task.last_event, False)
        again = self.do(submit(self.backend, more))
        assert (again.after, again.replayed) == (task.last_event, True)

    @precondition(lambda self: len(self.known) > 3)
    @rule(task=tasks, force=st.booleans())
    def cancel(self, task: Task, force: bool) -> None:
        canceling = self.backend.queue.cancel(task.id, OWNER, at=self.now, force=force)
        with pytest.raises(TaskNotCancelableError) if task.state in TERMINAL else nullcontext():
            state = self.do(canceling).state
            if task.holder is not None and not force:
                task.cancel = True
                assert state == 'working'
            else:
                self.contexts[task.context] += task.own or ()
                task.end('canceled')
                self.let_go(task.context)
                task.last_event += 1
                assert state == 'canceled'

    # --- what holders do --------------------------------------------------------------------------------------------

    @rule(holder=st.sampled_from(HOLDERS), limit=st.integers(1, 3))
    def claim(self, holder: str, limit: int) -> None:
        lost = [task for task in self.in_order() if task.holder is None or (task.holder != holder and task.expired)]
        queued = sorted((task.round, task.place, task.id) for task in self.known.values() if task.round is not None)
        expected = [*lost, *(self.known[task_id] for *_, task_id in queued)][:limit]
        if expected:
            claims = self.do(claim_some(self.backend, len(expected), holder, limit=limit, at=self.now))
        else:
            claims = self.do(self.backend.queue.claim(Slot(holder, LEASE), at=self.now, limit=limit))
        assert [claim.header.id for claim in claims] == [task.id for task in expected]
        for task, claim in zip(expected, claims, strict=True):
            task.attempt += task.holder is not None or task.attempt == 0
            task.last_event += task.state == 'submitted'
            task.state, task.queued, task.round = 'working', False, None
            task.holder, task.expired = holder, False
            self.hand_out(task, claim)

    def hand_out(self, task: Task, claimed: Claim) -> None:
        if task.claim is not None:
            self.stale.append(task.claim)
        task.claim = claimed
        assert (claimed.attempt, claimed.run, claimed.turn) == (task.attempt, task.run, task.turn)
        assert claimed.header.last_event == task.last_event
        assert text_of(claimed.message) == task.unread[0]
        assert (claimed.own_messages is None) == (task.own is None)
        assert said(claimed.own_messages or ()) == (task.own or [])

    @precondition(lambda self: self.held())
    @rule(holder=st.sampled_from(HOLDERS), expired=st.booleans())
    def renew(self, holder: str, expired: bool) -> None:
        marks = self.do(self.backend.queue.renew(holder, [*self.known], lease=OVER if expired else LEASE))
        held = [task for task in self.known.values() if task.holder == holder]
        for task in held:
            task.expired = expired
        assert [*marks.lost] == [task.id for task in self.known.values() if task not in held]
        assert [*marks.cancel] == [task.id for task in held if task.cancel]

    @precondition(lambda self: self.held())
    @rule(which=st.integers(0, 3))
    def emit(self, which: int) -> None:
        task, claimed = self.pick(which)
        task.last_event += 1
        self.do(self.backend.queue.emit(claimed, [chunk(task.last_event, 'chunk', append=False)]))

    @precondition(lambda self: self.held())
    @rule(which=st.integers(0, 3), state=st.sampled_from(ENDS))
    def finish(self, which: int, state: TaskState) -> None:
        self.end(which, state)

    @precondition(lambda self: self.held())
    @rule(which=st.integers(0, 3))
    def complete(self, which: int) -> None:
        self.end(which, 'completed')

    @precondition(lambda self: self.held())
    @rule(which=st.integers(0, 3))
    def interrupt(self, which: int) -> None:
        self.end(which, 'input-required')

    def end(self, which: int, state: TaskState) -> None:
        task, claimed = self.pick(which)
        prompt = task.unread.pop(0)
        end = ending(claimed, state, after=task.last_event, at=self.now, messages=turn(prompt, 'answer'))
        following = self.do(self.backend.queue.finish(claimed, end))
        self.completed[prompt] += state == 'completed'
        own = [*(task.own or ()), prompt, 'answer']
        task.own = own if state in INTERRUPTED else None
        if state in ('completed', 'canceled'):
            self.contexts[task.context] += own
        if state in ('completed', 'failed', 'rejected') and task.unread:
            assert following is not None
            task.run, task.turn = task.run + 1, task.turn + 1
            self.hand_out(task, following)
            return
        assert following is None
        task.end(state)
        self.let_go(task.context)
        task.last_event += 1

    @precondition(lambda self: self.held())
    @rule(which=st.integers(0, 3))
    def release(self, which: int) -> None:
        task, claimed = self.pick(which)
        task.holder = None
        self.do(self.backend.queue.release(claimed))

    @precondition(lambda self: self.stale)
    @rule(which=st.integers(0, 10))
    def write_with_a_claim_that_is_no_longer_valid(self, which: int) -> None:
        claimed = self.stale[which % len(self.stale)]
        task = self.known[claimed.header.id]
        newest = None if task.claim is None or task.holder is None else task.claim
        if newest is not None and (newest.fence, newest.run) == (claimed.fence, claimed.run + 1):
            return  # the end is stored: a repeated end returns the claim of the next run
        for state in ('completed', 'failed', 'input-required'):
            end = ending(claimed, state, after=task.last_event, messages=turn('late', 'late'))
            with pytest.raises(LeaseLost):
                self.do(self.backend.queue.finish(claimed, end))
        if task.claim is None or task.claim.fence != claimed.fence:
            with pytest.raises(LeaseLost):
                self.do(self.backend.queue.emit(claimed, [chunk(task.last_event + 1, 'late')]))
            self.do(self.backend.queue.release(claimed))

    @precondition(lambda self: self.held())
    @rule(seconds=st.integers(-60, 60))
    def set_the_wall_clock(self, seconds: int) -> None:
        self.now += seconds * 1000

    # --- what the model says ----------------------------------------------------------------------------------------

    def in_order(self) -> list[Task]:
        """Return the running and the released tasks."""
        claimed = (task for task in self.known.values() if task.state in LIVE and not task.queued)
        return sorted(claimed, key=lambda task: task.place)

    def let_go(self, context: str) -> None:
        """Give a round to the first task of a context, if that waits and has none: all tasks are of one owner."""
        live = [task for task in self.known.values() if task.state in LIVE and task.context == context]
        if live and (first := min(live, key=lambda task: task.place)).queued and first.round is None:
            rounds = [task.round for task in self.known.values() if task.round is not None]
            first.round = max(rounds) + 1 if rounds else 0

    def held(self) -> list[Task]:
        return [task for task in self.known.values() if task.holder is not None]

    def pick(self, which: int) -> tuple[Task, Claim]:
        """Return a running task with the claim."""
        held = self.held()
        task = held[which % len(held)]
        assert task.claim is not None
        return task, task.claim

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        self.do(self.check_tasks())
        self.do(self.check_contexts())

    async def check_tasks(self) -> None:
        """One runs in a context at most."""
        page = await self.backend.reader.list(TaskQuery(owner=OWNER, page_size=1000, history_length=0))
        headers = [task.header for task in page.tasks]
        states = {header.id: (header.state, header.queued, header.last_event) for header in headers}
        assert states == {task.id: (task.state, task.queued, task.last_event) for task in self.known.values()}
        for task in page.tasks:
            before = self.before.get(task.header.id, 'submitted')
            assert before == task.header.state or may_move(before, task.header.state)
            self.before[task.header.id] = task.header.state
        running = Counter(header.context_id for header in headers if header.state == 'working' and not header.queued)
        assert not running or max(running.values()) == 1

    async def check_events(self) -> None:
        """They have no gaps. Read last: a store may lock a task to note its reader, and a claim skips the task."""
        for task in self.known.values():
            if task.last_event:
                assert [event.n for event in await events(self.backend, task.id)] == [*range(1, task.last_event + 1)]

    async def check_contexts(self) -> None:
        """They hold what their tasks left, and no message was run to completion twice."""
        for context, texts in self.contexts.items():
            assert await conversation(self.backend, context) == texts
        assert not self.completed or max(self.completed.values()) <= 1


class QueueMachineSuite(PortSuite):
    """Random orders of all operations on tasks."""

    examples = 40
    """Orders to try, each of at most 40 steps; more find more, and take longer."""

    def test_whatever_happens_the_queue_keeps_its_promises(self, make_backend: MakeBackend) -> None:
        class Made(Machine):
            def __init__(self) -> None:
                super().__init__(make_backend)

        steady = settings(max_examples=self.examples, stateful_step_count=40, deadline=None, database=None)
        run_state_machine_as_test(Made, settings=steady)


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
