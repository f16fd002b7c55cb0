"""All ports over one SQLite file, which several processes may share. Nothing is opened before the first use."""

from __future__ import annotations

import asyncio

from ...clock import SYSTEM, Clock
from ...ports import OnExpired
from ...settings import Retention
from ..shared import SharedBackend
from ..sql.database import WriteKind
from ..sql.ports import SqlHousekeeping
from ..sql.transaction import Transaction
from .connect import NOTE_CLOCK, SqliteFile, vacuum
from .process import SqliteProcess
from .steps import check_version

__all__ = ('PAGES', 'SqliteFile', 'SqliteFileBackend')

PAGES = 100
"""Free pages that one sweep gives back at most."""


def _give_back() -> Transaction[None]:
    """Give back free pages at the end of the file, and none if a version without this setting has created the file."""
    free = yield 'PRAGMA freelist_count', ()
    for _ in range(min(free[0][0], PAGES)):
        yield 'PRAGMA incremental_vacuum(1)', ()  # Python's driver frees one page a statement


def _after_sweep() -> Transaction[None]:
    yield NOTE_CLOCK, ()
    yield from _give_back()


_AFTER_SWEEP = WriteKind(_after_sweep)


class SqliteFileBackend(SharedBackend[SqliteProcess]):
    """Tasks and conversations in a file: they outlive the process.

    Args:
        file: The file.
        namespace: Stable name under which the tasks are stored.
        reader_lag: Bytes that a reader may be behind.
        clock: Measures leases and gives timestamps. All processes that share the file need the same clock.

    Raises:
        RuntimeError: The SQLite library is too old.
        BackendUnusable: A running app of this process has this namespace of this file.
    """

    store = 'SQLite file'

    def __init__(self, file: SqliteFile, namespace: str, *, reader_lag: int, clock: Clock = SYSTEM) -> None:
        check_version()
        self._file = file
        self._reader_lag = reader_lag
        self.clock = clock
        super().__init__(str(file.path.resolve()), namespace)
        self.housekeeping = _Housekeeping(self)

    @property
    def settings(self) -> SqliteFile:
        return self._file

    def _make_process(self) -> SqliteProcess:
        return SqliteProcess(self._file, self.namespace, self._reader_lag, self.clock)

    async def compact(self) -> None:
        await asyncio.to_thread(vacuum, self._file)


class _Housekeeping(SqlHousekeeping):
    """Keeps the file small as well as its tables, and notes the clock in it."""

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> int:
        swept = await super().sweep(retention, at=at, on_expired=on_expired)
        await self.database.write(_AFTER_SWEEP)
        return swept
