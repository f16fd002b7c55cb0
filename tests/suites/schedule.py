"""Hostile schedules: holders that crash, freeze and come back, clocks that jump, clients that repeat themselves.

Beside each store runs a model in plain Python of what must hold, in which a right to write is its fence and nothing
else. Several processes of a store are several backends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import (
    InvalidParamsError,
    LeaseLost,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from pydantic_ai_a2a.server.store.ports import Backend, Checkpoint, Claim, Slot, Submission, Subscription
from pydantic_ai_a2a.task_states import INTERRUPTED, LIVE, TERMINAL
from pydantic_ai_a2a.types import TaskEvent, TaskQuery, TaskState

from .base import MakeBackend, PortSuite
from .model import A_DAY, CONTEXTS, OWNERS, SHORT, Context, HeldClaim, Holder, Model, Task
from .values import (
    EXPIRED,
    LEASE,
    WAIT_LIMIT,
    artifact_chunk,
    claim_up_to,
    conversation_texts,
    erase,
    finish_of,
    ignore,
    message,
    model_texts,
    model_turn,
    submit,
    text_of_body,
)

__all__ = ('Schedule', 'ScheduleSuite')

T = TypeVar('T')
ENDS: Sequence[TaskState] = (
    'completed',
    'input-required',
    'completed',
    'auth-required',
    'canceled',
    'failed',
    'rejected',
)
GOES_ON: Sequence[TaskState] = ('completed', 'failed', 'rejected')
"""Ends of runs after which the task goes on with its next message."""
MESSAGE_IDS = ('short', 'long-enough-to-be-unique')
message_ids = st.none() | st.sampled_from(MESSAGE_IDS)
anyone = st.integers(0, 7)


@dataclass(eq=False)
class Reader:
    task: Task
    place: Subscription
    after: int


class Schedule(RuleBasedStateMachine, Model):
    """Clients, readers and holders of a store, and the model beside it.

    Args:
        processes: Backends over the same store, empty at first.
        skips: True if a claim may skip a task that the database has locked, as a process does that notes its readers.
            A later claim then has the task.
    """

    def __init__(self, processes: Sequence[Backend], *, skips: bool = False) -> None:
        RuleBasedStateMachine.__init__(self)
        Model.__init__(self, [Holder(f'holder {n}', n % len(processes)) for n in range(3)])
        self.loop = asyncio.new_event_loop()
        self.processes = processes
        self.skips = skips
        self.readers: list[Reader] = []
        self.stored: dict[str, TaskState] = {}
        """The states at the last look."""
        self.steps = 0

    def teardown(self) -> None:
        for reader in self.readers:
            reader.place.close()
        for each in {*self.processes}:
            each.close()
        self.loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, WAIT_LIMIT))

    @property
    def process(self) -> Backend:
        """Some process: each step has another one."""
        return self.processes[self.steps % len(self.processes)]

    @property
    def now(self) -> int:
        """What time it is for a client."""
        return self.holders[self.steps % len(self.holders)].now

    # --- clients ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.live()) < 5)
    @rule(context=st.sampled_from(CONTEXTS), message_id=message_ids, text=st.sampled_from(['x', 'y']), read=anyone)
    def begin(self, context: Context, message_id: str | None, text: str, read: int) -> None:
        owner, name = context
        self.created += 1
        message_id = message_id or f'message number {self.created}'
        sent = message(
            f'{message_id}: {text}',
            new=f'task {self.created}',
            context=name,
            owner=owner,
            message_id=message_id,
            at=self.now,
        )
        self.send(replace(sent, logged=read < 2))

    @precondition(lambda self: self.tasks)
    @rule(which=anyone, owner=st.sampled_from([None, None, None, *OWNERS]), message_id=message_ids)
    def go_on(self, which: int, owner: str | None, message_id: str | None) -> None:
        waiting = [task for task in self.tasks.values() if task.state in INTERRUPTED]
        task = waiting[0] if which % 3 and waiting else self.pick(which)
        self.created += 1
        message_id = message_id or f'message number {self.created}'
        owner = owner or task.context[0]
        sent = message(f'{message_id}: more', to=task.id, owner=owner, message_id=message_id, at=self.now)
        self.send(replace(sent, logged=task.read_events))

    def send(self, sent: Submission) -> None:
        """Send a message, be it new or not, to a task that may be there or not."""
        sending = submit(self.process, sent)
        known = self.known(sent)
        task = self.tasks.get(sent.task_id)
        if known is not None:
            first, task_id, after = known
            if first.digest != sent.digest:
                with pytest.raises(InvalidParamsError):
                    self.do(sending)
                return
            again = self.do(sending)
            assert (again.header.id, again.after, again.replayed) == (task_id, after, True)
            return
        if not sent.new and (task is None or task.context[0] != sent.owner):
            with pytest.raises(TaskNotFoundError):
                self.do(sending)
            return
        if task is not None and task.state in TERMINAL:
            with pytest.raises(UnsupportedOperationError):
                self.do(sending)
            return
        self.accept(sent, task)
        accepted = self.do(sending)
        assert (accepted.header.id, accepted.replayed) == (sent.task_id, False)
        if key := self.key(sent):
            self.accepted[key] = (sent, sent.task_id, accepted.after)

    @precondition(lambda self: len(self.tasks) > 2)
    @rule(which=anyone, force=st.booleans())
    def cancel(self, which: int, force: bool) -> None:
        task = self.pick(which)
        canceling = self.process.queue.cancel(task.id, task.context[0], at=self.now, force=force)
        if task.state in TERMINAL:
            with pytest.raises(TaskNotCancelableError):
                self.do(canceling)
        elif task.holder is not None and not force:
            task.cancel = True
            assert self.do(canceling).state == 'working'
        else:
            if task.own:
                self.say(task, task.own, self.now)
            self.end(task, 'canceled', self.now)
            assert self.do(canceling).state == 'canceled'
            self.beat(task)

    @precondition(lambda self: len(self.tasks) > 3)
    @rule(which=anyone)
    def erase_task(self, which: int) -> None:
        task = self.pick(which)
        erasing = self.process.housekeeping.erase_task(task.id, task.context[0], at=self.now)
        if task.state in LIVE:
            with pytest.raises(UnsupportedOperationError):
                self.do(erasing)
            return
        self.leave_all(task)
        self.forget(task)
        assert self.do(erasing)

    @precondition(lambda self: len(self.tasks) > 5)
    @rule(context=st.sampled_from(CONTEXTS))
    def erase_context(self, context: Context) -> None:
        tasks = [task for task in self.tasks.values() if task.context == context]
        erasing = erase(self.process, *context, at=self.now)
        if any(task.state in LIVE for task in tasks):
            with pytest.raises(UnsupportedOperationError):
                self.do(erasing)
            return
        for task in tasks:
            self.leave_all(task)
            self.forget(task)
        assert bool(self.do(erasing)) == bool(tasks or context in self.used)
        self.drop(context)

    # --- readers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.tasks)
    @rule(which=anyone, back=st.integers(0, 5))
    def subscribe(self, which: int, back: int) -> None:
        """Read a task from somewhere in its log on."""
        task = self.pick(which)
        after = max(0, len(task.log) - back)
        there = not task.swept or after == len(task.log)
        assert self.do(self.process.events.has(task.id, after)) == there
        assert not self.do(self.process.events.has(task.id, len(task.log) + 1))
        if there and not task.swept:
            place = self.in_loop(lambda: self.process.events.subscribe(task.id, ignore))
            place.start(after)
            self.readers.append(Reader(task, place, after))

    @precondition(lambda self: self.readers)
    @rule(which=anyone, stay=st.booleans())
    def read(self, which: int, stay: bool) -> None:
        """Catch up with a task; then go on later, or leave."""
        reader = self.readers[which % len(self.readers)]
        self.catch_up(reader)
        if not stay:
            self.leave(reader)

    def catch_up(self, reader: Reader) -> None:
        while reader.after < len(reader.task.log):
            batch = self.do(reader.place.next())
            assert batch, 'dropped, though the log is there'
            self.compare(reader.task, batch, reader.after)
            reader.after = batch[-1].n

    def leave(self, reader: Reader) -> None:
        reader.place.close()
        self.readers.remove(reader)

    def leave_all(self, task: Task) -> None:
        """Readers of a task get what was there before it goes."""
        for reader in [reader for reader in self.readers if reader.task is task]:
            self.catch_up(reader)
            self.leave(reader)

    def in_loop(self, call: Callable[[], T]) -> T:
        async def calling() -> T:
            return call()

        return self.do(calling())

    def compare(self, task: Task, batch: Sequence[TaskEvent], after: int) -> None:
        """Each event has its number, and is the same for all who read it."""
        for n, event in enumerate(batch, after + 1):
            known = task.log[n - 1]
            if isinstance(known, str):
                assert (event.n, event.state) == (n, known)
                task.log[n - 1] = event  # whatever the store says now, it says to all
            else:
                assert event == known

    # --- holders ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.live()) > len(self.valid_hands()))
    @rule(which=anyone, limit=st.integers(1, 3))
    def claim(self, which: int, limit: int) -> None:
        self.claim_for(self.holders[which % len(self.holders)], limit)

    @precondition(lambda self: self.live())
    @rule(which=anyone, state=st.sampled_from(ENDS), takes=st.booleans())
    def run(self, which: int, state: TaskState, takes: bool) -> None:
        """Claim a task, and do it at once."""
        holder = self.holders[which % len(self.holders)]
        before = len(holder.hands)
        self.claim_for(holder, 1)
        for hand in holder.hands[before:]:
            slot = Slot(holder.name, LEASE) if takes else None
            self.finish_with(hand, self.tasks[hand.claim.header.id], state, slot=slot)

    @precondition(lambda self: self.tasks)
    @rule(which=anyone, task=anyone)
    def claim_one(self, which: int, task: int) -> None:
        self.claim_for(self.holders[which % len(self.holders)], 1, self.pick(task))

    def claim_for(self, holder: Holder, limit: int, only: Task | None = None) -> None:
        free = [task for task in self.claimed() if self.lost(task, holder)]
        free += self.claimable()
        free = [task for task in free if only in (None, task)]
        expected = free[:limit]
        count = len(expected) if self.skips else 0
        claims = self.do(
            claim_up_to(
                self.processes[holder.process],
                count,
                holder.name,
                limit=limit,
                at=holder.now,
                task_id=None if only is None else only.id,
            )
        )
        taken = [self.tasks[each.header.id] for each in claims]
        assert taken == expected or (self.skips and len(taken) == count and {*taken} <= {*free})
        for task, each in zip(taken, claims, strict=True):
            self.take(task, HeldClaim(holder.name, holder.process, each), holder, holder.now)

    def take(
        self, task: Task, hand: HeldClaim, holder: Holder | None, at: int, *, begun_by: tuple[str, int] | None = None
    ) -> None:
        assert hand.claim.fence > task.fence
        self.beat(task, but=hand.process)
        task.attempt += task.holder is not None or task.attempt == 0
        task.fence, task.holder, task.expired = hand.claim.fence, hand.holder, False
        task.begun_by = begun_by
        task.queued, task.round = False, None
        if task.state == 'submitted':
            self.move(task, 'working', at)
        if task.own is None:
            task.base = [*self.contexts[task.context]]
        self.hand_out(task, hand, holder)

    def beat(self, task: Task, *, but: int | None = None) -> None:
        """Let the processes find that they do not hold a task any longer, as their next heartbeats do."""
        for n, process in enumerate(self.processes):
            if n != but:
                self.do(process.queue.renew('nobody', [task.id], lease=LEASE))

    def hand_out(self, task: Task, hand: HeldClaim, holder: Holder | None) -> None:
        claimed = hand.claim
        assert (claimed.attempt, claimed.run, claimed.turn) == (task.attempt, task.run, task.turn)
        assert claimed.header.last_event == len(task.log)
        assert text_of_body(claimed.message) == task.order[task.read]
        assert model_texts(self.do(self.processes[hand.process].history(claimed))) == [*task.base, *(task.own or ())]
        assert (None if claimed.checkpoint is None else model_texts(claimed.checkpoint.messages)) == task.come
        (self.frozen if holder is None else holder.hands).append(hand)

    @precondition(lambda self: self.holding())
    @rule(which=anyone, expired=st.booleans())
    def renew(self, which: int, expired: bool) -> None:
        holder = self.holding()[which % len(self.holding())]
        ids = list(dict.fromkeys(hand.claim.header.id for hand in holder.hands))
        marks = self.do(
            self.processes[holder.process].queue.renew(holder.name, ids, lease=EXPIRED if expired else LEASE),
        )
        held = [self.tasks[each] for each in ids if each in self.tasks and self.tasks[each].holder == holder.name]
        for task in held:
            task.expired = expired
        assert [*marks.lost] == [each for each in ids if each not in {task.id for task in held}]
        assert [*marks.cancel] == [task.id for task in held if task.cancel]
        holder.hands = [hand for hand in holder.hands if hand.claim.header.id not in marks.lost]

    @precondition(lambda self: self.hands())
    @rule(which=anyone, count=st.integers(0, 3), first=st.none() | anyone)
    def emit(self, which: int, count: int, first: int | None) -> None:
        """Store events, or how far the run has come from a message on, or both."""
        hand, task = self.hand(which)
        process, step = self.processes[hand.process], None
        log, come = ([], []) if task is None else (task.log, task.come or [])
        if first is None or not process.durable:
            count = max(count, 1)
        else:
            come = [*come[:first], f'question {self.steps}', f'step of {hand.holder}']
            step = Checkpoint(run='run', messages=model_turn(*come[-2:]), usage=RunUsage(), first=len(come) - 2)
        written = [artifact_chunk(len(log) + n, f'{n} of {hand.holder}') for n in range(1, count + 1)]
        emitting = process.queue.emit(hand.claim, written, checkpoint=step)
        if task is None or not self.valid(hand, task):
            with pytest.raises(LeaseLost):
                self.do(emitting)
            return
        task.log += written
        task.come = come or None
        self.dirty.add(task)
        self.do(emitting)

    @precondition(lambda self: self.hands())
    @rule(which=anyone, state=st.sampled_from(ENDS), takes=st.booleans(), answered=st.booleans())
    def finish(self, which: int, state: TaskState, takes: bool, answered: bool) -> None:
        hand, task = self.hand(which)
        self.finish_with(hand, task, state, slot=Slot(hand.holder, LEASE) if takes else None, answered=answered)

    def finish_with(
        self, hand: HeldClaim, task: Task | None, state: TaskState, *, slot: Slot | None = None, answered: bool = True
    ) -> None:
        now, claimed = self.now, hand.claim
        answer = f'answer {len(self.completed)} of {hand.holder}'
        prompt = text_of_body(claimed.message)
        after = len(task.log) if task else 0
        end = finish_of(claimed, state, after=after, at=now, messages=model_turn(prompt, answer), slot=slot)
        finishing = self.processes[hand.process].queue.finish(claimed, end)
        goes_on = state in GOES_ON
        if task is not None and self.valid(hand, task) and goes_on and claimed.run + 1 == task.run:
            again = self.do(finishing)  # an end without events is stored: this one is taken for a repetition of it
            assert again is not None
            assert (again.fence, again.run) == (task.fence, task.run)
            return
        if task is None or not self.valid(hand, task) or claimed.run != task.run:
            with pytest.raises(LeaseLost):
                self.do(finishing)
            return
        following = self.do(finishing)
        self.completed[task.id, task.read] += state in (*GOES_ON, *INTERRUPTED)
        task.read += 1
        own = [*(task.own or ()), prompt, answer]
        task.own = own if state in INTERRUPTED else None
        if state in ('completed', 'canceled'):
            self.say(task, own, now)
        if goes_on and task.read < len(task.messages):
            assert following is not None
            assert following.fence == claimed.fence
            task.run, task.turn, task.come = task.run + 1, task.turn + 1, None
            task.base = [*self.contexts[task.context]]
            self.hand_out(task, HeldClaim(hand.holder, hand.process, following), self.holder_of(hand))
        else:
            self.end(task, state, now, end.final)
            self.follow(hand, following, now, takes=slot is not None)
            if following is not None and not answered:
                assert self.do(self.processes[hand.process].queue.finish(claimed, end)) is None
                self.tasks[following.header.id].holder = None

    def follow(self, hand: HeldClaim, following: Claim | None, at: int, *, takes: bool) -> None:
        """Compare the claim of an end with that of a worker.

        It takes the first queued task, if that has no readers, no first steps and no pause.
        """
        free = [] if any(task.holder is None for task in self.claimed()) else self.claimable()
        first = free[0] if takes and free else None
        needs_more = first is not None and (first.read_events or first.come or first.own is not None)
        expected = None if needs_more else first
        task = None if following is None else self.tasks[following.header.id]
        assert task is expected or (takes and self.skips and (task is None or task in free))
        if task is not None and following is not None:
            new = HeldClaim(hand.holder, hand.process, following)
            self.take(task, new, self.holder_of(hand), at, begun_by=(hand.claim.header.id, hand.claim.fence))

    @precondition(lambda self: self.hands())
    @rule(which=anyone)
    def release(self, which: int) -> None:
        hand, task = self.hand(which)
        self.do(self.processes[hand.process].queue.release(hand.claim))
        if task is not None and self.valid(hand, task):
            task.holder = None
        else:  # the holder takes the claim for its own, so it does not know the task that the end has claimed
            for begun in self.tasks.values():
                if begun.begun_by == (hand.claim.header.id, hand.claim.fence) and begun.holder == hand.holder:
                    begun.holder = None

    # --- accidents --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.holding())
    @rule(which=anyone, expired=st.booleans())
    def crash(self, which: int, expired: bool) -> None:
        """A process dies and is started anew, or was only frozen and uses its claims later."""
        holder = self.holding()[which % len(self.holding())]
        if expired:
            self.expire_leases(holder.name)
        self.frozen += holder.hands
        holder.hands = []
        self.places += 1
        holder.name = f'{holder.name.split("/")[0]}/{self.places}'

    def expire_leases(self, holder: str) -> None:
        """Nobody has renewed the leases of a holder for long."""
        held = [task for task in self.tasks.values() if task.holder == holder]
        assert not self.do(self.process.queue.renew(holder, [task.id for task in held], lease=EXPIRED)).lost
        for task in held:
            task.expired = True

    @precondition(lambda self: self.tasks)
    @rule(which=anyone, seconds=st.integers(-40, 100) | st.sampled_from([301, 901]))
    def jump(self, which: int, seconds: int) -> None:
        self.holders[which % len(self.holders)].now += seconds * 1000

    @precondition(lambda self: len(self.tasks) > 2)
    @rule(days=st.sampled_from([0, 0, 0, 1]))
    def sweep(self, days: int) -> None:
        at = self.now + days * A_DAY
        for task in self.tasks.values():
            self.leave_all(task)
        while self.do(self.process.housekeeping.sweep(SHORT, at=at)):
            pass
        for task in self.expire(at):
            self.forget(task)

    @precondition(lambda self: len(self.tasks) > 6)
    @rule()
    def settle(self) -> None:
        """Left to themselves, all tasks come to an end: nothing waits for ever for what has gone."""
        for holder in {task.holder for task in self.tasks.values() if task.holder is not None}:
            self.expire_leases(holder)
        last = Holder(f'settler {self.steps}', self.steps % len(self.processes))
        self.holders.append(last)
        for _ in range(2 * self.created):
            self.claim_for(last, 100)
            while last.hands:
                hand = last.hands.pop()
                slot = Slot(last.name, LEASE)
                self.finish_with(hand, self.tasks.get(hand.claim.header.id), 'completed', slot=slot)
        self.holders.pop()
        assert not any(task.state in LIVE for task in self.tasks.values())

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        self.steps += 1
        found: dict[str, tuple[TaskState, bool, int]] = {}
        running: Counter[Context] = Counter()
        for owner in OWNERS:
            page = self.do(self.process.reader.list(TaskQuery(owner=owner, page_size=1000, history_length=0)))
            for header in (task.header for task in page.tasks):
                found[header.id] = (header.state, header.queued, header.last_event)
                running[owner, header.context_id] += header.state == 'working' and not header.queued
        assert found == {task.id: (task.state, task.queued, len(task.log)) for task in self.tasks.values()}
        assert not running or max(running.values()) <= 1
        for task_id, (state, *_) in found.items():
            before = self.stored.get(task_id, 'submitted')
            assert before == state or before not in TERMINAL
        self.stored = {task_id: state for task_id, (state, *_) in found.items()}
        assert not self.completed or max(self.completed.values()) <= 1
        for task in self.dirty:
            self.check_task(task)
        if self.dirty or self.steps % 10 == 0:
            self.dirty.clear()
            for context, texts in self.contexts.items():
                assert self.do(conversation_texts(self.process, context[1], context[0])) == texts

    async def log_of(self, task: Task) -> list[TaskEvent]:
        """The events of a task, as a new reader gets them: what another process has written may come later."""
        reader = self.process.events.subscribe(task.id, ignore)
        reader.start(0)
        got: list[TaskEvent] = []
        while len(got) < len(task.log):
            batch = await reader.next()
            assert batch, 'dropped, though the log is there'
            got += batch
        reader.close()
        return got

    def check_task(self, task: Task) -> None:
        """Its log has no gap and nothing after its end; its messages are there once; all were run, if it completed."""
        if task.log and not task.swept:
            got = self.do(self.log_of(task))
            self.compare(task, got, 0)
            assert len(got) == len(task.log)
            assert not any(event.state in TERMINAL for event in got[:-1])
        loaded = self.do(self.process.reader.load(task.id, task.context[0]))
        assert loaded is not None
        assert loaded.history is not None
        assert [text_of_body(body) for body in loaded.history] == task.messages
        if task.state == 'completed':
            assert [self.completed[task.id, n] for n in range(len(task.messages))] == [1] * len(task.messages)


class ScheduleSuite(PortSuite):
    """Random schedules of one process."""

    examples = 40
    """Schedules to try, each of at most 40 steps; more find more, and take longer."""

    def test_random_schedule_of_task_queue_matches_model(self, make_backend: MakeBackend) -> None:
        class Made(Schedule):
            def __init__(self) -> None:
                backend = make_backend()
                super().__init__([backend], skips=backend.durable)

        steady = settings(max_examples=self.examples, stateful_step_count=40, deadline=None, database=None)
        run_state_machine_as_test(Made, settings=steady)
