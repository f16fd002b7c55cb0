"""All ports over one PostgreSQL database, which several machines may share. Nothing is opened before the first use."""

from __future__ import annotations

from ..shared import SharedBackend
from .process import PostgresProcess
from .settings import Postgres

__all__ = ('PostgresBackend',)


class PostgresBackend(SharedBackend[PostgresProcess]):
    """Tasks and conversations in a PostgreSQL database: they outlive processes and machines.

    Args:
        settings: The database.
        namespace: Stable name under which the tasks are stored.
        reader_lag: Bytes that a reader may be behind.

    Raises:
        BackendUnusable: A running app of this process has this namespace of this database.
    """

    store = 'PostgreSQL database'

    def __init__(self, settings: Postgres, namespace: str, *, reader_lag: int) -> None:
        self._settings = settings
        self._reader_lag = reader_lag
        super().__init__(settings.place, namespace)

    @property
    def settings(self) -> Postgres:
        return self._settings

    def now(self) -> int:
        return self.process.clock.now()

    def _make_process(self) -> PostgresProcess:
        return PostgresProcess(self._settings, self.namespace, self._reader_lag)
