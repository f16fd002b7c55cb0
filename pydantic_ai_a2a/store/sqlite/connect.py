"""Connections to a SQLite database: URL, opening, migration, compaction, and the threads of a file."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock, Thread, current_thread
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from ...clock import STOP_TIME, SYSTEM, Clock
from ...errors import BackendUnusable, StoreUnavailable
from ..sql.migrations import MIGRATIONS, Migrations, missing, version
from ..sql.transaction import LockName, LockTasks, Rows, Transaction, TryNames

Synchronous = Literal['full', 'normal']

_PAUSE = 0.01
"""Seconds between two attempts at a lock without a wait in SQLite."""
NOTE_CLOCK = "UPDATE a2a_boot SET clock = a2a_clock() WHERE id = ''"
"""Remember how far the steady clock has come, where the system names no boot: after a restart, the clock is behind."""
_WAL_PAGES = 4000
"""Pages of 4 kB in the WAL before SQLite copies them: 4,000 cost a commit 15 % less CPU than the default 1,000."""
SHRINKS = 'PRAGMA auto_vacuum = INCREMENTAL'
"""Lets `give_back` return free pages, for a database without a table."""
PAGES = 100
"""Free pages that are given back in one transaction at most."""
_FORM = "'sqlite:///relative/path.db' or 'sqlite:////absolute/path.db', with ?synchronous=normal if you like"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFile:
    """A database file with the write settings."""

    path: Path
    """Absolute path: the process may change the working directory."""
    synchronous: Synchronous = 'full'
    """`full`: answered writes survive a power failure. `normal`: they survive only the end of the process."""
    busy_timeout: float = 10.0
    """Seconds to wait for the write of another process."""

    @classmethod
    def of(cls, url: str) -> SqliteFile:
        """Read a URL.

        Raises:
            ValueError: The URL is malformed, or has an unknown option.
        """
        parts = urlsplit(url)
        path = unquote(parts.path)[1:]
        unnamed = not url.startswith('sqlite:///') or not path or path.endswith('/') or path == ':memory:'
        if unnamed or parts.fragment:
            raise ValueError(f'{url!r} names no file: write {_FORM}. For tasks in memory, write {"memory"!r}.')
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(path=Path(path).absolute(), synchronous=_synchronous(url, options))


def _synchronous(url: str, options: Mapping[str, str]) -> Synchronous:
    if unknown := sorted({*options} - {'synchronous'}):
        raise ValueError(f'{url!r} has the unknown option {unknown[0]!r}: the only option is synchronous.')
    chosen = options.get('synchronous', 'full').lower()
    if chosen not in ('full', 'normal'):
        raise ValueError(f"{url!r}: synchronous is 'full' or 'normal', not {chosen!r}.")
    return chosen


def connect(
    file: SqliteFile, migrations: Migrations = MIGRATIONS, *, clock: Clock = SYSTEM, writes: bool = False
) -> sqlite3.Connection:
    """Open a connection for the calling thread; create missing files and tables.

    The first writing connection (`writes`) after a boot of the machine ends all leases of earlier boots.

    Raises:
        BackendUnusable: The file is another program's, damaged, newer than the package, or cannot be opened.
        sqlite3.OperationalError: Another process locks the file for longer than the time-out.
    """
    _create(file.path)
    try:
        connection = sqlite3.connect(file.path, timeout=0, isolation_level=None)
    except sqlite3.Error as error:
        raise _unusable(file, error) from error
    try:
        tell_time(connection, clock)
        _prepare(connection, file, migrations)
        if writes:
            _end_leases_of_another_boot(connection, clock)
    except (sqlite3.Error, BackendUnusable) as error:
        connection.close()
        if isinstance(error, sqlite3.Error) and is_busy(error):
            raise
        raise _unusable(file, error) from error
    return connection


def _create(path: Path) -> None:
    """Create an empty file, readable by the owner only; SQLite gives the WAL the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileNotFoundError:
        raise BackendUnusable(f'The SQLite file {path} cannot be made: there is no folder {path.parent}.') from None
    except OSError:
        pass  # the file exists, or SQLite raises the error at its opening


def _unusable(file: SqliteFile, error: Exception) -> BackendUnusable:
    return BackendUnusable(f'The SQLite file {file.path} cannot be used: {reason_of(error)}.')


