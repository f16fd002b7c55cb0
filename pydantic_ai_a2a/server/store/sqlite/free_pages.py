"""The free pages of a SQLite database, which go back to the disk or the system."""

from __future__ import annotations

from ..sql.transaction import Transaction

SHRINKS = 'PRAGMA auto_vacuum = INCREMENTAL'
"""Lets `give_back` return free pages, for a database without a table."""
PAGES = 100
"""Free pages that are given back in one transaction at most."""


def give_back() -> Transaction[int]:
    """Return free pages to the disk or the system, and count them. Files without `SHRINKS` have none to return."""
    free = min((yield 'PRAGMA freelist_count', ())[0][0], PAGES)
    for _ in range(free):
        yield 'PRAGMA incremental_vacuum(1)', ()  # Python's driver frees one page a statement
    return free
