"""The store in memory: its size is counted, and no write of it is long."""

from __future__ import annotations

import gc
import sqlite3
from contextlib import suppress
from datetime import timedelta
from functools import partial
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any

import pytest

from pydantic_ai_a2a.errors import OverloadedError
from pydantic_ai_a2a.server.store.ports import Bucket, Charge, ExportedConversation, PushConfig, Slot, Swept
from pydantic_ai_a2a.server.store.sql.event_port import SqlEvents
from pydantic_ai_a2a.server.store.sql.reader_port import SqlReader
from pydantic_ai_a2a.server.store.sql.rehearsal import Rehearsal
from pydantic_ai_a2a.server.store.sqlite.free_pages import PAGES
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskEvent
from pydantic_ai_a2a.wire.protocol import stored, stored_values

from ....suites.values import OWNER, START, claim_and_finish, erase, message, model_turn, state_of, submit


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that are opened."""
    opened: list[sqlite3.Connection] = []

    class Connection(sqlite3.Connection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            opened.append(self)

    monkeypatch.setattr(sqlite3, 'connect', partial(sqlite3.connect, factory=Connection))
    return opened


def pages(database: sqlite3.Connection) -> int:
    return database.execute('PRAGMA page_count').fetchone()[0]


@pytest.mark.parametrize('text', ['hello' * 1_000, 'hello' * 20_000])
async def test_empty_or_erased_store_has_size_zero(text: str) -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    assert backend.size == 0
    hook = PushConfig(id='a', version='1.0', takes='chunks', body=b'address')
    await submit(backend, message('ask', new='t', context='c'))
    assert backend.push_configs is not None
    await backend.push_configs.create('t', OWNER, hook, limit=1)
    artifacts = [(name, stored_values.dump_artifact({'artifact_id': name, 'parts': [{'text': text}]})) for name in 'ab']
    events = [TaskEvent(n, None, stored.artifact_update('t', 'c', body)) for n, (_, body) in enumerate(artifacts, 3)]
    messages = model_turn('hi', text)
    await claim_and_finish(backend, 't', after=4, messages=messages, artifacts=artifacts, events=events)
    assert backend.size > len(text)
    while await erase(backend, OWNER, at=START):
        pass
    assert backend.size == 0


async def test_sweep_frees_memory_of_erased_task(connections: list[sqlite3.Connection]) -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    assert backend.size == 0
    [database] = connections
    empty = pages(database)
    await submit(backend, message('x' * 3_000_000, new='t'))
    await claim_and_finish(backend, 't')
    assert await backend.housekeeping.erase_task('t', OWNER, at=START)
    assert pages(database) > 5 * (empty + PAGES)
    await backend.housekeeping.sweep(Retention(), at=START)
    assert pages(database) <= empty + 1


async def test_long_conversation_is_exported_without_disk() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    await submit(backend, message(new='t', context='c'))
    await claim_and_finish(backend, 't', messages=model_turn('hi', 'x' * 10_000) * 1_000)
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (0, hard))
    try:
        exported = [each async for each in backend.housekeeping.export(OWNER) if isinstance(each, ExportedConversation)]
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
    assert [len(each.messages) for each in exported] == [2_000]


async def test_store_works_after_failed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
            if statement == 'COMMIT' and fails:
                raise sqlite3.OperationalError(fails.pop())
            return super().execute(statement, *args)

    fails: list[str] = []
    monkeypatch.setattr(sqlite3, 'connect', partial(sqlite3.connect, factory=Connection))
    backend = MemoryBackend('agent', reader_lag=10**6)
    await submit(backend, message(new='t'))
    fails.append('out of memory')
    with pytest.raises(sqlite3.OperationalError, match='out of memory'):
        await submit(backend, message(new='u'))
    assert await state_of(backend, 't') == 'submitted'
    assert await backend.reader.load('u', OWNER) is None
    await submit(backend, message(new='u'))
    assert await state_of(backend, 'u') == 'submitted'


async def test_message_exceeding_memory_limit_is_refused() -> None:
    limit = 1_000_000
    backend = MemoryBackend('agent', reader_lag=10**6, max_bytes=limit)
    backend.take_room(245_000)
    with pytest.raises(OverloadedError):
        backend.take_room(250_000)
    stored = 0
    with suppress(OverloadedError):
        while stored < limit:
            await submit(backend, message('a' * 3_000, new=f'{stored}'))
            await claim_and_finish(backend, f'{stored}')
            stored += 3_000
    assert limit * 0.9 < backend.size < limit
    while await erase(backend, OWNER, at=START):
        pass
    await submit(backend, message('a' * 3_000, new='t'))


async def test_full_buckets_and_expired_charges_are_swept_in_batches() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    for n in range(600):
        assert await backend.quotas.take(Bucket(f'{n}', 'requests', 1000, 2), at=START) == 0
        await backend.quotas.charge([Charge('/ada', 1000, START + n, 1, 1, 1)])
    assert await backend.housekeeping.sweep(Retention(), at=START + 1000) == Swept(rows=1000, full=True)
    assert await backend.housekeeping.sweep(Retention(), at=START + 1000) == Swept(rows=200)
    assert not await backend.housekeeping.sweep(Retention(), at=START + 1000)


async def test_erased_anonymous_message_is_not_replayed() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    await submit(backend, message(new='t', owner='/', message_id='short'))
    await claim_and_finish(backend, 't')
    assert await backend.queue.claim(Slot('holder', 1), at=START, limit=1, task_id='t') == []
    assert await backend.housekeeping.erase_task('t', '/', at=START)
    assert not (await submit(backend, message(new='t', owner='/', message_id='short'))).replayed


async def test_sweep_deletes_long_conversations_in_separate_steps() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    for context in 'ab':
        await submit(backend, message(new=context, context=context))
        await claim_and_finish(backend, context, messages=model_turn('hi', 'hello') * 300)
    keep = Retention(contexts=timedelta(seconds=1))
    steps = [(await backend.housekeeping.sweep(keep, at=START + 2000)).rows for _ in range(4)]
    assert (sum(steps), max(steps)) == (1202, 502)


def test_database_is_closed_when_backend_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[None] = []

    class Connection(sqlite3.Connection):
        def close(self) -> None:
            closed.append(None)
            super().close()

    monkeypatch.setattr(sqlite3, 'connect', partial(sqlite3.connect, factory=Connection))
    backend = MemoryBackend('agent', reader_lag=10**6)
    assert backend.size == 0
    backend.close()
    assert closed == []
    del backend
    gc.collect()
    assert closed == [None]


async def test_rehearsal_reads_stored_tasks_and_subscribers() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    rehearsal = Rehearsal(backend)
    await submit(backend, message(new='t'))
    assert await SqlReader(rehearsal).load('t', OWNER) == await backend.reader.load('t', OWNER)
    assert not SqlEvents(rehearsal).watched('t')
    reader = backend.events.subscribe('t', lambda: None)
    assert SqlEvents(rehearsal).watched('t')
    reader.close()
