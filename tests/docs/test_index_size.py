"""The page on PostgreSQL finds indexes that have grown, and makes them small again."""

from __future__ import annotations

import asyncpg

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.store import PostgresBackend

from ..suites import READER_LAG
from .blocks import ROOT, blocks

ROWS = """
    INSERT INTO a2a.entry (agent, owner, id, message)
    SELECT 'agent', '/', lpad(to_hex(n), 12, '0') || md5(n::text), '{}' FROM generate_series(1, 30000) n
"""
OLD = "DELETE FROM a2a.entry WHERE ('x' || substr(id, 1, 12))::bit(48)::bigint % 25 <> 0"


async def test_an_index_that_has_grown_is_found_and_made_small(postgres_url: str) -> None:
    find, repair = [block.text for block in blocks(ROOT / 'docs' / 'postgresql.md') if block.language == 'sql']
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    connection = await asyncpg.connect(postgres_url)
    try:
        await backend.queued()
        await connection.execute(ROWS)
        await connection.execute('VACUUM ANALYZE a2a.entry')
        assert await connection.fetch(find) == []
        await connection.execute(OLD)
        await connection.execute('VACUUM ANALYZE a2a.entry')
        [index] = await connection.fetch(find)
        assert (index['index'], index['rows']) == ('a2a.entry_pkey', 1200)
        await connection.execute(repair)
        assert await connection.fetch(find) == []
    finally:
        await connection.close()
        backend.close()
