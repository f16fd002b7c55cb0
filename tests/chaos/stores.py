"""The databases that a run can be over, each with what can go wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from ..postgres import Postgres
from .faults import lock_file
from .run import Store

__all__ = ('postgres_store', 'sqlite_store')


def sqlite_store(folder: Path, *, seconds: float) -> Store:
    """A SQLite file, which somebody else locks for so long."""
    path = folder / 'agent.db'
    return Store(f'sqlite:///{path}', {'lock the file': partial(lock_file, path, seconds)})


def postgres_store(server: Postgres, url: str, *, seconds: float) -> Store:
    """A database of a PostgreSQL server, which is ended in three ways and started again after so long."""
    lock = asyncio.Lock()

    def fault(end: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        async def do() -> None:
            async with lock:
                await asyncio.to_thread(end)
                await asyncio.sleep(seconds)
                await asyncio.to_thread(server.start)

        return do

    return Store(
        url,
        {
            'restart the database': fault(server.stop),
            'crash the database': fault(partial(server.stop, 'immediate')),
            'kill the database': fault(server.kill),
        },
    )
