"""Backends of several processes over one PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.backends.postgres.backend import PostgresBackend
from pydantic_ai_a2a.testing import READER_LAG

Open = Callable[..., PostgresBackend]


@pytest.fixture
def another(postgres_url: str) -> Iterator[Open]:
    """Opens the database once more, as another process would."""
    backends: list[PostgresBackend] = []

    def make(url: str = postgres_url, namespace: str = 'agent', **options: Any) -> PostgresBackend:
        backends.append(PostgresBackend(Postgres(url, **options), namespace, reader_lag=READER_LAG))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()
