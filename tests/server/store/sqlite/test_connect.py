"""Which file a URL names, what becomes of an older one, and which files are refused."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_ai_a2a.errors import BackendUnusable, StoreUnavailable
from pydantic_ai_a2a.server.store.sql.migrations import MIGRATIONS, newest
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.connect import connect, stored_version
from pydantic_ai_a2a.server.store.sqlite.opened_file import OpenedFile
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.server.store.sqlite.vacuum import vacuum


@pytest.fixture
def file(tmp_path: Path) -> SqliteFile:
    return SqliteFile(path=tmp_path / 'agent.db', busy_timeout=0.03)


def test_sqlite_url_names_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert SqliteFile.of('sqlite:///agent.db') == SqliteFile(path=tmp_path / 'agent.db')
    assert SqliteFile.of('sqlite:////var/lib/my%20agent.db?synchronous=NORMAL') == SqliteFile(
        path=Path('/var/lib/my agent.db'), synchronous='normal'
    )


@pytest.mark.parametrize(
    ('url', 'said'),
    [
        ('sqlite://agent.db', "names no file: write 'sqlite:///relative/path.db' or 'sqlite:////absolute/path.db'"),
        ('sqlite:agent.db', 'names no file'),
        ('sqlite:/agent.db', 'names no file'),
        ('sqlite://', 'names no file'),
        ('sqlite:///', 'names no file'),
        ('sqlite:///folder/', 'names no file'),
        ('sqlite:///agent.db#1', 'names no file'),
        ('sqlite:///:memory:', "For tasks in memory, write 'memory'"),
        ('sqlite:///agent.db?mode=ro', "unknown option 'mode': the only option is synchronous"),
        ('sqlite:///agent.db?synchronous=off', "synchronous is 'full' or 'normal', not 'off'"),
    ],
)
def test_invalid_sqlite_url_is_refused_with_correction(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        SqliteFile.of(url)


@pytest.mark.parametrize(('synchronous', 'level'), [('full', 2), ('normal', 1)])
def test_connection_uses_synchronous_setting_of_url(tmp_path: Path, synchronous: str, level: int) -> None:
    connection = connect(SqliteFile.of(f'sqlite:///{tmp_path}/agent.db?synchronous={synchronous}'))
    assert connection.execute('PRAGMA synchronous').fetchone() == (level,)
    assert connection.execute('PRAGMA journal_mode').fetchone() == ('wal',)
    assert connection.execute('PRAGMA busy_timeout').fetchone() == (10_000,)
    connection.close()


def test_failed_migration_leaves_no_changes(file: SqliteFile) -> None:
    with pytest.raises(BackendUnusable, match='syntax error'):
        connect(file, [['CREATE TABLE one (word TEXT)'], ['CREATE nonsense']])
    connection = connect(file, [])
    assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'one'").fetchall() == []
    connection.close()


def test_newer_compatible_file_is_used(file: SqliteFile) -> None:
    connect(file, [*MIGRATIONS, []]).close()
    connect(file).close()
    assert stored_version(file) == newest(MIGRATIONS) + 1


def test_file_of_another_program_is_refused(file: SqliteFile) -> None:
    other = sqlite3.connect(file.path)
    other.execute('CREATE TABLE task (title TEXT)')
    other.close()
    with pytest.raises(BackendUnusable, match=r'agent\.db cannot be used: table task already exists'):
        connect(file)


def test_non_database_file_is_refused(file: SqliteFile) -> None:
    file.path.write_bytes(b'not a database, but as long as the head of one' * 10)
    with pytest.raises(
        BackendUnusable, match=r'agent\.db cannot be used: the file is damaged, or is not a database: file is'
    ):
        connect(file)


def test_damaged_file_is_refused(file: SqliteFile) -> None:
    connect(file).close()
    content = file.path.read_bytes()
    file.path.write_bytes(content[:100] + b'\xff' * (len(content) - 100))
    with pytest.raises(BackendUnusable, match=r'agent\.db cannot be used: the file is damaged: database disk image'):
        connect(file)


def test_folder_as_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendUnusable, match='cannot be used: unable to open database file'):
        connect(SqliteFile.of(f'sqlite:///{tmp_path}'))


def test_file_in_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendUnusable) as refused:
        connect(SqliteFile.of(f'sqlite:///{tmp_path}/nowhere/agent.db'))
    assert str(refused.value) == (
        f'The SQLite file {tmp_path}/nowhere/agent.db cannot be made: there is no folder {tmp_path}/nowhere.'
    )


def test_file_without_shared_wal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an empty file of this name is made
    with pytest.raises(BackendUnusable, match=r"no shared memory for the WAL \(the journal mode stays 'mem"):
        connect(SqliteFile(path=Path(':memory:')))


def test_locked_file_can_be_opened_later(file: SqliteFile) -> None:
    other = sqlite3.connect(file.path, isolation_level=None)
    other.execute('BEGIN EXCLUSIVE')
    with pytest.raises(sqlite3.OperationalError, match='database is locked'):
        connect(file)
    other.execute('COMMIT')
    connect(file).close()
    other.close()


def test_vacuum_fails_while_another_connection_reads(file: SqliteFile) -> None:
    connect(file).close()
    other = sqlite3.connect(file.path, isolation_level=None)
    other.execute('BEGIN')
    other.execute('SELECT * FROM task').fetchall()
    with pytest.raises(
        BackendUnusable,
        match=r'agent\.db cannot be emptied, because other connections still read the WAL: try again later',
    ):
        vacuum(file)
    other.execute('COMMIT')
    vacuum(file)
    assert file.path.with_name('agent.db-wal').stat().st_size == 0
    other.close()


def test_vacuum_fails_while_another_connection_writes(file: SqliteFile) -> None:
    connect(file).close()
    other = sqlite3.connect(file.path, isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    with pytest.raises(BackendUnusable, match=r'agent\.db cannot be used: database is locked'):
        vacuum(file)
    other.close()


def test_old_sqlite_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, 'sqlite_version_info', (3, 34, 1))
    monkeypatch.setattr(sqlite3, 'sqlite_version', '3.34.1')
    with pytest.raises(RuntimeError, match=r'SQLite 3\.34\.1 is too old; 3\.35 or later is needed'):
        SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=1)


def test_connection_is_refused_after_wal_was_deleted(tmp_path: Path) -> None:
    opened = OpenedFile(SqliteFile(path=tmp_path / 'agent.db'))
    with closing(opened.connect(writes=True)):
        (tmp_path / 'agent.db-wal').unlink()
        with pytest.raises(StoreUnavailable) as refused:
            opened.connect()
    assert (
        refused.value.detail
        == f'{tmp_path}/agent.db-wal was deleted or replaced while it is open. Restart this process.'
    )
