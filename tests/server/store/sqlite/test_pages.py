"""The pages that a turn writes to a file, counted in the write-ahead log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from ....app_client import message, state_of
from ....serving import serving

AGENT = Agent(TestModel(custom_output_text='The answer.'), name='agent')
TURNS, COUNTED = 104, 12
PAGES, KILOBYTES = 15, 60
STATEMENTS = 6
"""Besides BEGIN and COMMIT. SQLite reports a statement for each row."""
EPHEMERAL = 2
"""The new row of a task before its checks, and the result of the statement."""


def pages(log: Path) -> int:
    """Return the frames of a write-ahead log, up to the first frame of an earlier log."""
    data = log.read_bytes()
    frame = 24 + int.from_bytes(data[8:12])
    starts = range(32, len(data) - frame + 1, frame)
    return next((n for n, at in enumerate(starts) if data[at + 8 : at + 16] != data[16:24]), len(starts))


@pytest.mark.parametrize('context', [{}, {'contextId': 'c'}], ids=['new contexts', 'one context'])
async def test_turn_writes_few_pages(context: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / 'tasks.db'
    async with serving(AGENT, backend=f'sqlite:///{file}') as client:
        for turn in range(TURNS + COUNTED):
            if turn == TURNS:
                with closing(sqlite3.connect(file)) as connection:
                    connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')
            assert state_of(await client.send(message('hello', **context))) == 'COMPLETED'
        written = pages(Path(f'{file}-wal'))
    assert written / COUNTED <= PAGES
    assert written * 4.12 / COUNTED <= KILOBYTES


async def test_turn_takes_few_statements_and_temporary_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of three values in the condition of an index is such a table, for each row that is checked."""
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, 'connect', traced)
    file = tmp_path / 'tasks.db'
    async with serving(AGENT, backend=f'sqlite:///{file}') as client:
        await client.send('hello')
        statements.clear()
        task = await client.send('hello')
        renewed = 'UPDATE task SET lease_until'
        of_turn = [each for each in statements if task['id'] in each and not each.startswith(renewed)]
        with closing(connect(file)) as connection:
            connection.create_function('a2a_clock', 0, int)
            connection.text_factory = bytes  # a step shows bound bytes as text
            steps = [step for each in of_turn for step in connection.execute(f'EXPLAIN {each}')]
    # SQLite reports a statement again for a trigger that looks at its row, and an INSERT ... ON CONFLICT twice.
    performed = [each for n, each in enumerate(of_turn) if n == 0 or each != of_turn[n - 1]]
    assert 0 < len(performed) <= STATEMENTS
    assert [opcode for _, opcode, *_ in steps].count(b'OpenEphemeral') <= EPHEMERAL
