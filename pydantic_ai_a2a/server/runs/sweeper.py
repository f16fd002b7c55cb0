"""Retention in the background: sweeps beside the runs and the heartbeat of a worker."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context

from ...base_exceptions import ends_task
from ...settings.retention import Retention
from ...telemetry.metrics import metrics
from ..store.ports import Backend, OnExpired, Swept

logger = logging.getLogger('pydantic_ai_a2a')

_BEHIND = 20
"""Full batches in a row: from here on, retention is behind."""
_QUIET = 24 * 3600.0
"""Seconds until the same warning is logged again."""


class Sweeper:
    """Deletes the due data of one backend, in the event loop of its worker.

    Args:
        backend: The backend.
        retention: How long data is kept.
        on_expired: Called for each task that has waited too long.
    """

    def __init__(self, backend: Backend, retention: Retention, on_expired: OnExpired | None) -> None:
        self._backend = backend
        self._retention = retention
        self._on_expired = on_expired
        self._loop = asyncio.get_running_loop()
        self._quiet_until: dict[tuple[str, object], float] = {}
        self.sweeping: asyncio.Task[None] | None = None
        """The last turn. Cancel it to stop."""

    def sweep_soon(self) -> None:
        """Begin a turn, unless one is under way."""
        if self.sweeping is None or self.sweeping.done():
            self.sweeping = self._loop.create_task(self._turn(), context=Context())

    async def _turn(self) -> None:
        """Delete a batch, and further ones while batches are full. What is left after that waits for the next turn."""
        full = 0
        try:
            while True:
                sweep = self._backend.housekeeping.sweep
                swept = await sweep(self._retention, at=self._backend.now(), on_expired=self._on_expired)
                full += swept.full
                self._report(swept, behind=swept.full and full % _BEHIND == 0)
                if not (swept and swept.full):
                    return
                await asyncio.sleep(0)
        except BaseException as error:  # expired tasks are kept a little longer
            if ends_task(error, self.sweeping):
                raise
            logger.exception('A sweep of expired data failed; the worker tries again at the next heartbeat.')

    def _report(self, swept: Swept, *, behind: bool) -> None:
        if metrics.instruments is not None:
            metrics.instruments.sweep(swept.over, behind=behind)
        for kind in swept.over:
            self._warn(
                'Some %s are deleted before their time because of Retention.max_tasks: raise it to keep more.', kind
            )
        if behind:
            self._warn('Retention is behind: %d batches in a row were full. Sweeps go on at once.', _BEHIND)

    def _warn(self, text: str, argument: object) -> None:
        """Log a warning, but the same one at most once a day."""
        now = self._loop.time()
        if now >= self._quiet_until.get((text, argument), 0.0):
            self._quiet_until[text, argument] = now + _QUIET
            logger.warning(text, argument)
