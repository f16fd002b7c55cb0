"""The errors of SQLite which mean that the file cannot be used now, and their texts for the log."""

from __future__ import annotations

import sqlite3

from ....errors import StoreUnavailable

_AWAY = frozenset({
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
})  # fmt: skip
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT: 'the file is damaged',
    sqlite3.SQLITE_NOTADB: 'the file is damaged, or is not a database',
}


def _code(error: BaseException) -> int:
    """The primary result code: the lowest byte. 0 for an error that is not SQLite's."""
    return getattr(error, 'sqlite_errorcode', 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """True if other processes lock the file, or recover it after a crash."""
    return _code(error) == sqlite3.SQLITE_BUSY


def reason_of(error: BaseException) -> str:
    """The error with SQLite's name for it, for logs and commands."""
    if not (code := _code(error)):
        return str(error)
    reason = f'{error} ({getattr(error, "sqlite_errorname", code)})'
    return f'{_DAMAGED[code]}: {reason}. Restore it from a backup' if code in _DAMAGED else reason


def translated_error(error: BaseException) -> BaseException:
    """The error that callers get: `StoreUnavailable` if the file may be usable later."""
    if _code(error) not in _AWAY:
        return error
    unavailable = StoreUnavailable(reason_of(error))
    unavailable.__cause__ = error
    return unavailable
