"""Quotas of callers: what is left of budgets, and the memory of open streams."""

from __future__ import annotations

import tracemalloc

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a import Quotas
from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.server.budget_rest import Left
from pydantic_ai_a2a.server.quotas import Metering
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ..suites.values import READER_LAG

PAID = RunUsage(requests=3, input_tokens=60, output_tokens=40)


@pytest.mark.parametrize('left', [Left(-1, None, None), Left(None, -50, None), Left(5, 0, None)])
def test_retry_gets_no_requests_of_exhausted_budget(left: Left) -> None:
    assert left.with_paid(PAID).nothing


def test_retry_limits_include_usage_of_earlier_tries() -> None:
    assert Left(2, 50, None).with_paid(PAID) == Left(5, 150, None)


def test_closed_streams_of_callers_take_no_memory() -> None:
    backend = MemoryBackend('agent', reader_lag=READER_LAG)
    metering = Metering(Quotas(streams=2), backend.quotas, SYSTEM.now)
    tracemalloc.start()
    try:
        for caller in range(20_000):
            with metering.stream(f'/caller-{caller}'):
                pass
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        backend.close()
    assert held < 500_000
