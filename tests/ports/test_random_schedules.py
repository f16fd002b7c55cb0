"""Hostile schedules of one process over the store in memory, and of two processes over each other store.

`HOSTILE_EXAMPLES` sets how many schedules are tried, other ones each time; without it they are few and always the same.
"""

from __future__ import annotations

from os import environ

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from ..suites.schedule import Schedule
from ..watchdog import WATCHDOG
from .conftest import BACKENDS, DURABLE


@pytest.mark.long
@pytest.mark.parametrize('name', BACKENDS)
def test_random_crashes_and_clock_jumps_match_model(name: str, request: pytest.FixtureRequest) -> None:
    opened = BACKENDS[name](request)
    stores = iter(range(10**9))

    class Made(Schedule):
        def __init__(self) -> None:
            WATCHDOG.restart()  # a schedule, and not all that are tried, is bounded
            store = f'hostile {next(stores)}'
            processes = [opened(store, 'agent') for _ in range(2 if name in DURABLE else 1)]
            super().__init__(processes, skips=name == 'postgres')

    chosen = settings(max_examples={'memory': 20, 'file': 5, 'postgres': 2}[name], stateful_step_count=60)
    if many := environ.get('HOSTILE_EXAMPLES'):
        chosen = settings(max_examples=int(many), stateful_step_count=100, derandomize=False, print_blob=True)
    run_state_machine_as_test(Made, settings=chosen)
