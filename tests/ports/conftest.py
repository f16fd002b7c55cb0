"""Every test of this folder runs over every backend: a new one needs a line in `BACKENDS`, and keeps to the ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pydantic_ai_a2a.backends.sqlite import SqliteBackend
from pydantic_ai_a2a.ports import Backend

from .values import READER_LAG

MakeBackend = Callable[[], Backend]


def memory() -> Backend:
    return SqliteBackend('agent', reader_lag=READER_LAG)


BACKENDS: dict[str, MakeBackend] = {'memory': memory}


@pytest.fixture(params=[*BACKENDS.values()], ids=[*BACKENDS])
def make_backend(request: pytest.FixtureRequest) -> MakeBackend:
    """Makes an empty backend."""
    return request.param


@pytest.fixture
def backend(make_backend: MakeBackend) -> Iterator[Backend]:
    made = make_backend()
    yield made
    made.close()
