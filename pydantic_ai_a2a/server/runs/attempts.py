"""One attempt at a claimed task: the run of the agent, from the claim to the recorded end.

A claim of a task whose holder is lost begins one more attempt, up to `Workers.attempts`. Within an attempt, a failed
request to the model begins one more try, up to `Workers.retries` since the last stored step. Between two tries the task
is released with `Claim.tried`, and any worker may claim it after the pause.

| end of the run | written | then |
|---|---|---|
| a result | the answer, or the question to the client (`Job.record`) | the next message of the task may follow |
| cancelled by its token | the cancel, with the messages so far | |
| lost to another worker, or ended by a cancel from outside | only the usage, as a charge | |
| the worker stops, or the store stays away | the release, after an end that was already made | any worker goes on |
| the process ends | nothing | the lease expires, and another worker goes on |
| a transient error of the model | the release with the tries | another try after the pause |
| any other exception | the failure | the next message of the task waits in the queue |
"""

from __future__ import annotations

import asyncio
import logging
import math
from time import perf_counter

from pydantic_ai.exceptions import RunCancelled

from ...backoff import backoff_after, spread
from ...errors import StoredDamaged, StoreFailed
from ...settings.app_settings import Settings
from ..conversion.failures import EXPIRED_ATTEMPTS, classify, retry_after
from ..quotas import Metering
from ..service.slot_offers import Offers
from ..store.ports import Backend, Claim
from ..store.ports.failed_tries import Tried
from .ends_without_result import EndsWithoutResult
from .exception_outcomes import Outcome, outcome_of
from .job import CancelToken, Job
from .observed_run import observed_run
from .pause_hook import PauseHook
from .recorder import Recorder
from .run_ids import run_id
from .run_state import RunState
from .store_outages import StoreRetries

logger = logging.getLogger('pydantic_ai_a2a')

_LONGEST_BACKOFF = 2**5
"""The longest pause before a try, in multiples of the first."""
_LONGEST_PAUSE = 600.0
"""Seconds. A provider that asks for a longer pause fails the task."""


class Attempts:
    """Runs claimed tasks.

    Args:
        backend: Stores the events and the ends.
        job: Runs the agent.
        settings: Most attempts at a task and tries of a run, and the stream of results.
        ends: Records the ends without a result.
        retries: Repeats writes while the store is unavailable.
        metering: Charges the usage of runs; None for no charges.
        pause_hook: Calls the hook for pauses; None without the hook.
    """

    def __init__(
        self,
        backend: Backend,
        job: Job,
        settings: Settings,
        *,
        ends: EndsWithoutResult,
        retries: StoreRetries,
        metering: Metering | None,
        pause_hook: PauseHook | None,
    ) -> None:
        self._backend = backend
        self._job = job
        self._workers = settings.workers
        self._results = settings.results
        self._ends = ends
        self._retries = retries
        self._metering = metering
        self.pause_hook = pause_hook

    async def run(self, claim: Claim, token: CancelToken, offers: Offers) -> Claim | None:
        """Run a claimed task once, and record the end. Return the claim of the task's next message, if any.

        `offers` offers the slot of the run, once the run is complete, for the next queued task.

        Raises:
            BaseException: The process exits, the worker stops, or the store is unavailable.
        """
        recorder, began = self.recorder(claim, offers), perf_counter()
        state = recorder.state
        if claim.attempt > self._workers.attempts:
            return await self._ends.failed(claim, recorder, EXPIRED_ATTEMPTS)
        own_task = asyncio.current_task()
        try:
            with observed_run(claim, state):
                try:
                    if claim.damage is not None:
                        raise StoreFailed from StoredDamaged(claim.damage)
                    run = await self._job.prepare(claim, recorder, token, run_id(claim))
                    result = await run
                except RunCancelled as error:  # within the span, for which a cancelled run has not failed
                    if outcome_of(error, own_task) is not Outcome.CANCELED:
                        raise
                    return await self._ends.canceled(claim, recorder, error)
                return await self._job.record(claim, recorder, result)
        except BaseException as error:  # including a PanicException of Rust code
            outcome = outcome_of(error, own_task)
            if outcome is Outcome.EXIT:
                raise
            if outcome is Outcome.LOST:
                logger.warning(
                    'Task %s was taken over or has ended; its late result is dropped.',
                    claim.header.id,
                )
                return await self._ends.lost(claim, recorder)
            if outcome in (Outcome.STOPPED, Outcome.UNAVAILABLE):
                await self._ends.release(claim, recorder)
                raise
            if error is state.transient and (another := self._next_try(claim, state, error, began)) is not None:
                return await self._ends.postpone(claim, recorder, error, *another)
            return await self._ends.failed(claim, recorder, classify(error), error)

    def _next_try(
        self, claim: Claim, state: RunState, error: BaseException, began: float
    ) -> tuple[Tried, float] | None:
        """Return the failed tries of a run, and the seconds until the next; None if no try is left, or no time."""
        assert state.usage is not None, 'the job sets it before the run'
        before = claim.tried or Tried(number=0, spent=0.0, usage=state.usage)
        number = 1 if state.has_stored_steps else before.number + 1
        first = self._workers.backoff
        pause = spread(max(backoff_after(number, first, _LONGEST_BACKOFF * first), retry_after(error)), 1, 1.5)
        spent = before.spent + perf_counter() - began + pause
        if number > self._workers.retries or pause > _LONGEST_PAUSE or spent >= (self._job.timeout or math.inf):
            return None
        return Tried(number=number, spent=spent, usage=state.usage), pause

    def recorder(self, claim: Claim, offers: Offers = lambda: None) -> Recorder:
        """Return a recorder for a claim."""
        charges = None if self._metering is None else self._metering.charges
        return Recorder(
            claim,
            self._backend.queue,
            self._backend.now,
            flush_delay=self._backend.flush_delay,
            charges=charges,
            retries=self._retries,
            results=self._results,
            pause_hook=self.pause_hook,
            offers=offers,
        )
