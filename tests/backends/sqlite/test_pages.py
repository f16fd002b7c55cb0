"""Pages that a turn writes to a SQLite file: the frames that its commits add to the write-ahead log."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest

from pydantic_ai_a2a import to_a2a

from ...client import lifespan, message
from ...test_cost import AGENT, post, request

TURNS_BEFORE, TURNS = 30, 15
HEADER, FRAME = 32, 24 + 4096
"""Bytes of the log's header, and of a frame."""
PAGES = 36


@pytest.mark.parametrize('continues', [False, True])
async def test_a_turn_writes_few_pages_also_late_in_a_conversation(continues: bool, tmp_path: Path) -> None:
    file = tmp_path / 'agent.db'
    log = tmp_path / 'agent.db-wal'
    app = to_a2a(AGENT, backend=f'sqlite:///{file}?synchronous=normal')
    context: dict[str, str] = {}
    frames: list[float] = []

    async def turn() -> None:
        answered = await post(app, request('SendMessage', {'message': message('hello', **context)}))
        task = json.loads(answered)['result']['task']
        assert task['status']['state'] == 'TASK_STATE_COMPLETED'
        if continues:
            context['contextId'] = task['contextId']

    async with lifespan(app):
        for _ in range(TURNS_BEFORE):
            await turn()
        with closing(sqlite3.connect(file)) as other:
            other.execute('PRAGMA wal_checkpoint(TRUNCATE)')
        size = HEADER
        for _ in range(TURNS):
            await turn()
            written, size = log.stat().st_size - size, log.stat().st_size
            frames.append(written / FRAME)
    assert all(frames)
    assert median(frames) <= PAGES, frames
