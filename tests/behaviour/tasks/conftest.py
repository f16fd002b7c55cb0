"""The store of tests that look into it, or wrap a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.store import SqliteFile, SqliteFileBackend


@pytest.fixture
def backend() -> Iterator[MemoryBackend]:
    made = MemoryBackend('agent', reader_lag=10**6)
    yield made
    made.close()


@pytest.fixture
def file_backend(tmp_path: Path) -> Iterator[SqliteFileBackend]:
    made = SqliteFileBackend(SqliteFile(path=tmp_path / 'tasks.db'), 'agent', reader_lag=10**6)
    yield made
    made.close()
