"""The numbers of finished tasks and of conversations, for the limits of `Retention`. Pure, like `sql`.

The table `kept` has a sum of each. A sweep adds new rows to the sum: they have `counted = 0` until then. A row that
something else than a sweep deletes stays in the sum, so the sum may be too high, but never too low. All rows are
counted only if the sum is above the limit. So a sweep without work reads a few rows, however many are stored.
"""

from __future__ import annotations

from .transaction import Transaction, Write

__all__ = ('ENDED', 'MIGRATION', 'add', 'count_new', 'surplus')

ENDED = "state IN ('completed', 'failed', 'canceled', 'rejected')"
MIGRATION = (
    'CREATE TABLE kept (agent TEXT NOT NULL, name TEXT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (agent, name))',
    'ALTER TABLE task ADD COLUMN counted INTEGER NOT NULL DEFAULT 0',
    'ALTER TABLE conversation ADD COLUMN counted INTEGER NOT NULL DEFAULT 0',
    f'CREATE INDEX task_uncounted ON task (agent, counted) WHERE counted = 0 AND {ENDED}',
    'CREATE INDEX conversation_uncounted ON conversation (agent, counted) WHERE counted = 0',
)
_ROWS = {'task': f'FROM task WHERE agent = ? AND {ENDED}', 'conversation': 'FROM conversation WHERE agent = ?'}
_SET = (
    'INSERT INTO kept (agent, name, number) VALUES (?, ?, ?)'
    ' ON CONFLICT (agent, name) DO UPDATE SET number = excluded.number'
)
_BATCH = 500
"""New rows that one sweep counts at most. The next sweep counts the rest."""


def surplus(agent: str, table: str, limit: int, exempt: int = 0) -> Transaction[int]:
    """Return how many rows of a table, 'task' or 'conversation', are above a limit that leaves out `exempt` rows."""
    rows = yield (
        'SELECT (SELECT number FROM kept WHERE agent = ? AND name = ?),'
        f' (SELECT COUNT(*) FROM (SELECT 1 {_ROWS[table]} AND counted = 0 LIMIT ?) AS uncounted)',
        (agent, table, agent, _BATCH),
    )
    number, new = rows[0]
    if number is None or number + new - exempt > limit:
        new_rows = f'(SELECT COUNT(*) {_ROWS[table]} AND counted = 0)'
        rows = yield f'SELECT (SELECT COUNT(*) {_ROWS[table]}) - {new_rows}, {new_rows}', (agent, agent, agent)
        number, new = rows[0]
        yield [(_SET, [(agent, table, number)])]
    return max(0, number + new - exempt - limit)


def count_new(agent: str, table: str) -> Transaction[None]:
    """Add new rows of a table to its sum. It is the last step of a sweep, which waits for no lock after it."""
    key = 'id' if table == 'task' else 'owner, id'
    rows = yield (
        f'UPDATE {table} SET counted = 1 WHERE agent = ? AND ({key}) IN (SELECT {key} {_ROWS[table]} AND counted = 0'
        ' LIMIT ? /* FOR UPDATE SKIP LOCKED */) RETURNING 1',
        (agent, agent, _BATCH),
    )
    if rows:
        yield [add(agent, table, len(rows))]


def add(agent: str, table: str, number: int) -> Write:
    """Change the sum of a table."""
    return 'UPDATE kept SET number = number + ? WHERE agent = ? AND name = ?', [(number, agent, table)]
