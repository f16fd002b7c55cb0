"""Transactions on a PostgreSQL connection, and the execution of their steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from ..sql.transaction import LockName, LockTasks, Rows, Step, Transaction, TryNames
from .driver_errors import LOST
from .sql_translation import key_of, lock, translated

T = TypeVar('T')

Connection: TypeAlias = 'asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]'
LATE = 5.0
"""Seconds after the database's own time-out until the connection counts as dead."""


async def in_transaction(connection: Connection, start: str, work: Callable[[], Awaitable[T]]) -> T:
    """Call a function between the statement that starts a transaction and COMMIT."""
    try:
        await connection.execute(start)
        result = await work()
        await connection.execute('COMMIT')
    except BaseException:
        await roll_back(connection)
        raise
    return result


async def roll_back(connection: Connection) -> None:
    """Roll back a transaction; terminate a busy or lost connection."""
    try:
        async with asyncio.timeout(LATE):  # in Python 3.11, wait_for may swallow a cancellation
            await connection.execute('ROLLBACK')
    except (*LOST, asyncpg.PostgresError):
        give_up(connection)


def give_up(connection: Connection) -> None:
    """Terminate a connection in an unknown state."""
    with suppress(asyncpg.InterfaceError):  # the pool has already closed a lost connection
        connection.terminate()


async def perform(connection: Connection, transaction: Transaction[T]) -> T:
    """Execute the steps of a transaction one after another, and return the result."""
    try:
        step = next(transaction)
        while True:
            step = transaction.send(await _execute(connection, step))
    except StopIteration as stop:
        return stop.value


async def _execute(connection: Connection, step: Step) -> Rows:
    match step:
        case list():
            for statement, values in step:
                if len(values) == 1:
                    await connection.execute(translated(statement), *values[0])
                elif values:
                    await connection.executemany(translated(statement), values)
            return []
        case LockName():
            await connection.execute(lock(step))
            return []
        case TryNames():
            return await _try_names(connection, step)
        case LockTasks():
            return await _lock_tasks(connection, step)
        case _:
            statement, values = step
            return await connection.fetch(translated(statement), *values)


async def _try_names(connection: Connection, step: TryNames) -> Rows:
    names = {key_of(name): name for name in step.names}
    taken = await connection.fetch(
        'SELECT key FROM unnest($1::bigint[]) AS key WHERE NOT pg_try_advisory_xact_lock(key)', [*names]
    )
    return [(names[key],) for (key,) in taken]


async def _lock_tasks(connection: Connection, step: LockTasks) -> Rows:
    tasks = 'SELECT id FROM task WHERE agent = $1 AND id = ANY($2)'
    locking = f'{tasks} ORDER BY id COLLATE "C" FOR NO KEY UPDATE'
    if step.wait:
        await connection.fetch(locking, step.agent, step.task_ids)
        return []
    locked = {row[0] for row in await connection.fetch(f'{locking} SKIP LOCKED', step.agent, step.task_ids)}
    others = [task_id for task_id in step.task_ids if task_id not in locked]
    return await connection.fetch(tasks, step.agent, others) if others else []
