"""The numbered steps from an empty database to the newest schema. Each adds something; none is ever changed."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent
from typing import TypeAlias

from ...errors import BackendUnusable
from . import checkpoints, contexts, conversations, dead_letters, deliveries, notice, pauses, quotas, submit, totals
from .schema import LISTS, SCHEMA, TURN
from .transaction import Transaction

__all__ = ('MIGRATIONS', 'Migrations', 'missing', 'script', 'version')

Migrations: TypeAlias = Sequence[Sequence[str]]
"""The statements of each step."""

MIGRATIONS: Migrations = (
    SCHEMA,
    checkpoints.MIGRATION,
    dead_letters.MIGRATION,
    quotas.MIGRATION,
    deliveries.MIGRATION,
    pauses.MIGRATION,
    checkpoints.TAKEN,
    (*contexts.MIGRATION, *notice.MIGRATION, *conversations.MIGRATION, *submit.MIGRATION),
    quotas.PAID,
    deliveries.OWNERS,
    contexts.QUEUED_COLUMN,
    TURN,
    dead_letters.STORAGE,
    contexts.ROUND_COLUMN,
    totals.COUNTED,
    LISTS,
    totals.MIGRATION,
)

CREATE_VERSION = 'CREATE TABLE IF NOT EXISTS a2a_schema (version INTEGER NOT NULL)'
READ_VERSION = 'SELECT COALESCE(MAX(version), 0) FROM a2a_schema'


def missing(migrations: Migrations) -> Transaction[None]:
    """Take the steps that a database lacks, in a transaction that locks out everybody else who does.

    Raises:
        BackendUnusable: The database has steps that this version of the package does not know.
    """
    yield CREATE_VERSION, ()
    known = yield from version(migrations)
    for number, statements in enumerate(migrations[known:], known + 1):
        for statement in statements:
            yield statement, ()
        yield 'INSERT INTO a2a_schema (version) VALUES (?)', (number,)


def version(migrations: Migrations) -> Transaction[int]:
    """How many steps a database that counts them has taken.

    Raises:
        BackendUnusable: More than this version of the package knows.
    """
    rows = yield READ_VERSION, ()
    taken: int = rows[0][0]
    if taken > len(migrations):
        raise BackendUnusable(
            f'it was written by a newer version of pydantic-ai-a2a (schema {taken}, and this version knows'
            f' {len(migrations)}): upgrade the package, or use another database'
        )
    return taken


def script(migrations: Migrations, known: int, first: Sequence[str] = ()) -> str:
    """The steps after one, as SQL for a database that nobody else changes meanwhile; empty if there are none."""
    lines: list[str] = []
    for number, statements in enumerate(migrations[known:], known + 1):
        lines += [f'-- Step {number}', *(f'{dedent(statement).strip()};' for statement in statements)]
        lines.append(f'INSERT INTO a2a_schema (version) VALUES ({number});')
    before = [f'{statement};' for statement in ('BEGIN', *first, CREATE_VERSION)]
    return '\n'.join([*before, *lines, 'COMMIT;', '']) if lines else ''
