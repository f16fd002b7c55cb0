"""The worker: claims queued tasks of one backend and runs them in one event loop, as many at once as it has slots.

Each task runs in an asyncio task of its own, in a copy of the submitter's context: traces and overrides hold. The
worker keeps a task

- in `_waiting` with its context: the task was submitted here, and found no free slot, or earlier tasks. It goes with a
  claim, here or elsewhere, or with a cancel.
- in `_postponed` with a timer: the task failed, and another try may succeed. It goes with the timer, or with a claim.
- in `_running` with its claim: from right after the claim to the stored end or release. A task that the end of another
  one has claimed is there too, until the slot is free (`_RunningTask.following`).
- in `_pending_writes`: the store did not take the end or the release. It goes with the stored write.

A run starts in four ways. A message has claimed its task for an offered slot (`offer`, `_settle`). A new task finds a
free slot, and its run claims it by its id (`_begin`). The end of a task has claimed the next queued task for its own
slot (`_offer_next`, `_begin_next`). The claim loop claims what is queued otherwise.

The claim loop sleeps until the next claim is due (`_claim_within`): at once after a hint of another process and at a
heartbeat; when a slot is free again and tasks are known to be queued, or a moment later if few slots are free; a second
after a claim that left tasks although a slot was free; after an outage of the store, when other workers have had time
to renew their leases.

What may come between:

- A message takes a slot during a claim. Then the claim hands back a task for which no slot is left.
- A hint comes during a claim, perhaps too late for it. Another claim follows.
- Another process claims a task that waits here. Only the claim loop looks for such tasks (`_forget_waiting`): during a
  claim, tasks that come here are not queued either, and their contexts are still needed.
- The lease of a run is lost, and the same task is claimed here again, before that run has stopped.

What must hold: one claim at a time asks for the free slots. No new task overtakes one that waits, except for tasks of
other agents, which end the waits of runs (`_has_to_wait`). The leases of tasks in `_running` and `_pending_writes` are
renewed. A claimed task is run or handed back, also at a stop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Coroutine, Set
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import urandom
from typing import Any

from ... import chains
from ...base_exceptions import ends_task
from ...bounded_wait import bounded_wait
from ...clock import STOP_TIME
from ...settings.app_settings import Settings
from ..conversion.failures import SHUTDOWN
from ..quotas import Metering
from ..service.slot_offers import Offer
from ..store.ports import Backend, Claim, Slot
from .attempts import Attempts
from .ends_without_result import EndsWithoutResult
from .heartbeat import Heartbeat
from .job import CancelToken, Job
from .pause_hook import PauseHook, TaskLink
from .slots import RunSlot, Slots
from .store_outages import Outages, PendingWrites, StoreRetries
from .sweeper import Sweeper

logger = logging.getLogger('pydantic_ai_a2a')

_SWEEP_EVERY = 100
"""Finished tasks between two sweeps, besides the sweeps of the heartbeat."""
_FORGET_AT_ONCE = 1000
"""Waiting tasks to check in a heartbeat, in the order of submission."""
_RETRY_CLAIM = 1.0
"""Seconds until the next look at queued tasks that could not be claimed although a slot was free."""
_GATHER = 0.1
"""The most seconds for which few free slots wait for others, while tasks are queued: one claim fills them all."""


@dataclass(slots=True, eq=False)
class _RunningTask:
    """A task that the worker runs."""

    claim: Claim
    token: CancelToken
    """One token for all runs of the task: a cancel between two runs stops the second run."""
    following: _RunningTask | None = None
    """The next queued task, which the end of this one has claimed, until the slot is free."""


class Worker:
    """Runs the tasks of one backend in one event loop."""

    queue_paused = False
    """True if an operator has paused the queue, at the last look."""
    _not_queued: Set[str] = frozenset()
    """The tasks of `_waiting` that were no longer queued, at the last look."""

    def __init__(
        self,
        backend: Backend,
        job: Job,
        settings: Settings,
        *,
        metering: Metering | None = None,
        link: TaskLink = lambda task_id, tenant: None,
    ) -> None:
        self.holder = urandom(8).hex()
        """Names this worker on the tasks of its leases."""
        self._backend = backend
        self._job = job
        self._settings = settings.workers
        self._lease = int(settings.workers.lease * 1000)
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, _RunningTask] = {}
        self._waiting: dict[str, Context] = {}
        """Tasks submitted here without a free slot, with the contexts to run them in."""
        self._postponed: dict[str, asyncio.TimerHandle] = {}
        """Tasks that are tried again here after a pause."""
        self._more_queued = False
        """True while the queue has tasks that do not wait here: from other processes, or from before this worker."""
        self._pending_writes = PendingWrites()
        self._retries = StoreRetries()
        self._outages = Outages(settings.workers.lease)
        self._ends = EndsWithoutResult(
            backend, self._pending_writes, job.hooks, metering=metering, beside=self._beside, run_again=self._run_again
        )
        self._sweeper = Sweeper(backend, settings.retention, self._ends.on_expired)
        self._attempts = Attempts(
            backend,
            job,
            settings,
            ends=self._ends,
            retries=self._retries,
            metering=metering,
            pause_hook=None
            if job.hooks.on_waiting is None
            else PauseHook(job.hooks, backend, self._lease, link=link, beside=self._beside),
        )
        self._slots = Slots(settings.workers.running, self._on_free)
        self._slot = Slot(self.holder, self._lease, settings.limits.quotas and settings.limits.quotas.running)
        self._offer = Offer(self._slot, self._settle)
        self._runs: dict[RunSlot, asyncio.Task[None]] = {}
        self._side_work: set[asyncio.Task[None]] = set()
        """Hooks and releases, which need no slot."""
        self._draining = self._held = False
        self._finished = 0
        self._claiming: asyncio.Task[None] | None = None
        self._claim_due = math.inf
        """When the next claim is due, by the clock of the event loop; infinite if nothing is known to be queued."""
        self._claim_sooner = asyncio.Event()
        """Set when the next claim is due sooner than before."""
        self._finds_lost = True
        """True if the next claim also looks for lost tasks: at the start, and at each heartbeat."""
        self._checks_waiting = False
        """True after a heartbeat, until the claim loop has asked for the tasks that wait here."""
        self._beating: asyncio.Task[None] | None = None
        self._heartbeat: Heartbeat | None = None
        self._stop_listening: Callable[[], None] | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen for work, and start the waiting tasks."""
        await self.ask_store()
        self._stop_listening = self._backend.listen(self._on_ready, self._on_cancel)
        self._beating = self._loop.create_task(self._beat(), context=Context())
        if self._backend.durable:  # other processes may take over tasks
            self._heartbeat = Heartbeat(self._renew, self._settings.lease)
        await self._claim_queued()
        self._claiming = self._loop.create_task(self._claim_when_due(), context=Context())

    async def ask_store(self) -> None:
        """Ask the store for the queue: the first answer of a database sets its wall clock, for `Backend.now`."""
        await self._backend.queued()

    def running(self, task_id: str) -> bool:
        """Return True if this worker will record the end of the task: a running task, or a waiting one in memory."""
        waits = task_id in self._waiting or task_id in self._postponed
        return task_id in self._running or (waits and not self._backend.durable)

    @property
    def waiting(self) -> int:
        """Number of tasks that wait here for a free slot, from any thread."""
        return 0 if self._draining else len(self._waiting)

    def begin_drain(self) -> None:
        """Start no further task."""
        self._draining = True

    def hold_runs(self, held: bool) -> None:
        """Start no run while held: tasks wait in the queue."""
        self._held = held
        if not held:
            self._more_queued = True
            self._claim_within(0)

    async def drain(self, grace: float) -> None:
        """Let running tasks finish within `grace` seconds. Then hand the rest back, or fail the rest in memory."""
        self.begin_drain()
        await self._release_waiting()
        until = self._loop.time() + grace
        # Once more for the hook of a run that has ended meanwhile.
        while (active := self._active()) and (left := until - self._loop.time()) > 0:
            await asyncio.wait(active, timeout=left)
        await self._stop_runs()
        await self._release_waiting()
        await self._finish_hooks()

    async def _release_waiting(self) -> None:
        """Release the clients that wait for tasks of other workers."""
        if self._backend.durable:
            self._backend.events.release(self.running)
        else:
            await self._fail_the_rest()

    async def close(self) -> None:
        """Stop at once. Running tasks are handed back, and go on when a worker starts again."""
        self.begin_drain()
        await self._stop_runs()
        await self._finish_hooks()

    async def _finish_hooks(self) -> None:
        """Wait for the last hooks."""
        if active := self._active():
            await asyncio.wait(active, timeout=STOP_TIME)

    def _active(self) -> list[asyncio.Task[None]]:
        return [task for task in (*self._runs.values(), *self._side_work) if not task.done()]

    async def _stop_runs(self) -> None:
        self._end_listening()
        self._retries.end()
        for timer in self._postponed.values():
            timer.cancel()
        background = (self._beating, self._claiming, self._sweeper.sweeping)
        stopping = [task for task in (*background, *self._active()) if task is not None]
        for task in stopping:
            task.cancel()
        try:
            if stopping:
                await asyncio.wait(stopping, timeout=STOP_TIME)
        finally:
            heartbeat, self._heartbeat = self._heartbeat, None
            if heartbeat is not None:
                heartbeat.stop()
        self._runs.clear()  # tasks that have not stopped have had their time
        self._side_work.clear()
        while self._running:  # claims of such tasks, and of tasks before their start
            self._ends.owe_release(self._running.popitem()[1].claim)
        await self._pending_writes.settle_at_last(STOP_TIME)

    async def _fail_the_rest(self) -> None:
        """Fail every queued or handed-back task: the store ends with the process."""
        await self._pending_writes.settle()
        claim = partial(self._backend.queue.claim, Slot(self.holder, 60_000), at=self._backend.now(), limit=25)
        # By their ids, because their pauses are not over.
        postponed = [claimed for task_id in self._postponed for claimed in await claim(task_id=task_id)]
        while claims := postponed or await claim():
            for claimed in claims:
                failing = self._ends.failing(claimed, self._attempts.recorder(claimed), SHUTDOWN)
                self._pending_writes.add(claimed.header.id, failing)
            postponed.clear()
            await self._pending_writes.settle()

    def _end_listening(self) -> None:
        """Stop listening; also called if the loop was closed before the worker."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
            self._backend.set_idle(self.holder, idle=False)

    # --- what the backend tells -------------------------------------------------------------------------------------

    def _on_ready(self, task_id: str | None) -> None:
        if task_id is None:
            self._more_queued = True
            self._claim_within(0)
            return
        context = copy_context()
        if asyncio._get_running_loop() is self._loop:
            self._begin(task_id, context)
            return
        try:
            self._loop.call_soon_threadsafe(self._begin, task_id, context)
        except RuntimeError:  # the loop is closed
            self._end_listening()

    def _on_cancel(self, task_id: str) -> None:
        if self._loop.is_closed():
            self._end_listening()
            return
        self._waiting.pop(task_id, None)
        if (running := self._running.get(task_id)) is not None:
            running.token.cancel()

    def offer(self) -> Offer | None:
        """Reserve a slot for a message that is about to be stored; None if the task has to wait."""
        if self._stop_listening is None or self._has_to_wait():
            return None
        self._slots.free -= 1
        return self._offer

    def _settle(self, claim: Claim | None) -> None:
        """Run the claimed task in a slot that was offered, or return the slot."""
        if claim is None or self._draining or self._held:
            self._slots.give_back()
            if claim is not None:
                self._beside(self._hand_back(self._hold(claim)))
        else:
            self._slots.free += 1  # the run takes it at once
            self._spawn(claim.header.id, copy_context(), self._hold(claim))

    def _has_to_wait(self) -> bool:
        """True if a new task has to wait: for earlier tasks, for a slot, for the agent, or for another worker."""
        slots = self._slots
        if self._draining or self._held or slots.free <= 0:
            return True
        if slots.lent >= slots.most_lent:
            return not chains.depth.get()
        return bool(self._waiting) or self._more_queued

    def _begin(self, task_id: str, context: Context) -> None:
        if context.run(self._has_to_wait):
            self._waiting[task_id] = context  # behind earlier tasks
            if not self._draining and self._slots.free > 0:
                self._claim_within(self._gathering())
        else:
            self._spawn(task_id, context)

    def _spawn(self, task_id: str, context: Context, running: _RunningTask | None = None) -> None:
        slot = RunSlot(self._slots)
        # Without a callback: anyio formats a task's callbacks for each cancelled scope, and a run has several scopes.
        self._runs[slot] = self._loop.create_task(self._run(task_id, context, slot, running), context=context)

    # --- claims of queued tasks -------------------------------------------------------------------------------------

    def _on_free(self) -> None:
        if self._waiting or self._more_queued:
            self._claim_within(self._gathering())

    def _gathering(self) -> float:
        """Return the seconds for which a claim waits for more free slots: none if memory answers each claim at once."""
        return _GATHER if self._slots.few and self._backend.durable else 0

    def _claim_within(self, seconds: float) -> None:
        """Let the claim loop claim queued tasks in some seconds at the latest."""
        due = self._loop.time() + seconds
        if due < self._claim_due:
            self._claim_due = due
            self._claim_sooner.set()

    async def _claim_when_due(self) -> None:
        """Claim queued tasks, one claim at a time: two would claim for the same free slots."""
        while True:
            while (seconds := self._claim_due - self._loop.time()) > 0:
                self._claim_sooner.clear()
                await bounded_wait(None if math.isinf(seconds) else seconds, self._claim_sooner.wait())
            # Before the claim: a hint that comes during the claim may tell of a task that it misses.
            self._claim_due = math.inf
            try:
                await self._claim_queued()
                if self._checks_waiting:
                    self._checks_waiting = False
                    await self._forget_waiting()
            except BaseException as error:  # a user's store may raise anything, and may work in a moment
                if ends_task(error, self._claiming):
                    raise
                logger.exception('Queued tasks could not be claimed; the worker tries again at the next heartbeat.')
            if gathering := self._gathering():
                self._claim_due = max(self._claim_due, self._loop.time() + gathering)

    async def _claim_queued(self) -> None:
        """Claim as many queued tasks as there are free slots, and run them."""
        if self._draining or self._held:
            return
        slots = self._slots
        while slots.lent >= slots.most_lent and slots.free > 0:
            # The runs that wait for other agents may wait for one of these tasks.
            task_id = next((task_id for task_id, context in self._waiting.items() if context.get(chains.depth)), None)
            if task_id is None:
                return
            self._spawn(task_id, self._waiting.pop(task_id))
        claim_queued = partial(self._backend.queue.claim, self._slot, at=self._backend.now())
        if self._backend.durable and (delay := await self._outages.claim_delay(partial(claim_queued, limit=0))):
            self._claim_within(delay)
            return
        free = slots.claimable
        if free <= 0:
            self._backend.set_idle(self.holder, idle=not self._more_queued)
            return
        lost, self._finds_lost = self._finds_lost, False
        claims = await claim_queued(limit=free, lost=lost)
        # A task that was never claimed before comes after all lost ones.
        self._finds_lost |= lost and len(claims) == free and all(claim.fence > 1 for claim in claims)
        releases: list[Coroutine[Any, Any, None]] = []
        for claim in claims:
            task_id = claim.header.id
            context = self._waiting.pop(task_id, None) or Context()
            if slots.free > 0:
                self._spawn(task_id, context, self._hold(claim))
            else:  # a new task took the slot during the claim
                self._waiting[task_id] = context
                releases.append(self._ends.release(claim, self._attempts.recorder(claim)))
        await asyncio.gather(*releases, return_exceptions=True)  # failed releases are pending writes
        if not claims:
            await self._look_for_pause()
        await self._see_rest(all_taken=len(claims) < free)

    async def _see_rest(self, *, all_taken: bool) -> None:
        """Note if the queue has further tasks: then the worker claims again, without a hint."""
        if all_taken:
            self._backend.set_idle(self.holder, idle=True)
        self._more_queued = not all_taken or (not self._waiting and await self._backend.queued())
        if self._backend.durable and self._slots.free > 0 and (self._waiting or self._more_queued):
            # No hint follows for locked tasks that could not be claimed.
            self._claim_within(_RETRY_CLAIM)

    async def _look_for_pause(self) -> None:
        paused = await self._backend.paused()
        if paused and not self.queue_paused:
            logger.warning('The queue is paused: tasks wait until the command `queue resume`.')
        elif self.queue_paused and not paused:
            logger.warning('The queue is no longer paused.')
        self.queue_paused = paused

    async def _beat(self) -> None:
        """Take up lost tasks and hints of other processes, and sweep; renew the leases without a heartbeat thread."""
        while True:
            await asyncio.sleep(self._settings.lease / 3)
            try:
                if self._heartbeat is None:
                    for cancel in await self._renew():
                        cancel()
                await self._pending_writes.settle()
                if (pause_hook := self._attempts.pause_hook) is not None:
                    await pause_hook.beat()
                self._finds_lost = self._checks_waiting = True
                self._claim_within(0)
                await self._look_for_pause()
            except BaseException as error:  # a user's store may raise anything, and may work at the next beat
                if ends_task(error, self._beating):
                    raise
                logger.exception('The heartbeat of worker %s failed.', self.holder)
            self._sweeper.sweep_soon()

    async def _renew(self) -> list[Callable[[], None]]:
        """Renew the leases, from any thread. Return the `cancel` of each run to stop."""
        held = self._running.copy()  # atomic for other threads
        tasks = list(dict.fromkeys((*held, *self._pending_writes.tasks())))
        if not tasks:
            return []
        marks = await self._backend.queue.renew(self.holder, tasks, lease=self._lease)
        # Only runs of the copy: a task may have ended meanwhile and been claimed again.
        return [held[task_id].token.cancel for task_id in (*marks.lost, *marks.cancel) if task_id in held]

    async def _forget_waiting(self) -> None:
        """Forget waiting tasks of this worker after other processes have claimed them."""
        task_ids = list(islice(self._waiting, _FORGET_AT_ONCE)) if self._backend.durable else []
        not_queued = set(task_ids)
        if task_ids:
            not_queued.difference_update(await self._backend.reader.queued_among(task_ids))
        # Only at the second look: an end that had no answer at the first may have claimed the task for this worker.
        for task_id in not_queued & self._not_queued:
            self._waiting.pop(task_id, None)
        self._not_queued = not_queued

    # --- one task ---------------------------------------------------------------------------------------------------

    def _hold(self, claim: Claim) -> _RunningTask:
        running = self._running[claim.header.id] = _RunningTask(claim, self._job.token())
        if 1 < claim.attempt <= (most := self._settings.attempts):
            text = 'Task %s goes on in this process, in attempt %d%s: an earlier process was lost.'
            logger.warning(text, claim.header.id, claim.attempt, '' if most == sys.maxsize else f' of {most}')
        return running

    async def _run(self, task_id: str, context: Context, slot: RunSlot, running: _RunningTask | None) -> None:
        """Run a task until it stops, after claiming it unless `running` holds the claim."""
        chains.waiting.set(slot)
        try:
            running = running or await self._claim(task_id, context)
            if running is None:
                return
            try:
                claim: Claim | None = running.claim
                while claim is not None:
                    running.claim = claim
                    if self._held:
                        await self._ends.release(claim, self._attempts.recorder(claim))
                        break
                    offers = partial(self._offer_next, running, slot)
                    claim = await self._attempts.run(claim, running.token, offers)
            finally:
                if self._running.get(task_id) is running:  # else the lost task was claimed again during the stop
                    del self._running[task_id]
            self._finished += 1
            if self._finished % _SWEEP_EVERY == 0 and not self._draining:
                self._sweeper.sweep_soon()
        except BaseException as error:  # a user's store may raise anything
            run = self._runs.get(slot)  # None once the worker has stopped
            if run is None or ends_task(error, run):
                raise
            logger.exception('A task could not be stored; the worker tries again at the next heartbeat.')
        finally:
            self._runs.pop(slot, None)
            if running is not None and running.following is not None:
                self._begin_next(running.following, slot)
            slot.close()

    @property
    def _takes_next(self) -> bool:
        """True if the end of a task may claim the next one: no hook delays the next run, and no owner has a limit."""
        no_limit, no_hook = self._slot.owner_limit is None, self._job.hooks.on_complete is None
        return self._backend.queue.takes_next and no_limit and no_hook

    def _offer_next(self, running: _RunningTask, slot: RunSlot) -> Offer | None:
        """Offer the slot of a task that completes for the next queued task, which the same transaction may claim.

        Lost tasks go first: only the claim loop looks for them.
        """
        queued = (self._waiting or self._more_queued) and self._takes_next
        if not queued or self._draining or self._held or self._finds_lost or not slot.passes_on:
            return None
        return Offer(self._slot, partial(self._hold_next, running))

    def _hold_next(self, ended: _RunningTask, claim: Claim | None) -> None:
        assert claim is not None, 'an end without a claim leaves the slot to the claim loop'
        ended.following = self._hold(claim)

    def _begin_next(self, running: _RunningTask, slot: RunSlot) -> None:
        """Run a task in the slot of the task whose end has claimed it, or hand the task back."""
        task_id = running.claim.header.id
        context = self._waiting.pop(task_id, None) or Context()
        if self._draining or self._held or not slot.passes_on:
            self._waiting[task_id] = context
            self._beside(self._hand_back(running))
        else:
            self._spawn(task_id, context, running)

    async def _hand_back(self, running: _RunningTask) -> None:
        """Release a task that has not begun. A stop before the first step releases what is in `_running`."""
        self._running.pop(running.claim.header.id, None)
        await self._ends.release(running.claim, self._attempts.recorder(running.claim))

    async def _claim(self, task_id: str, context: Context) -> _RunningTask | None:
        claims = await self._backend.queue.claim(self._slot, at=self._backend.now(), limit=1, task_id=task_id)
        if claims:
            return self._hold(claims[0])
        if await self._ends.is_queued(task_id):  # it waits for a task of its context, or for one of its owner
            self._waiting[task_id] = context
        return None

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._side_work.add(task)
        task.add_done_callback(self._side_work.discard)

    def _run_again(self, task_id: str, pause: float) -> None:
        context = copy_context()
        if pause:
            if (timer := self._postponed.get(task_id)) is not None:
                timer.cancel()  # the task was claimed before the timer, and has failed again
            self._postponed[task_id] = self._loop.call_later(pause, self._try_again, task_id, context)
        else:
            self._waiting[task_id] = context

    def _try_again(self, task_id: str, context: Context) -> None:
        del self._postponed[task_id]
        if task_id not in self._running:  # else the task was claimed just before, for a free slot
            self._begin(task_id, context)
