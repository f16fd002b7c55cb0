"""Rows of checkpoints that no port shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.store.ports import Checkpoint
from pydantic_ai_a2a.store.sql.transaction import Transaction
from pydantic_ai_a2a.store.sqlite.backend import SqliteFile, SqliteFileBackend

from ...suites.values import AT, OWNER, claim_one, message, submit, turn


def rows() -> Transaction[list[Any]]:
    return (yield 'SELECT n FROM checkpoint', ())


async def test_none_are_left_of_a_task_that_was_canceled_over_its_holders_head(tmp_path: Path) -> None:
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=10**6)
    await submit(backend, message(new='t'))
    claimed = await claim_one(backend, 't')
    checkpoint = Checkpoint(run='t.1', messages=turn('hi', 'step'), usage=RunUsage())
    await backend.queue.emit(claimed, [], checkpoint=checkpoint)
    assert await backend.read(rows) == [(0,), (1,)]
    await backend.queue.cancel('t', OWNER, at=AT, force=True)
    assert await backend.read(rows) == []
    backend.close()
