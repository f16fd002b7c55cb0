"""The end of a task, as a waiting caller gets it without a read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pydantic_ai_a2a.store.events import ended_task
from pydantic_ai_a2a.store.sqlite.backend import SqliteFile, SqliteFileBackend

from ..suites.endings import RESULT
from ..suites.values import claim_one, ending, message, submit


@pytest.mark.parametrize('metadata', [None, b'{"usage":1}'])
async def test_the_end_of_a_plain_task_is_the_task_that_is_stored(tmp_path: Path, metadata: bytes | None) -> None:
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'tasks.db'), 'agent', reader_lag=1000)
    await submit(backend, message('hi', new='t'))
    claimed = await claim_one(backend, 't')
    end = ending(claimed, metadata=metadata, **RESULT)
    await backend.queue.finish(claimed, end)
    task = await backend.reader.load('t', None)
    backend.close()
    assert task is not None
    assert ended_task(claimed, end) == task


@pytest.mark.parametrize(
    ('claimed', 'end'),
    [
        ({'fence': 2}, {}),
        ({'run': 2}, {}),
        ({}, {'artifacts': None}),
        ({}, {'taken': 1}),
        ({}, {'last': True}),
        ({}, {'state': 'failed'}),
        ({}, {'after': 2}),
    ],
)
async def test_the_end_of_any_other_task_is_read(tmp_path: Path, claimed: Any, end: Any) -> None:
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'tasks.db'), 'agent', reader_lag=1000)
    await submit(backend, message('hi', new='t'))
    claim = await claim_one(backend, 't')
    backend.close()
    assert ended_task(claim, ending(claim, **RESULT)) is not None
    assert ended_task(replace(claim, **claimed), ending(claim, **(RESULT | end))) is None
