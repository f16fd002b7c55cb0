"""One function says how a run ends that raised an exception."""

import asyncio

import pytest
from pydantic_ai.exceptions import RunCancelled, RunTimedOut, UsageLimitExceeded

from pydantic_ai_a2a.errors import LeaseLost, StoreFailed, StoreUnavailable
from pydantic_ai_a2a.server.runs.exception_outcomes import Outcome, outcome_of


@pytest.mark.parametrize(
    ('error', 'outcome'),
    [
        (KeyboardInterrupt(), Outcome.EXIT),
        (SystemExit(), Outcome.FAILED),
        (GeneratorExit(), Outcome.FAILED),
        (asyncio.CancelledError(), Outcome.FAILED),
        (StoreUnavailable(), Outcome.UNAVAILABLE),
        (StoreFailed(), Outcome.FAILED),
        (LeaseLost(), Outcome.LOST),
        (RunCancelled(''), Outcome.CANCELED),
        (RunTimedOut(''), Outcome.FAILED),
        (UsageLimitExceeded(''), Outcome.FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value.name,
)
async def test_exception_of_a_run_decides_its_outcome(error: BaseException, outcome: Outcome) -> None:
    assert outcome_of(error, asyncio.current_task()) is outcome


async def test_run_stops_when_its_asyncio_task_is_cancelled() -> None:
    async def run() -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            return outcome_of(error, asyncio.current_task())
        raise AssertionError

    running = asyncio.create_task(run())
    await asyncio.sleep(0)
    running.cancel()
    assert await running is Outcome.STOPPED


def test_closed_run_coroutine_exits_without_writing() -> None:
    assert outcome_of(GeneratorExit(), None) is Outcome.EXIT
