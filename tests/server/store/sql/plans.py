"""What the statements of a transaction are, and how PostgreSQL finds their rows."""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai_a2a.server.store.postgres.sql_translation import translated
from pydantic_ai_a2a.server.store.sql.transaction import Statement, Transaction

NUMBERS = (
    'WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last})'
    ' SELECT n FROM numbers'
)
"""A query for the numbers from the first to the last."""


def recording(transaction: Transaction[Any], statements: list[Statement]) -> Transaction[Any]:
    """The transaction; its statements are added to a list."""
    rows: Any = None
    try:
        while True:
            step = transaction.send(rows)
            if type(step) is tuple:
                statements.append(step)
            rows = yield step
    except StopIteration as stop:
        return stop.value


async def touched_pages(connection: Any, statement: str, values: tuple[Any, ...]) -> int:
    """Return how many pages of tables and indexes PostgreSQL touches for a statement that changes nothing."""
    explain = f'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {translated(statement)}'
    plan = json.loads(await connection.fetchval(explain, *values))[0]['Plan']
    return plan['Shared Hit Blocks'] + plan['Shared Read Blocks']


async def plan_of(connection: Any, statement: str, values: tuple[Any, ...]) -> str:
    rows = await connection.fetch(f'EXPLAIN {translated(statement)}', *values)
    return '\n'.join(row[0] for row in rows)
