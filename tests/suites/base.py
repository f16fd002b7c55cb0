"""Base of all suites: the backend of a test, and asyncio as the tests' event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from pydantic_ai_a2a.server.store.ports import Backend

__all__ = ('MakeBackend', 'OpenBackend', 'PortSuite')

MakeBackend: TypeAlias = Callable[[], Backend]
"""Makes a backend over an empty store of its own, with `READER_LAG`."""
OpenBackend: TypeAlias = Callable[[str], Backend]
"""Opens one store once more, for an agent namespace, as another process would; it is empty when a test begins."""


class PortSuite:
    """Tests of a port. They are given the backend by a fixture `make_backend`, a `MakeBackend`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The event loop that async tests run in."""
        return 'asyncio'

    @pytest.fixture
    def backend(self, make_backend: MakeBackend) -> Iterator[Backend]:
        """An empty backend."""
        made = make_backend()
        yield made
        made.close()
