"""Every test of this folder runs over every backend: a new one needs a line in `BACKENDS`, and keeps to the ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from pydantic_ai_a2a.backends.sqlite import SqliteBackend
from pydantic_ai_a2a.backends.sqlite_connect import SqliteFile
from pydantic_ai_a2a.backends.sqlite_file import SqliteFileBackend
from pydantic_ai_a2a.ports import Backend

from .values import READER_LAG

MakeBackend = Callable[[], Backend]


_names = count()


def memory(_: Path) -> Backend:
    return SqliteBackend('agent', reader_lag=READER_LAG)


def file(folder: Path) -> Backend:
    database = SqliteFile(path=folder / f'{next(_names)}.db', synchronous='normal')
    return SqliteFileBackend(database, 'agent', reader_lag=READER_LAG)


BACKENDS: dict[str, Callable[[Path], Backend]] = {'memory': memory, 'file': file}


@pytest.fixture(params=[*BACKENDS.values()], ids=[*BACKENDS])
def make_backend(request: pytest.FixtureRequest, tmp_path: Path) -> MakeBackend:
    """Makes an empty backend."""
    return partial(request.param, tmp_path)


@pytest.fixture
def backend(make_backend: MakeBackend) -> Iterator[Backend]:
    made = make_backend()
    yield made
    made.close()
