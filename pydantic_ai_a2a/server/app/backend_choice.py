"""The choice of the concrete backend from a URL or an argument."""

from __future__ import annotations

from ...errors import needs_extra
from ...settings.limits import Limits
from ..fasta2a.user_parts import OwnParts
from ..store.ports import Backend
from ..store.postgres.settings import Postgres
from ..store.sqlite.memory import MemoryBackend
from .process_count import uvicorn_workers


def open_store(store: str | Postgres, namespace: str, limits: Limits = Limits()) -> Backend:
    """Return the backend over a store that outlives the process.

    Raises:
        ImportError: The driver of PostgreSQL is not installed.
        ValueError: The URL is not the URL of a store, or a running app of this process has the store.
    """
    if isinstance(store, Postgres):
        return _postgres(store, namespace, limits)
    if str(store).startswith('sqlite:'):
        from ..store.sqlite.backend import SqliteFileBackend  # noqa: PLC0415 - apps in memory need none
        from ..store.sqlite.settings import SqliteFile  # noqa: PLC0415 - apps in memory need none

        return SqliteFileBackend(SqliteFile.of(store), namespace, reader_lag=limits.reader_lag)
    if str(store).startswith('postgres'):
        return _postgres(Postgres(store), namespace, limits)
    scheme, colon, _ = str(store).partition('://')  # the rest of the URL may hold a password
    value = f'a URL that begins with {scheme!r}' if colon else 'another string'
    raise ValueError(
        f"backend must be 'memory', 'sqlite:///agent.db', 'postgresql://host/database' or a Backend, not {value}."
    )


def _postgres(settings: Postgres, namespace: str, limits: Limits) -> Backend:
    try:
        from ..store.postgres.backend import PostgresBackend  # noqa: PLC0415 - its driver is not always installed
    except ModuleNotFoundError as error:
        raise ImportError(needs_extra('PostgreSQL', 'postgres')) from error
    return PostgresBackend(settings, namespace, reader_lag=limits.reader_lag)


def choose_backend(backend: str | Postgres | Backend, namespace: str, limits: Limits, own: OwnParts | None) -> Backend:
    """Return the backend of `to_a2a(backend=)`, or the user's own parts around the backend in memory.

    Raises:
        ImportError: See `open_store`.
        ValueError: See `open_store`; or the backend is in memory, and several processes of uvicorn import the app.
    """
    if isinstance(backend, Backend):
        return backend
    if backend != 'memory':
        return open_store(backend, namespace, limits)
    if own is None and (processes := uvicorn_workers()) > 1:
        raise ValueError(
            f'{processes} server processes cannot share tasks in memory:'
            " use backend='sqlite:///agent.db', or one process."
        )
    # All rows belong to one agent, so their keys need no name: a task has twelve keys.
    memory = MemoryBackend('', reader_lag=limits.reader_lag, max_bytes=limits.memory)
    return memory if own is None else own.backend(memory)
