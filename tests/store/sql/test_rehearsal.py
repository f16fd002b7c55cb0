"""The database of a rehearsal: its writes are undone, and its reads are those of the database."""

from __future__ import annotations

from pydantic_ai_a2a.store.sql.database import Rehearsal
from pydantic_ai_a2a.store.sql.ports import SqlEvents, SqlReader
from pydantic_ai_a2a.store.sqlite.memory import MemoryBackend

from ...suites.values import OWNER, message, submit


async def test_a_rehearsal_reads_what_is_stored_and_sees_the_readers() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    rehearsal = Rehearsal(backend)
    await submit(backend, message(new='t'))
    assert await SqlReader(rehearsal).load('t', OWNER) == await backend.reader.load('t', OWNER)
    assert not SqlEvents(rehearsal).watched('t')
    reader = backend.events.subscribe('t', lambda: None)
    assert SqlEvents(rehearsal).watched('t')
    reader.close()
