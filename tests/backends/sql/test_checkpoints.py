"""Rows of checkpoints that no port shows."""

from __future__ import annotations

from typing import Any

from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.backends.memory import SqliteBackend
from pydantic_ai_a2a.backends.sql.transaction import Transaction
from pydantic_ai_a2a.ports import Checkpoint
from pydantic_ai_a2a.testing.values import AT, OWNER, claim_one, message, submit, turn


def rows() -> Transaction[list[Any]]:
    return (yield 'SELECT n FROM checkpoint', ())


async def test_none_are_left_of_a_task_that_was_canceled_over_its_holders_head() -> None:
    backend = SqliteBackend('agent', reader_lag=10**6)
    await submit(backend, message(new='t'))
    claimed = await claim_one(backend, 't')
    checkpoint = Checkpoint(run='t.1', messages=turn('hi', 'step'), usage=RunUsage())
    await backend.queue.emit(claimed, [], checkpoint=checkpoint)
    assert backend.run(rows()) == [(0,), (1,)]
    await backend.queue.cancel('t', OWNER, at=AT, force=True)
    assert backend.run(rows()) == []
    backend.close()
