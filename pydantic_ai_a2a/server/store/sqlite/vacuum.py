"""The compaction of a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from ....errors import BackendUnusable
from .connect import connect, unusable
from .free_pages import SHRINKS
from .settings import SqliteFile


def vacuum(file: SqliteFile) -> None:
    """Rewrite the file without deleted data, and empty the WAL. Writes of other processes wait.

    Later sweeps return the free pages of the file to the disk, also for files of older versions.

    Raises:
        BackendUnusable: Other processes use the file for longer than the time-out, or the disk has no room for a copy.
    """
    try:
        with closing(connect(file)) as connection:
            connection.execute(SHRINKS)
            # A copy of the whole file may exceed the memory, and folders for temporary files may be small or read-only.
            connection.execute('PRAGMA temp_store = FILE')
            connection.execute(f'PRAGMA temp_store_directory = {_literal(str(file.path.parent))}')
            connection.execute('VACUUM')
            in_use: int = connection.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()[0]
    except sqlite3.Error as error:
        raise unusable(file, error) from error
    if in_use:
        raise BackendUnusable(
            f'The WAL of {file.path} cannot be emptied, because other connections still read the WAL: try again later.'
        )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
