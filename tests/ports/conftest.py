"""Every test of this folder runs over every backend: a new one needs a line in `BACKENDS`, and keeps to the ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from os import environ
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pydantic_ai_a2a.server.store.ports import Backend
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.settings import Postgres
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ..bounds import LIMIT
from ..postgres import Postgres as Server
from ..suites import READER_LAG
from ..suites.base import MakeBackend, OpenBackend

Open = Callable[[str, str], Backend]
"""Opens the store of this name, for this agent namespace."""

STORES = ('store', 'store_0')
"""Schemas of the stores that nearly all tests open. Their tables are made once."""


def memory(_: pytest.FixtureRequest) -> Open:
    return lambda store, namespace: MemoryBackend(namespace, reader_lag=READER_LAG)


def file(request: pytest.FixtureRequest) -> Open:
    folder: Path = request.getfixturevalue('tmp_path')

    def open_file(store: str, namespace: str) -> Backend:
        database = SqliteFile(path=folder / f'{store}.db', synchronous='normal')
        return SqliteFileBackend(database, namespace, reader_lag=READER_LAG)

    return open_file


def postgres(request: pytest.FixtureRequest) -> Open:
    url: str = request.getfixturevalue('stores_url')

    def open_schema(store: str, namespace: str) -> Backend:
        database = Postgres(url, schema=store.replace(' ', '_'), pool_size=4, acquire_timeout=LIMIT)
        if pooler := environ.get('A2A_TEST_POOLER'):
            pooled = urlsplit(url)._replace(netloc=urlsplit(pooler).netloc).geturl()
            database = replace(database, url=pooled, listen_dsn=url, statement_cache_size=0)
        return PostgresBackend(database, namespace, reader_lag=READER_LAG)

    return open_schema


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Open]] = {'memory': memory, 'file': file, 'postgres': postgres}
"""What opens the stores of a test, for each backend."""
DURABLE = {name: opening for name, opening in BACKENDS.items() if name != 'memory'}
"""Those whose stores outlive the process."""


@pytest.fixture
def stores_url(postgres: Server) -> Iterator[str]:
    """The URL of a database whose `STORES` are empty, or are not there yet."""
    with postgres.database(*STORES) as url:
        yield url


@pytest.fixture(params=[*BACKENDS.values()], ids=[*BACKENDS])
def make_backend(request: pytest.FixtureRequest) -> MakeBackend:
    """Makes an empty backend."""
    opened: Open = request.param(request)
    numbers = count()
    return lambda: opened(f'store {next(numbers)}', 'agent')


@pytest.fixture(params=[*DURABLE.values()], ids=[*DURABLE])
def open_backend(request: pytest.FixtureRequest) -> OpenBackend:
    """Opens one store once more, for a namespace."""
    return partial(request.param(request), 'store')


@pytest.fixture
def backend(make_backend: MakeBackend) -> Iterator[Backend]:
    made = make_backend()
    yield made
    made.close()
