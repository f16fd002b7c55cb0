"""One attempt at a claimed task: the run of the agent, from the claim to the recorded end."""

from __future__ import annotations

import asyncio
import logging

from pydantic_ai.exceptions import RunCancelled

from ..conversion.stream import EXPIRED_ATTEMPTS, classify
from ..quotas import Metering
from ..settings import Settings
from ..store.ports import Backend, Claim
from .ends import RunEnds, run_id
from .job import Job, Token
from .observed import observed_run
from .outcomes import Outcome, outcome_of
from .recorder import Recorder
from .retries import Retries

__all__ = ('Attempts',)

logger = logging.getLogger('pydantic_ai_a2a')


class Attempts:
    """Runs claimed tasks.

    Args:
        backend: Stores the events and the ends.
        job: Runs the agent.
        settings: Most attempts at a task, and the stream of results.
        ends: Records the ends without a result.
        retries: Repeats writes while the store is unavailable.
        metering: Charges the usage of runs; None for no charges.
    """

    def __init__(
        self,
        backend: Backend,
        job: Job,
        settings: Settings,
        *,
        ends: RunEnds,
        retries: Retries,
        metering: Metering | None,
    ) -> None:
        self._backend = backend
        self._job = job
        self._limit = settings.workers.attempts
        self._results = settings.results
        self._ends = ends
        self._retries = retries
        self._metering = metering

    async def run(self, claim: Claim, token: Token) -> Claim | None:
        """Run a claimed task once, and record the end. Return the claim of the task's next message, if any.

        Raises:
            BaseException: The process exits, the worker stops, or the store is unavailable.
        """
        recorder = self.recorder(claim)
        if claim.attempt > self._limit:
            return await self._ends.failed(claim, recorder, EXPIRED_ATTEMPTS)
        own_task = asyncio.current_task()
        try:
            with observed_run(claim, recorder):
                try:
                    result = await (await self._job.begin(claim, recorder, token, run_id(claim)))
                except RunCancelled as error:
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
                return await self._ends.charge(claim, recorder)
            if outcome in (Outcome.STOPPED, Outcome.UNAVAILABLE):
                await self._ends.release(claim, recorder)
                raise
            return await self._ends.failed(claim, recorder, classify(error), error)

    def recorder(self, claim: Claim) -> Recorder:
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
        )
