"""The numbered steps from an empty database to the newest schema. Each adds something; none is ever changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..errors import BackendUnusable
from .schema import SCHEMA
from .transaction import Transaction

__all__ = ('MIGRATIONS', 'Migrations', 'missing')

Migrations: TypeAlias = Sequence[Sequence[str]]
"""The statements of each step."""

MIGRATIONS: Migrations = (SCHEMA,)

CREATE_VERSION = 'CREATE TABLE IF NOT EXISTS a2a_schema (version INTEGER NOT NULL)'
READ_VERSION = 'SELECT COALESCE(MAX(version), 0) FROM a2a_schema'


def missing(migrations: Migrations) -> Transaction[None]:
    """Take the steps that a database lacks, in a transaction that locks out everybody else who does.

    Raises:
        BackendUnusable: The database has steps that this version of the package does not know.
    """
    yield CREATE_VERSION, ()
    rows = yield READ_VERSION, ()
    version: int = rows[0][0]
    if version > len(migrations):
        raise BackendUnusable(
            f'it was written by a newer version of pydantic-ai-a2a (schema {version}, and this version knows'
            f' {len(migrations)}): upgrade the package, or use another database'
        )
    for number, statements in enumerate(migrations[version:], version + 1):
        for statement in statements:
            yield statement, ()
        yield 'INSERT INTO a2a_schema (version) VALUES (?)', (number,)
