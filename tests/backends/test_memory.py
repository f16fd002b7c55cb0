from __future__ import annotations

import sqlite3

import pytest

from pydantic_ai_a2a.backends.memory import SqliteBackend


def test_a_sqlite_that_lacks_what_is_needed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, 'sqlite_version_info', (3, 34, 1))
    monkeypatch.setattr(sqlite3, 'sqlite_version', '3.34.1')
    with pytest.raises(RuntimeError, match=r'SQLite 3\.34\.1 is too old; 3\.35 or later is needed'):
        SqliteBackend('agent', reader_lag=1)
