"""The numbered steps from an empty database to the newest schema.

The first step creates the tables of `schema`. A release that changes them appends a step. A step that was released is
never changed, because stores count the steps that they have taken.

Processes of the version before go on, and start, beside a new step. So steps add tables, indexes, functions, and
columns with constant defaults. A step that changes something else raises `min_reader`.

Indexes of older tables are a step of their own: PostgreSQL creates them beside the writes of running processes.

Indexes have short conditions: for a list of three values or more, SQLite fills a table in memory each time that it
checks the condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import dedent
from typing import TypeAlias

from ....errors import BackendUnusable
from .schema import APPROVALS, ENGINES, KEEPS_UP, KEEPS_UP_INDEXES, NEXT_TASKS, SCHEMA
from .transaction import Transaction

Migrations: TypeAlias = Sequence[Sequence[str]]
"""The statements of each step."""
MIGRATIONS: Migrations = (SCHEMA, KEEPS_UP, KEEPS_UP_INDEXES, ENGINES, APPROVALS, NEXT_TASKS)
FIRST = 7
"""Number of the first step. Versions from before the first release have taken steps up to 6."""
CREATE_VERSION = 'CREATE TABLE IF NOT EXISTS a2a_schema (version INTEGER NOT NULL)'
READ_VERSION = 'SELECT COALESCE(MAX(version), 0) FROM a2a_schema'
_READ_MIN_READER = 'SELECT MAX(min_reader) FROM a2a_schema'


def newest(migrations: Migrations) -> int:
    """Return the number of the last step."""
    return FIRST + len(migrations) - 1


def after(migrations: Migrations, taken: int) -> Iterator[tuple[int, Sequence[str]]]:
    """Return the numbers and the statements of the steps after the step `taken`; 0: a database without tables."""
    return ((number, step) for number, step in enumerate(migrations, FIRST) if number > taken)


def missing(migrations: Migrations) -> Transaction[None]:
    """Take the steps that a database lacks. The transaction keeps out others who take steps.

    Raises:
        BackendUnusable: See `version`.
    """
    yield CREATE_VERSION, ()
    for number, statements in after(migrations, (yield from version(migrations))):
        for statement in statements:
            yield statement, ()
        yield 'INSERT INTO a2a_schema (version) VALUES (?)', (number,)


def version(migrations: Migrations) -> Transaction[int]:
    """Return the number of the last step that a database has taken; 0 if it has taken none.

    A newer version of the package may have taken steps that this version does not know.

    Raises:
        BackendUnusable: This version of the package cannot use the database.
    """
    rows = yield READ_VERSION, ()
    taken: int = rows[0][0]
    if taken and taken < FIRST:
        raise BackendUnusable(
            f'it was written by a version of pydantic-ai-a2a from before the first release (schema {taken}): use'
            ' another database'
        )
    if taken > newest(migrations):
        [(min_reader,)] = yield _READ_MIN_READER, ()
        if min_reader > newest(migrations):
            raise BackendUnusable(
                f'it was written by a newer version of pydantic-ai-a2a (schema {taken}, for versions that know'
                f' {min_reader}, and this version knows {newest(migrations)}): upgrade the package, or use another'
                ' database'
            )
    return taken


def steps(migrations: Migrations, taken: int, first: Sequence[str] = ()) -> list[str]:
    """Return the statements of a transaction that takes the steps after the step `taken`; an empty list if none.

    Nothing else may change the schema of the database meanwhile.
    """
    lines: list[str] = []
    for number, statements in after(migrations, taken):
        version = f'INSERT INTO a2a_schema (version) VALUES ({number})'
        head, *rest = *(dedent(statement).strip() for statement in statements), version
        lines += [f'-- Step {number}\n{head}', *rest]
    return ['BEGIN', *first, CREATE_VERSION, *lines, 'COMMIT'] if lines else []


def script(statements: Sequence[str]) -> str:
    """Return statements as the text of a file."""
    return ''.join(f'{statement};\n' for statement in statements)