def _prepare(connection: sqlite3.Connection, file: SqliteFile, migrations: Migrations) -> None:
    mode = _use_wal(connection, time.monotonic() + file.busy_timeout)
    if mode != 'wal':
        raise BackendUnusable(
            f'its file system has no shared memory for the WAL (the journal mode stays {mode!r}):'
            ' use a file on a local disk'
        )
    connection.execute(f'PRAGMA busy_timeout = {round(file.busy_timeout * 1000)}')
    connection.execute(f'PRAGMA synchronous = {file.synchronous}')
    connection.execute(f'PRAGMA wal_autocheckpoint = {_WAL_PAGES}')
    # Sorts and statements of many rows spill. A container with a read-only root has no folder for temporary files.
    connection.execute('PRAGMA temp_store = MEMORY')
    connection.execute('BEGIN IMMEDIATE')
    perform(connection, missing(migrations))
    connection.execute('COMMIT')


def _end_leases_of_another_boot(connection: sqlite3.Connection, clock: Clock) -> None:
    """End the leases of earlier boots: the steady clock of the machine restarts at a boot.

    The table is no step of the schema, because PostgreSQL does not need the table. Any writer of the file may create
    the table.
    """
    now = clock.steady()
    connection.execute('BEGIN IMMEDIATE')
    connection.execute('CREATE TABLE IF NOT EXISTS a2a_boot (id TEXT NOT NULL, clock BIGINT NOT NULL)')
    # Without a boot id from the system, a clock below the stored clock shows that the machine has restarted.
    if not connection.execute('SELECT 1 FROM a2a_boot WHERE id = ? AND clock <= ?', (clock.boot, now)).fetchone():
        connection.execute('DELETE FROM a2a_boot')
        connection.execute('INSERT INTO a2a_boot (id, clock) VALUES (?, ?)', (clock.boot, now))
        connection.execute("UPDATE task SET lease_until = 0 WHERE state = 'working'")
        connection.execute('UPDATE push_config SET due_at = 0 WHERE due_at IS NOT NULL')
        connection.execute('DELETE FROM process')
    connection.execute('COMMIT')


def stored_version(file: SqliteFile) -> int:
    """Return the number of schema steps in a file, without changing the file; 0 if the file does not exist.

    Raises:
        BackendUnusable: The file is no database, or newer than the package.
    """
    if not file.path.exists():
        return 0
    try:
        with closing(sqlite3.connect(file.path, timeout=file.busy_timeout)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'a2a_schema'").fetchone():
                return 0
            return perform(connection, version(MIGRATIONS))
    except (sqlite3.Error, BackendUnusable) as error:
        raise _unusable(file, error) from error


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
        raise _unusable(file, error) from error
    if in_use:
        raise BackendUnusable(
            f'The WAL of {file.path} cannot be emptied, because other connections still read the WAL: try again later.'
        )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _use_wal(connection: sqlite3.Connection, until: float) -> str:
    """Switch to the WAL, with retries: two processes at once may both get "busy" at once.

    The setting for returning free pages comes first: SQLite accepts the setting only before the first page.
    """
    while True:
        try:
            if not connection.execute('PRAGMA page_count').fetchone()[0]:
                connection.execute(SHRINKS)
            return connection.execute('PRAGMA journal_mode = WAL').fetchone()[0]
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE)


# --- the errors of SQLite which mean that the file cannot be used now, and their texts for the log --------------------

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


def translated(error: BaseException) -> BaseException:
    """The error that callers get: `StoreUnavailable` if the file may be usable later."""
    if _code(error) not in _AWAY:
        return error
    unavailable = StoreUnavailable(reason_of(error))
    unavailable.__cause__ = error
    return unavailable


# --- execution of a transaction's steps on a SQLite connection, between the caller's BEGIN and COMMIT -----------------

T = TypeVar('T')
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


def tell_time(connection: sqlite3.Connection, clock: Clock) -> None:
    """Define the SQL function `a2a_clock`, by which the statements measure leases."""
    connection.create_function('a2a_clock', 0, clock.steady)


def perform(connection: sqlite3.Connection, transaction: Transaction[T]) -> T:
    """Execute the steps of a transaction in order, and return the result."""
    try:
        step = next(transaction)
        while True:
            rows: Rows = []
            match step:
                case list():
                    for statement, rows_of in step:
                        if rows_of:  # a statement without rows would be prepared
                            connection.executemany(statement, rows_of)
                case LockName() | TryNames() | LockTasks():
                    pass  # SQLite has one writer: row locks are not needed
                case _:
                    rows += connection.execute(*step)
            step = transaction.send(rows)
    except StopIteration as stop:
        return stop.value


