"""The SQLite library of this Python, which has to be new enough."""

from __future__ import annotations

import sqlite3

_MINIMUM = (3, 35, 0)


def check_version() -> None:
    """Refuse a SQLite library that lacks what the statements need.

    Raises:
        RuntimeError: It is older than 3.35.
    """
    if sqlite3.sqlite_version_info < _MINIMUM:
        raise RuntimeError(
            f'SQLite {sqlite3.sqlite_version} is too old; 3.35 or later is needed (RETURNING). Use a newer Python.'
        )
