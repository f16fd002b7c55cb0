"""Chaos takes longer than other tests, and ends the processes that it has started itself."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

LIMIT = 400.0
"""Seconds for a test: to start the processes, for `test_chaos.LIMIT`, and to judge."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """See the one of all tests, which this one stands in for."""
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
