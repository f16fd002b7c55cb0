"""The databases that a run can be over, each with what can go wrong with it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import asyncpg

from ..postgres import StartedPostgres

__all__ = ('Store', 'postgres_store', 'sqlite_store')

_PATIENCE = 0.3
"""Seconds in which all who write have done so, unless somebody was stopped in the middle of it."""


@dataclass(frozen=True)
class Store:
    """A database, and what can go wrong with it, one thing after the other."""

    url: str
    faults: Mapping[str, Callable[[], Awaitable[None]]]
    hold: Callable[[], AbstractAsyncContextManager[None]]
    """Keeps everybody from writing, for the block. TimeoutError if somebody keeps on writing, or it is not there."""


def sqlite_store(folder: Path, *, seconds: float, long: float | None = None) -> Store:
    """A SQLite file, which somebody else locks for so long, and once for longer."""
    path = folder / 'agent.db'

    async def lock(seconds: float) -> None:
        async with _hold_file(path, 30.0):
            await asyncio.sleep(seconds)

    faults = {'lock the file': partial(lock, seconds)}
    if long is not None:
        faults['lock the file for long'] = partial(lock, long)
    return Store(f'sqlite:///{path}', faults, partial(_hold_file, path))


@asynccontextmanager
async def _hold_file(path: Path, patience: float = _PATIENCE) -> AsyncGenerator[None]:
    connection = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    with closing(connection):
        try:
            await asyncio.to_thread(connection.execute, 'BEGIN IMMEDIATE')
        except sqlite3.OperationalError as error:
            raise TimeoutError from error
        yield


def postgres_store(server: StartedPostgres, url: str, *, seconds: float, long: float | None = None) -> Store:
    """A database of a PostgreSQL server, which is ended in three ways and started again after so long."""

    async def do(end: Callable[[], None], seconds: float) -> None:
        await asyncio.to_thread(end)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(server.start)

    faults = {
        'restart the database': partial(do, server.stop, seconds),
        'crash the database': partial(do, partial(server.stop, 'immediate'), seconds),
        'kill the database': partial(do, server.kill, seconds),
    }
    if long is not None:
        faults['leave the database away for long'] = partial(do, server.stop, long)
    return Store(url, faults, partial(_hold_tables, url))


@asynccontextmanager
async def _hold_tables(url: str) -> AsyncGenerator[None]:
    wait = {'search_path': 'a2a', 'lock_timeout': str(round(_PATIENCE * 1000))}
    try:
        connection = await asyncpg.connect(url, server_settings=wait, timeout=_PATIENCE * 10)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise TimeoutError from error
    try:
        await connection.execute('BEGIN; LOCK TABLE task IN EXCLUSIVE MODE')
        yield
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise TimeoutError from error
    finally:
        connection.terminate()