def give_back() -> Transaction[int]:
    """Return free pages to the disk or the system, and count them. Files without `SHRINKS` have none to return."""
    free = min((yield 'PRAGMA freelist_count', ())[0][0], PAGES)
    for _ in range(free):
        yield 'PRAGMA incremental_vacuum(1)', ()  # Python's driver frees one page a statement
    return free


# --- a thread that owns one SQLite connection and runs the transactions of its queue ----------------------------------
# Writers commit in groups: all waiting jobs run in one transaction, and return after the COMMIT. The jobs have no
# savepoints, which would cost each job two statements and copies of pages: most jobs that fail have written nothing.

_GROUP = 100
"""The most jobs in one commit: an urgent job waits for one group at most, whose jobs may commit one by one."""


@dataclass(frozen=True, slots=True)
class QueuedTransaction:
    """One transaction."""

    make: Callable[[], Transaction[Any]]
    answer: Callable[[Any, BaseException | None], object]
    """Called in the thread with the result, or with why there is none."""
    publish: Callable[[Any], object] | None = None
    """Called in the thread with the result, after the commit and in the order of commits."""

    def done(self, result: Any, error: BaseException | None) -> None:
        """Publish the result, and answer."""
        if error is None and self.publish is not None:
            self.publish(result)
        self.answer(result, None if error is None else translated(error))


Work = Callable[[sqlite3.Connection, list[QueuedTransaction]], None]
"""Performs jobs, and may remove finished jobs from the list."""


def read(connection: sqlite3.Connection, jobs: list[QueuedTransaction]) -> None:
    """Perform each job in a separate read transaction."""
    while jobs:
        job, result, failed = jobs[0], None, None
        try:
            connection.execute('BEGIN')
            result = perform(connection, job.make())
        except BaseException as error:  # raised to the caller, who waits in another thread
            failed = error
        _roll_back(connection)
        jobs.pop(0)  # before done(): the next job may look for an idle thread at once
        job.done(result, failed)


def commit(connection: sqlite3.Connection, jobs: Sequence[QueuedTransaction]) -> None:
    """Perform all jobs in one commit. If it has to be rolled back, perform each job alone: a job fails for no other."""
    try:
        connection.execute('BEGIN IMMEDIATE')
    except sqlite3.Error as error:  # the file was locked for too long: jobs alone would fail too
        for job in jobs:
            job.done(None, error)
        return
    try:
        outcomes = [_outcome(connection, job) for job in jobs]
        connection.execute('COMMIT')
    except BaseException as error:
        _roll_back(connection)
        if len(jobs) == 1:
            jobs[0].done(None, error)
            return
        for job in jobs:
            commit(connection, [job])
        return
    for job, outcome in zip(jobs, outcomes, strict=True):
        job.done(*outcome)


def _outcome(connection: sqlite3.Connection, job: QueuedTransaction) -> tuple[Any, BaseException | None]:
    """Perform a job within the commit of a group. If a failed job has written, raise: the group is rolled back."""
    written = connection.total_changes
    try:
        return perform(connection, job.make()), None
    except BaseException as error:  # raised to the caller, who waits in another thread
        # SQLite may have rolled back the whole transaction, as for a full disk.
        if connection.total_changes != written or not connection.in_transaction:
            raise
        return None, error


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # report the earlier error, not the error of the rollback
        connection.rollback()


