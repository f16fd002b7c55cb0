"""A new task that begins at once is one statement, which stores and returns what the separate statements do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pydantic_ai_a2a.server.store.ports import Slot, Submission
from pydantic_ai_a2a.server.store.sql import submitting
from pydantic_ai_a2a.server.store.sqlite.execution import perform

from ....suites.credentials import with_sealed
from ....suites.values import LEASE, OWNER, WINDOW, message
from .conftest import empty_database

SLOT = Slot('holder', LEASE)
NOW = 1_000
PLAIN = message(new='t', context='c')
FULL = replace(PLAIN, request=b'{}', traceparent='00-1-2-01', dialect='0.3')


@pytest.fixture
def connections() -> Iterator[list[sqlite3.Connection]]:
    """Two equal databases. Both have the conversation `c`."""
    with empty_database() as one, empty_database() as other:
        for connection in (one, other):
            connection.create_function('a2a_clock', 0, lambda: NOW)
            connection.execute(
                'INSERT INTO conversation (agent, owner, id, head_id, revision, updated_at, record)'
                " VALUES ('agent', ?, 'c', 'head', 'r', 1, x'7b7d')",
                (OWNER,),
            )
        yield [one, other]


def send(connection: sqlite3.Connection, submission: Submission, queue_limit: int = 2) -> Any:
    """Submit a message together with a free slot, and return the result or the error."""
    transaction = submitting.submit('agent', submission, queue_limit=queue_limit, idempotency_window=WINDOW, slot=SLOT)
    try:
        return replace(perform(connection, transaction), undo=None)
    except Exception as error:
        return type(error), str(error)


def use_separate_statements(message: Submission, slot: Slot | None) -> bool:
    """Leave each message to the separate statements."""
    return False


def rows(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    """Return all rows of the tables that a message may change, without the place in the queue."""
    connection.execute('UPDATE task SET queue_seq = 0')
    tables = ('task', 'item', 'event', 'credential', 'conversation')
    return {table: connection.execute(f'SELECT * FROM {table}').fetchall() for table in tables}


@pytest.mark.parametrize(
    'submissions',
    [
        [PLAIN],
        [FULL],
        [replace(FULL, logged=False, context_id='new')],
        [with_sealed(PLAIN)],
        [PLAIN, PLAIN],
        [PLAIN, replace(PLAIN, task_id='u')],
        [PLAIN, replace(PLAIN, task_id='u', digest=b'other')],
        [PLAIN, message('more', to='t'), message('more', new='u', message_id='message more for t')],
        [PLAIN, message(new='u', context='c'), message(new='v', context='w')],
        [PLAIN, *(message(new=name, context='c') for name in 'uvw')],
        [replace(PLAIN, owner='/', anonymous=True), replace(PLAIN, owner='/', anonymous=True, task_id='u')],
    ],
)
def test_single_statement_starts_task_like_separate_statements(
    connections: list[sqlite3.Connection], submissions: list[Submission], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = connections
    results = [send(one, submission) for submission in submissions]
    monkeypatch.setattr(submitting, 'begins_alone', use_separate_statements)
    assert results == [send(other, submission) for submission in submissions]
    assert rows(one) == rows(other)
