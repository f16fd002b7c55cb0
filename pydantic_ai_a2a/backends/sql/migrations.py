"""The numbered steps from an empty database to the newest schema.

The first step creates the tables of `schema`. A release that changes them appends a step. A step that was released is
never changed, because stores count the steps that they have taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent
from typing import TypeAlias

from ...errors import BackendUnusable
from .schema import CREDENTIALS, INDEXES, SCHEMA
from .transaction import Transaction

__all__ = ('MIGRATIONS', 'Migrations', 'missing', 'script', 'version')

Migrations: TypeAlias = Sequence[Sequence[str]]
"""The statements of each step."""

MIGRATIONS: Migrations = (SCHEMA, CREDENTIALS, (), INDEXES, ())
"""The third and the fifth step change functions of PostgreSQL alone: see `postgres.functions`."""

CREATE_VERSION = 'CREATE TABLE IF NOT EXISTS a2a_schema (version INTEGER NOT NULL)'
READ_VERSION = 'SELECT COALESCE(MAX(version), 0) FROM a2a_schema'


def missing(migrations: Migrations) -> Transaction[None]:
    """Take the steps that a database lacks. The transaction keeps out others who take steps.

    Raises:
        BackendUnusable: The database has steps that this version of the package does not know.
    """
    yield CREATE_VERSION, ()
    taken = yield from version(migrations)
    for number, statements in enumerate(migrations[taken:], taken + 1):
        for statement in statements:
            yield statement, ()
        yield 'INSERT INTO a2a_schema (version) VALUES (?)', (number,)


def version(migrations: Migrations) -> Transaction[int]:
    """Return how many steps a database has taken.

    Raises:
        BackendUnusable: The database has taken more steps than this version of the package knows.
    """
    rows = yield READ_VERSION, ()
    taken: int = rows[0][0]
    if taken > len(migrations):
        raise BackendUnusable(
            'it was written by a newer version of pydantic-ai-a2a, or by one from before the first release (schema'
            f' {taken}, and this version knows {len(migrations)}): upgrade the package, or use another database'
        )
    return taken


def script(migrations: Migrations, taken: int, first: Sequence[str] = ()) -> str:
    """Return the steps after the first `taken` ones as SQL, or an empty string if there are none.

    Nothing else may change the schema of the database while the SQL is executed.
    """
    lines: list[str] = []
    for number, statements in enumerate(migrations[taken:], taken + 1):
        lines += [f'-- Step {number}', *(f'{dedent(statement).strip()};' for statement in statements)]
        lines.append(f'INSERT INTO a2a_schema (version) VALUES ({number});')
    before = [f'{statement};' for statement in ('BEGIN', *first, CREATE_VERSION)]
    return '\n'.join([*before, *lines, 'COMMIT;', '']) if lines else ''