class ConnectionThread:
    """Runs jobs in order. The first job starts the thread and opens the connection.

    Args:
        name: Name of the thread.
        connect: Opens the connection, in the thread. All waiting jobs get an error; the next job tries again.
        work: Performs the waiting jobs.
    """

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection], work: Work) -> None:
        self._name = name
        self._connect = connect
        self._work = work
        self._condition = Condition()
        self._jobs: deque[QueuedTransaction] = deque()
        self._thread: Thread | None = None
        self._doing: list[QueuedTransaction] = []
        self._stopping = False

    def __len__(self) -> int:
        """The number of running and waiting jobs."""
        return len(self._doing) + len(self._jobs)

    @property
    def running(self) -> bool:
        """True from the first job to the stop."""
        return self._thread is not None

    def put(self, job: QueuedTransaction, *, first: bool = False) -> None:
        """Queue a job; with `first`, before all waiting jobs."""
        with self._condition:
            if first:
                self._jobs.appendleft(job)
            else:
                self._jobs.append(job)
            self._start()

    def wake(self) -> None:
        """Read the time of the next `poll` again."""
        with self._condition:
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._stopping = False
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._condition.notify()

    def stop(self) -> None:
        """Run the waiting jobs, and close the connection."""
        with self._condition:
            thread, self._stopping = self._thread, True
            self._condition.notify()
        if thread is not None and thread is not current_thread():  # the garbage collector may call stop() in any thread
            thread.join(STOP_TIME)

    def _run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # raised to the callers of all waiting jobs
            with self._condition:
                jobs = list(self._jobs)
                self._jobs.clear()
                self._thread = None
            for job in jobs:
                job.done(None, error)
            return
        try:
            while self._step(connection):
                pass
        finally:
            connection.close()

    def _step(self, connection: sqlite3.Connection) -> bool:
        """Run the jobs of the queue, or wait for one; return false once the thread has to end."""
        with self._condition:
            if not self._jobs and not self._stopping:
                self._condition.wait(self.due())
            if not self._jobs and self._stopping:
                self._thread = None
                return False
            jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), _GROUP))]
            self._doing = jobs
        if jobs:
            self._work(connection, jobs)
            self._doing = []
        self.poll(connection)
        return True

    def due(self) -> float | None:
        """Return the seconds until the next `poll` without a job; None for no call."""
        return None

    def poll(self, connection: sqlite3.Connection) -> None:
        """Do periodic work, between jobs."""


# --- identity of the file ---------------------------------------------------------------------------------------------
# Notices when a SQLite file is deleted or replaced while this process has it open, and when others can read it.

logger = logging.getLogger('pydantic_ai_a2a')

Identity = tuple[int, int]

_OTHERS = 0o044
"""Permission to read for group and world."""


class OpenedFile:
    """A file, as opened by the connections of this process.

    Writes to a deleted file are lost at exit, so the file is refused while its path is missing or names another file.

    Args:
        file: The file.
        clock: Measures leases.
    """

    def __init__(self, file: SqliteFile, clock: Clock = SYSTEM) -> None:
        self._file = file
        self._clock = clock
        self._lock = Lock()
        self._path = str(file.path)  # each transaction asks for the status, and a `Path` makes a string each time
        self._wal = f'{self._path}-wal'
        self._identity: Identity | None = None
        """Device and inode of the file, once there is a connection."""
        self._wal_identity: Identity | None = None
        """Device and inode of the WAL, while connections are open."""

    def connect(self, *, writes: bool = False) -> sqlite3.Connection:
        """Open a connection; see `connect` for `writes`.

        Raises:
            BackendUnusable: See `connect`.
            StoreUnavailable: It would be to another file than the connections before.
        """
        with self._lock:
            if self._identity is not None:
                self._check()
            connection = connect(self._file, clock=self._clock, writes=writes)
            self._wal_identity = self._wal_identity or _identity_of(self._wal)
            if self._identity is not None:
                return connection
            status = self._file.path.stat()
            self._identity = status.st_dev, status.st_ino
            if os.name == 'posix' and status.st_mode & _OTHERS:
                logger.warning(
                    'Other users of this machine can read the SQLite file %s (mode %04o): it holds what clients send,'
                    ' and the credentials of webhooks. Consider: chmod 600 %s',
                    self._file.path,
                    status.st_mode & 0o7777,
                    self._file.path,
                )
            return connection

    def guarded(self, work: Work) -> Work:
        """Return the work of a connection thread, refused while the file is deleted or replaced."""

        def checked(connection: sqlite3.Connection, jobs: list[QueuedTransaction]) -> None:
            try:
                self._check(connection)
            except StoreUnavailable as error:
                for job in jobs:
                    job.done(None, StoreUnavailable(error.detail))
            else:
                work(connection, jobs)

        return checked

    def closed(self) -> None:
        """All connections are closed. SQLite deletes the WAL with the last one, and the next one creates a new WAL."""
        self._wal_identity = None

    def _check(self, connection: sqlite3.Connection | None = None) -> None:
        identity = _identity_of(self._path)
        if identity != self._identity:
            happened = 'replaced by another file' if identity else 'deleted'
            raise StoreUnavailable(
                f'{self._path} was {happened} while it is open. Put the file back, or restart this process.'
            )
        if self._wal_identity and _identity_of(self._wal) != self._wal_identity:
            # SQLite deletes the WAL when another file with the name of the database is opened. This connection still
            # has the deleted WAL open. Later connections would lose its writes, so move the writes into the database
            # now.
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')
            raise StoreUnavailable(f'{self._wal} was deleted or replaced while it is open. Restart this process.')


def _identity_of(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
