"""The availability of a store for writes, and the probe that measures the availability."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from os import urandom
from typing import TypeVar

from ...errors import BackendUnusable, StoreUnavailable
from .sql.transaction import Transaction

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')

_SIZE = 32_768
"""Size of a probe's write: more bytes than the free space in the pages of a full disk."""
_TRUSTED = 10.0
"""Seconds after a successful write without a new probe, if no write has failed since."""
_PROBE_INTERVAL = 1.0
"""The least seconds between two probes."""


def probe(agent: str) -> Transaction[None]:
    """Write a row like an event of a task, and delete the row."""
    key = agent, f'probe {urandom(8).hex()}'
    yield [
        ('INSERT INTO event (agent, task_id, n, payload) VALUES (?, ?, 0, ?)', [(*key, urandom(_SIZE))]),
        ('DELETE FROM event WHERE agent = ? AND task_id = ?', [key]),
    ]


class Availability:
    """The availability of one store to one process.

    Args:
        store: Name of the store in the log.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._worked = False
        """True after the first answer of the store: later errors count as temporary."""
        self.refused = False
        """True after a failure, until a write succeeds."""
        self._trusted_until = 0.0
        self._next_probe = 0.0

    async def watch(self, work: Awaitable[T]) -> T:
        """The result of a read or a write.

        Raises:
            BackendUnusable: The store has not worked yet, and cannot be used as it is.
            StoreUnavailable: The store does not work now.
        """
        try:
            result = await work
        except BackendUnusable as error:
            if not self._worked:
                raise
            self._refuse(str(error))
            raise StoreUnavailable(str(error)) from error
        except StoreUnavailable as error:
            if not error.busy:
                self._refuse(error.detail)
            raise
        self._worked = True
        return result

    def _refuse(self, reason: str) -> None:
        if not self.refused:
            logger.error('The %s is unavailable: %s', self._store, reason)
        self.refused = True

    def written(self) -> None:
        """Record a successful write."""
        if self.refused:
            logger.warning('The %s is available again.', self._store)
        self.refused = False

    async def check(self, write: Callable[[], Awaitable[object]]) -> None:
        """Probe the store with a write, unless a recent write has succeeded.

        During a probe, other callers get the result of the previous probe.

        Raises:
            StoreUnavailable: The store takes no writes.
        """
        now = time.monotonic()
        if not self.refused and now < self._trusted_until:
            return
        if now < self._next_probe:
            raise StoreUnavailable
        self._trusted_until = self._next_probe = now + _TRUSTED  # other callers do not wait for a probe that hangs
        try:
            await write()
        except BaseException as error:  # also a timeout of the caller
            self._trusted_until = 0.0
            if isinstance(error, StoreUnavailable):
                self._next_probe = time.monotonic() + _PROBE_INTERVAL
            raise
        self.written()
        self._trusted_until = time.monotonic() + _TRUSTED
        self._next_probe = time.monotonic() + _PROBE_INTERVAL
