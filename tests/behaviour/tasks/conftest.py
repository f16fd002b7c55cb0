"""The store of tests that look into it, or wrap a part of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend


@pytest.fixture
def backend() -> Iterator[MemoryBackend]:
    made = MemoryBackend('agent', reader_lag=10**6)
    yield made
    made.close()
