"""The ends of runs without a result: cancelled, failed, tried again, handed back, lost.

Each write but the cancel is tried now, and again once the store is back (`PendingWrites`). The lease is renewed until
then. Meanwhile, another process may have ended the task, or the first try may have been stored without an answer. So a
write that finds its lease lost hands back what this worker may still hold, and charges the usage of the run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_ai.exceptions import RunCancelled

from ...errors import LeaseLost
from ...telemetry.metrics import metrics
from ...types.callers import Caller
from ...types.stored_tasks import TaskHeader
from ..agent.hooks import Hooks, RunFailure
from ..agent.turn_messages import stored_steps
from ..conversion.failures import CHANGED_AGENT, CHANGED_AGENT_HINT, Failure
from ..quotas import Metering
from ..store.ports import Backend, Claim
from ..store.ports.failed_tries import Tried
from .recorder import Recorder
from .run_ids import run_id
from .store_outages import PendingWrites, StoreWrite

logger = logging.getLogger('pydantic_ai_a2a')


class EndsWithoutResult:
    """Records the ends without a result, for the runs of one worker.

    Args:
        backend: Stores the ends.
        pending_writes: Keeps writes for retry while the store is unavailable.
        hooks: Called after the end is stored.
        metering: Charges for usage outside a recorder's last write.
        beside: Starts a coroutine beside the runs of the worker.
        run_again: Queues a task here until a slot is free, after some seconds.
    """

    def __init__(
        self,
        backend: Backend,
        pending_writes: PendingWrites,
        hooks: Hooks,
        *,
        metering: Metering | None,
        beside: Callable[[Coroutine[Any, Any, None]], None],
        run_again: Callable[[str, float], None],
    ) -> None:
        self._backend = backend
        self._pending_writes = pending_writes
        self._hooks = hooks
        self._metering = metering
        self._beside = beside
        self._run_again = run_again
        self.on_expired = None if hooks.on_failure is None and metrics.instruments is None else self._expired

    async def canceled(self, claim: Claim, recorder: Recorder, canceled: RunCancelled) -> None:
        """Record a cancelled run.

        Raises:
            LeaseLost: The task was ended or taken over meanwhile.
        """
        hook = self._hooks.on_cancel is not None
        before = () if claim.checkpoint is None else stored_steps(claim.checkpoint)
        try:
            await recorder.cancel([*before, *canceled.new_messages()], canceled.usage)
        except LeaseLost:
            if hook and await self._is_canceled(claim.header.id):
                self._beside(self._hooks.canceled(claim.header.id, canceled))  # the cancel did not wait for the run
            raise
        if hook:
            self._beside(self._hooks.canceled(claim.header.id, canceled))

    async def failed(
        self, claim: Claim, recorder: Recorder, failure: Failure, error: BaseException | None = None
    ) -> None:
        """Record a failed run, now or after the store is back."""
        # The traceback of a changed agent shows only the engine.
        changed = failure == CHANGED_AGENT
        text = 'Task %s failed (%s, correlation id %s).' + (f' {CHANGED_AGENT_HINT}' if changed else '')
        logger.error(text, claim.header.id, failure.kind, run_id(claim), exc_info=None if changed else error)
        await self._pending_writes.give(claim.header.id, self.failing(claim, recorder, failure, error))

    def failing(
        self, claim: Claim, recorder: Recorder, failure: Failure, error: BaseException | None = None
    ) -> StoreWrite:
        """Return the write of a failure. The write may be repeated."""

        async def record() -> None:
            try:
                following = await recorder.fail(failure, run_id(claim))
            except LeaseLost:
                logger.warning('Task %s was taken over before its failure was recorded.', claim.header.id)
                # The failure may also be stored although the store gave no answer. Then this worker holds the next run
                # of the task.
                await self._hand_back(claim, recorder)
                return
            if self._hooks.on_failure is not None:
                self._beside(self._hooks.failed(run_failure(claim.header, failure.kind, run_id(claim), error)))
            if following is not None:  # the next run waits like any task: there may be no free slot
                self._run_again(claim.header.id, 0.0)
                await self._backend.queue.release(following)

        return record

    async def postpone(
        self, claim: Claim, recorder: Recorder, error: BaseException, tried: Tried, pause: float
    ) -> None:
        """Release a task for another try after a pause, now or after the store is back."""
        text = 'Task %s is tried again in %.3g seconds (retry %d, %s, correlation id %s).'
        logger.warning(text, claim.header.id, pause, tried.number, type(error).__qualname__, run_id(claim))
        await recorder.drop_text()
        charges = () if self._metering is None else self._metering.charges(claim.header.owner, tried.usage)

        async def record() -> None:
            await self._backend.queue.release(claim, tried, pause=round(1000 * pause), charges=charges)
            await self._settle(claim, recorder)  # another process may have ended the task
            self._run_again(claim.header.id, pause)

        await self._pending_writes.give(claim.header.id, record)

    async def release(self, claim: Claim, recorder: Recorder) -> None:
        """Store the end of a run, if any, and hand its task back, now or after the store is back."""
        await self._pending_writes.give(claim.header.id, partial(self._hand_back, claim, recorder))

    def owe_release(self, claim: Claim) -> None:
        """Hand a task back later."""
        self._pending_writes.add(claim.header.id, partial(self._backend.queue.release, claim))

    async def _hand_back(self, claim: Claim, recorder: Recorder) -> None:
        if recorder.unstored is not None:
            recorder.unstored = replace(recorder.unstored, slot=None)  # no other task begins here
            with suppress(LeaseLost):
                await recorder.store_end()
        await self._backend.queue.release(claim)
        await self._settle(claim, recorder)  # another process may have ended the task

    async def lost(self, claim: Claim, recorder: Recorder) -> None:
        """Charge the usage of a run that has lost its lease, and hand back what it may hold: see `release`."""
        if metrics.instruments is not None:
            metrics.instruments.lose_lease()
        await self.release(claim, recorder)

    async def _settle(self, claim: Claim, recorder: Recorder) -> None:
        usage = recorder.state.usage
        if self._metering is not None and usage is not None:
            await self._metering.settle(claim.header.id, claim.run, claim.header.owner, usage)

    def _expired(self, header: TaskHeader, kind: str, correlation_id: str) -> None:
        """Count a task without an answer of its client in time, and call the hook."""
        if metrics.instruments is not None:
            metrics.instruments.enter('failed', kind)
        if self._hooks.on_failure is not None:
            self._beside(self._hooks.failed(run_failure(header, kind, correlation_id)))

    async def is_queued(self, task_id: str) -> bool:
        """True if the task is there and waits for a worker."""
        header = await self._header(task_id)
        return header is not None and header.queued

    async def _is_canceled(self, task_id: str) -> bool:
        header = await self._header(task_id)
        return header is not None and header.state == 'canceled'

    async def _header(self, task_id: str) -> TaskHeader | None:
        task = await self._backend.reader.load(task_id, None, history_length=0, artifacts=False)
        return None if task is None else task.header


def run_failure(header: TaskHeader, kind: str, correlation_id: str, error: BaseException | None = None) -> RunFailure:
    """Return the argument of `on_failure` for a task."""
    return RunFailure(
        task_id=header.id,
        context_id=header.context_id,
        caller=Caller.of(header.owner),
        kind=kind,
        correlation_id=correlation_id,
        error=error,
    )
