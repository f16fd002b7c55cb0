"""A SQLite file gives back the pages of what was deleted, a few with each sweep."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.store.sqlite.connect import PAGES, SqliteFile

from ...suites.values import AT, OWNER, READER_LAG, message, run, submit

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


def pages(path: Path) -> tuple[int, int]:
    """The pages of the file, and those of them that are free."""
    with closing(sqlite3.connect(path)) as connection:
        return tuple(connection.execute(f'PRAGMA {name}').fetchone()[0] for name in ('page_count', 'freelist_count'))


async def grow(backend: SqliteFileBackend) -> None:
    """Store a large task and erase it."""
    await submit(backend, message('x' * LARGE, new='large'))
    await run(backend, 'large')
    await backend.housekeeping.erase_task('large', OWNER, at=AT)


async def test_sweeps_give_back_the_free_pages_of_a_file_in_small_steps(backend: SqliteFileBackend, path: Path) -> None:
    await grow(backend)
    grown, free = pages(path)
    assert free > 5 * PAGES
    await backend.housekeeping.sweep(Retention(), at=AT)
    assert pages(path) == (grown - PAGES, free - PAGES)
    for _ in range(free // PAGES):
        await backend.housekeeping.sweep(Retention(), at=AT)
    total, free_then = pages(path)
    assert total <= grown - free
    assert free_then == 0
    await backend.compact()
    assert path.stat().st_size < LARGE / 10


async def test_a_file_without_the_setting_gives_back_pages_once_it_was_compacted(
    backend: SqliteFileBackend, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE older (word TEXT)')
    await grow(backend)
    grown, free = pages(path)
    await backend.housekeeping.sweep(Retention(), at=AT)
    assert pages(path) == (grown, free)
    await backend.compact()
    await grow(backend)
    grown, free = pages(path)
    await backend.housekeeping.sweep(Retention(), at=AT)
    assert pages(path) == (grown - PAGES, free - PAGES)
