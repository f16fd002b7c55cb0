"""A file that an older version of the package has written is brought up to date, with what is in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.backends.sql import deliveries, totals
from pydantic_ai_a2a.backends.sql.migrations import MIGRATIONS
from pydantic_ai_a2a.backends.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.backends.sqlite.connect import SqliteFile, connect
from pydantic_ai_a2a.ports import Backend
from pydantic_ai_a2a.testing.push import lease
from pydantic_ai_a2a.testing.values import AT, OWNER, READER_LAG, claim, conversation, events, history, run, turn
from pydantic_ai_a2a.types import TaskQuery, TaskState

TASK = (
    'INSERT INTO task (agent, id, owner, context_id, state, status_at, status_message, queue_seq, fence, attempt, run,'
    " last_event, inbox_read, dialect, failure) VALUES ('agent', ?, '/ada', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '1.0', ?)"
)
ITEM = "INSERT INTO item (seq, agent, task_id, kind, id, body) VALUES (?, 'agent', ?, ?, ?, ?)"
INBOX = (
    'INSERT INTO inbox (seq, agent, owner, replay_key, digest, task_id, item, after_event, accepted_at)'
    " VALUES (?, 'agent', '/ada', ?, x'00', ?, ?, 0, ?)"
)
RECORD = (
    b'{"conversation_id":"c","head_id":"done.1.0","scope":"/ada","branches":[],"revision":"done.1",'
    b'"updated_at":"2023-11-14T22:13:20Z","format_version":1,"usage":{"requests":2}}'
)
PROMPT = b'{"parts":[{"content":"hi","timestamp":"2023-11-14T22:13:20Z","part_kind":"user-prompt"}],"kind":"request"}'
WHY = b'{"messageId":"w","role":"ROLE_AGENT","parts":[],"metadata":{"correlationId":"dead.1.4"}}'

LISTS: list[tuple[str | None, TaskState | None]] = [
    (OWNER, None),
    (OWNER, 'failed'),
    (OWNER, 'working'),
    (None, None),
    (None, 'completed'),
]
"""Lists of tasks: owner and state."""


def says(task_id: str, context_id: str, text: str) -> bytes:
    """A message as it is stored."""
    return b'{"messageId":"m-%s","role":"ROLE_USER","parts":[{"text":"%s"}],"taskId":"%s","contextId":"%s"}' % (
        task_id.encode(),
        text.encode(),
        task_id.encode(),
        context_id.encode(),
    )


def write_first_schema(path: Path) -> None:
    """A file of the first schema, with a completed, a dead and a queued task, and the conversation of the first."""
    with closing(connect(SqliteFile(path=path), MIGRATIONS[:1])) as connection:
        tasks = (
            ('done', 'c', 'completed', AT, None, 1, 1, 1, 1, 2, 1, None),
            ('dead', 'd', 'failed', AT, WHY, 2, 4, 4, 1, 2, 2, 'attempts'),
            ('queued', 'c', 'submitted', AT, None, 3, 0, 0, 0, 0, 0, None),
        )
        connection.executemany(TASK, tasks)
        for seq, (task_id, context_id, *_) in enumerate(tasks, 1):
            connection.execute(ITEM, (seq, task_id, 'message', f'm-{task_id}', says(task_id, context_id, 'hi')))
            connection.execute(INBOX, (seq, f'm-{task_id}', task_id, seq, AT))
        connection.execute(
            "INSERT INTO event (agent, task_id, n, state, payload) VALUES ('agent', 'done', 2, 'completed', x'7b7d')"
        )
        connection.execute(
            'INSERT INTO conversation (agent, owner, id, head_id, revision, updated_at, record)'
            " VALUES ('agent', '/ada', 'c', 'done.1.0', 'done.1', ?, ?)",
            (AT, RECORD),
        )
        connection.execute(
            "INSERT INTO entry (agent, owner, id, message) VALUES ('agent', '/ada', 'done.1.0', ?)", (PROMPT,)
        )


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    """That of such a file, opened by this version."""
    write_first_schema(tmp_path / 'agent.db')
    made = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=READER_LAG)
    yield made
    made.close()


async def test_tasks_and_conversations_of_the_first_schema_are_there_and_go_on(backend: Backend) -> None:
    assert await history(backend, 'done') == ['hi']
    assert [event.n for event in await events(backend, 'done', after=1)] == [2]
    assert await conversation(backend, 'c') == ['hi']
    await run(backend, 'queued', messages=turn('more', 'said'), usage=RunUsage(requests=1))
    assert await conversation(backend, 'c') == ['hi', 'more', 'said']
    record = await backend.conversations(OWNER).read_record('c')
    assert record is not None
    assert record.usage.requests == 3


async def test_tasks_and_conversations_of_the_first_schema_are_in_the_totals(backend: Backend, tmp_path: Path) -> None:
    pages = [await backend.reader.list(TaskQuery(owner=owner, state=state)) for owner, state in LISTS]
    assert [page.total for page in pages] == [3, 1, 0, 3, 1]
    with closing(sqlite3.connect(tmp_path / 'agent.db')) as connection:
        statement, values = totals.count('agent', None, [totals.CONVERSATIONS])
        assert connection.execute(statement, values).fetchall() == [(1,)]


async def test_a_task_of_the_first_schema_that_was_started_too_often_is_a_dead_letter(backend: Backend) -> None:
    [letter] = await backend.housekeeping.dead_letters()
    assert (letter.task_id, letter.attempts, letter.correlation_id) == ('dead', 3, 'dead.1.4')
    await backend.housekeeping.retry('dead', new_id='again', at=AT)
    claims = await claim(backend)
    assert [(each.header.id, each.attempt, each.checkpoint) for each in claims] == [
        ('queued', 1, None),
        ('again', 1, None),
    ]


async def test_what_the_first_schema_holds_of_an_owner_is_erased(backend: Backend, tmp_path: Path) -> None:
    await backend.queue.cancel('queued', OWNER, at=AT)
    while await backend.housekeeping.erase(OWNER, at=AT):
        pass
    with closing(sqlite3.connect(tmp_path / 'agent.db')) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        counts = {name: connection.execute(f'SELECT COUNT(*) FROM {name}').fetchone()[0] for name in tables}
    assert {name for name, count in counts.items() if count} == {'a2a_schema', 'a2a_boot'}  # nobody's


async def test_a_webhook_of_an_older_schema_gets_what_it_was_not_told_as_its_owners(tmp_path: Path) -> None:
    older = MIGRATIONS[: MIGRATIONS.index(deliveries.OWNERS)]
    with closing(connect(SqliteFile(path=tmp_path / 'agent.db'), older)) as connection:
        connection.execute(TASK, ('t', 'c', 'completed', AT, None, 1, 1, 1, 1, 2, 1, None))
        connection.execute(
            'INSERT INTO push_config (seq, agent, task_id, id, version, takes, body, due_at)'
            " VALUES (7, 'agent', 't', 'c', '1.0', 0, x'', 0)"
        )
        connection.execute(
            'INSERT INTO delivery (agent, task_id, config, id, n, state, payload)'
            " VALUES ('agent', 't', 7, 'd', 2, 'completed', x'7b7d')"
        )
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=READER_LAG)
    assert await lease(backend, limit=1, held={OWNER: 1}) == []
    assert [each.id for each in await lease(backend, limit=1)] == ['d']
    backend.close()
