"""A sweep deletes a batch with few statements, and gives back a few pages of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.server.store.sql import sweep
from pydantic_ai_a2a.server.store.sql.transaction import LockName, LockTasks, Transaction, TryNames
from pydantic_ai_a2a.server.store.sqlite.free_pages import PAGES
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store import PostgresBackend, SqliteFile, SqliteFileBackend

from ....suites import READER_LAG
from ....suites.push import config, configs_of
from ....suites.values import OWNER, START, claim_and_finish, conversation_texts, message, model_turn, submit

OLD, NEW = range(50), range(50, 60)
LATER = START + 10_000
KEEP = Retention(tasks=timedelta(seconds=5), contexts=timedelta(seconds=5), events=timedelta(seconds=5))
LARGE = 3_000_000
"""Bytes of a message: several times what one sweep gives back."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'agent.db'


@pytest.fixture
def backend(path: Path) -> Iterator[SqliteFileBackend]:
    backend = SqliteFileBackend(SqliteFile(path=path, synchronous='normal'), 'agent', reader_lag=READER_LAG)
    yield backend
    backend.close()


async def test_postgres_keeps_hundred_times_more_tasks_than_sqlite(
    backend: SqliteFileBackend, postgres_url: str
) -> None:
    def add(agent: str, kind: str, number: int) -> Transaction[None]:
        yield [('INSERT INTO total (agent, owner, kind, number) VALUES (?, ?, ?, ?)', [(agent, '', kind, number)])]

    with closing(PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)) as database:
        for store, most in ((backend, 10_000), (database, 1_000_000)):
            await submit(store, message(new='t', context='c'))
            await claim_and_finish(store, 't', messages=model_turn('hi', 'hello'))
            # The totals count more rows than there are.
            for kind in ('completed', 'conversation'):
                await store.write(add, 'agent', kind, most - 1)
            swept = await store.housekeeping.sweep(Retention(), at=START)
            assert swept.over == {}
            await submit(store, message(new='u', context='d'))
            await claim_and_finish(store, 'u', messages=model_turn('hi', 'hello'))
            swept = await store.housekeeping.sweep(Retention(), at=START)
            assert swept.over == {'tasks': 1, 'contexts': 1}


async def test_sweep_deletes_batch_with_few_statements(backend: SqliteFileBackend) -> None:
    forks: list[str] = []
    for n in (*OLD, *NEW):
        at = START if n in OLD else LATER
        await submit(backend, message(new=f't{n}', context=f'c{n}', at=at))
        await claim_and_finish(backend, f't{n}', at=at, messages=model_turn(f'prompt {n}', f'answer {n}'))
        if n % 10 == 0:
            await configs_of(backend).create(f't{n}', OWNER, config('hook'), limit=1)
            forks.append((await backend.conversations(OWNER).fork(f'c{n}')).conversation_id)
    statements: list[str] = []

    def counted(agent: str) -> Transaction[int]:
        transaction = sweep.sweep(agent, KEEP, LATER, 100)
        step = next(transaction)
        try:
            while True:
                match step:
                    case LockName() | TryNames() | LockTasks():
                        statements.append('lock')
                    case list():
                        statements.extend(statement for statement, rows in step for _ in rows)
                    case statement, _:
                        statements.append(statement)
                step = transaction.send((yield step))
        except StopIteration as stop:
            return stop.value.value[0].rows

    assert await backend.write(counted, 'agent') > 100
    assert len(statements) <= 60
    for n in (*OLD, *NEW):
        stored = await backend.reader.load(f't{n}', None)
        assert (stored is None) == (n in OLD)
        texts = await conversation_texts(backend, f'c{n}')
        assert texts == ([] if n in OLD else [f'prompt {n}', f'answer {n}'])
    assert [await conversation_texts(backend, fork) for fork in forks] == [
        [f'prompt {n}', f'answer {n}'] for n in (*OLD, *NEW) if n % 10 == 0
    ]


def pages(path: Path) -> tuple[int, int]:
    """The pages of the file, and those of them that are free."""
    with closing(sqlite3.connect(path)) as connection:
        return tuple(connection.execute(f'PRAGMA {name}').fetchone()[0] for name in ('page_count', 'freelist_count'))


async def grow(backend: SqliteFileBackend) -> None:
    """Store a large task and erase it."""
    await submit(backend, message('x' * LARGE, new='large'))
    await claim_and_finish(backend, 'large')
    await backend.housekeeping.erase_task('large', OWNER, at=START)


async def test_sweeps_free_file_pages_in_small_steps(backend: SqliteFileBackend, path: Path) -> None:
    await grow(backend)
    grown, free = pages(path)
    assert free > 5 * PAGES
    await backend.housekeeping.sweep(Retention(), at=START)
    assert pages(path) == (grown - PAGES, free - PAGES)
    for _ in range(free // PAGES):
        await backend.housekeeping.sweep(Retention(), at=START)
    total, free_then = pages(path)
    assert total <= grown - free
    assert free_then == 0
    await backend.compact()
    assert path.stat().st_size < LARGE / 10


async def test_file_without_auto_vacuum_frees_pages_after_compact(backend: SqliteFileBackend, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE older (word TEXT)')
    await grow(backend)
    grown, free = pages(path)
    await backend.housekeeping.sweep(Retention(), at=START)
    assert pages(path) == (grown, free)
    await backend.compact()
    await grow(backend)
    grown, free = pages(path)
    await backend.housekeeping.sweep(Retention(), at=START)
    assert pages(path) == (grown - PAGES, free - PAGES)


async def test_sweep_deletes_large_tasks_in_small_batches(backend: SqliteFileBackend, path: Path) -> None:
    """SQLite copies the deleted rows into memory until the end of the statement."""
    for n in range(12):
        await submit(backend, message('x' * LARGE, new=f't{n}', context=f'c{n}'))
        await claim_and_finish(backend, f't{n}')
    swept: list[tuple[bool, int]] = []
    for _ in range(4):
        full = (await backend.housekeeping.sweep(KEEP, at=LATER)).full
        with closing(sqlite3.connect(path)) as connection:
            swept += [(full, *connection.execute('SELECT COUNT(*) FROM task').fetchone())]
    assert swept == [(True, 9), (True, 6), (True, 3), (False, 0)]
