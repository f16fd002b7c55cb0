"""One thread, one connection: what is committed together, what goes first, and what a failure reaches."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.server.store.sqlite.connection_thread import ConnectionThread
from pydantic_ai_a2a.server.store.sqlite.group_commit import QueuedTransaction, commit, read

from ....app_client import LIMIT


class Writer:
    """A writer on a table of its own, and the statements that it has executed."""

    def __init__(self, path: Path) -> None:
        self.statements: list[str] = []
        self.published: list[Any] = []
        self._path = path
        self.thread = ConnectionThread('writer', self._connect, commit)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        connection.execute('PRAGMA foreign_keys = ON')  # a reference to nothing is noticed by COMMIT
        connection.execute('CREATE TABLE IF NOT EXISTS said (word TEXT PRIMARY KEY) WITHOUT ROWID')
        connection.execute(
            'CREATE TABLE IF NOT EXISTS answer (word TEXT REFERENCES said DEFERRABLE INITIALLY DEFERRED)'
        )
        connection.set_trace_callback(self.statements.append)
        return connection

    def put(self, make: Callable[[], Transaction[Any]], *, first: bool = False) -> Future[Any]:
        future: Future[Any] = Future()

        def answer(result: Any, error: BaseException | None) -> None:
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.thread.put(QueuedTransaction(make, answer, self.published.append), first=first)
        return future

    def say(self, word: str) -> Future[str]:
        return self.put(partial(insert_word, word))


def insert_word(word: str) -> Transaction[str]:
    yield 'INSERT INTO said (word) VALUES (?)', (word,)
    return word


def insert_dangling_reference(word: str) -> Transaction[str]:
    yield 'INSERT INTO answer (word) VALUES (?)', (word,)
    return f'to {word}'


def select_words() -> Transaction[list[str]]:
    return [row[0] for row in (yield 'SELECT word FROM said ORDER BY word', ())]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / 'desk.db')
    yield made
    made.thread.stop()


def block_writer(desk: Writer) -> tuple[Future[Any], threading.Event]:
    """Keep the writer busy until the event is set."""
    busy, go_on = threading.Event(), threading.Event()

    def wait() -> Transaction[None]:
        busy.set()
        assert go_on.wait(LIMIT)
        yield 'SELECT 1', ()

    held = desk.put(wait)
    assert busy.wait(LIMIT)
    return held, go_on


def test_waiting_transactions_are_committed_together_in_order(writer: Writer) -> None:
    held, go_on = block_writer(writer)
    said = [writer.say(word) for word in ('a', 'b', 'c')]
    writer.statements.clear()
    go_on.set()
    held.result(LIMIT)
    assert [each.result(LIMIT) for each in said] == ['a', 'b', 'c']
    frame = [each for each in writer.statements if each.startswith(('BEGIN', 'COMMIT'))]
    assert frame == ['COMMIT', 'BEGIN IMMEDIATE', 'COMMIT']  # that of the one before, and one for all three
    assert writer.published == [None, 'a', 'b', 'c']


def test_failed_transaction_does_not_affect_batch(writer: Writer) -> None:
    def say_and_fail() -> Transaction[None]:
        yield from insert_word('nothing')
        raise LookupError('on purpose')

    held, go_on = block_writer(writer)
    said, failed, twice, after = writer.say('a'), writer.put(say_and_fail), writer.say('a'), writer.say('b')
    go_on.set()
    held.result(LIMIT)
    assert (said.result(LIMIT), after.result(LIMIT)) == ('a', 'b')
    assert isinstance(failed.exception(LIMIT), LookupError)
    assert isinstance(twice.exception(LIMIT), sqlite3.IntegrityError)
    assert writer.put(select_words).result(LIMIT) == ['a', 'b']


def fail_before_write() -> Transaction[None]:
    yield from select_words()
    raise LookupError('on purpose')


def test_transaction_failing_before_write_keeps_shared_commit(writer: Writer) -> None:
    held, go_on = block_writer(writer)
    said, refused, after = writer.say('a'), writer.put(fail_before_write), writer.say('b')
    writer.statements.clear()
    go_on.set()
    held.result(LIMIT)
    assert (said.result(LIMIT), after.result(LIMIT)) == ('a', 'b')
    assert isinstance(refused.exception(LIMIT), LookupError)
    frame = [each for each in writer.statements if each.startswith(('BEGIN', 'COMMIT', 'ROLLBACK'))]
    assert frame == ['COMMIT', 'BEGIN IMMEDIATE', 'COMMIT']  # that of the one before, and one for all three
    assert writer.put(select_words).result(LIMIT) == ['a', 'b']
    assert writer.published == [None, 'a', 'b', ['a', 'b']]


def fill_disk() -> Transaction[None]:
    """Need more pages than the file may have, so that SQLite rolls back the whole transaction by itself."""
    yield 'PRAGMA max_page_count = 10', ()
    yield 'INSERT INTO answer (word) VALUES (zeroblob(1000000))', ()


def test_full_disk_fails_only_current_transaction(writer: Writer) -> None:
    held, go_on = block_writer(writer)
    said, full, after = writer.say('a'), writer.put(fill_disk), writer.say('b')
    go_on.set()
    held.result(LIMIT)
    assert (said.result(LIMIT), after.result(LIMIT)) == ('a', 'b')
    failed = full.exception(LIMIT)
    assert isinstance(failed, StoreUnavailable)
    assert failed.detail == 'database or disk is full (SQLITE_FULL)'
    assert writer.put(select_words).result(LIMIT) == ['a', 'b']


def test_failed_commit_retries_each_transaction_alone(writer: Writer) -> None:
    held, go_on = block_writer(writer)
    said, dangling, after = writer.say('a'), writer.put(partial(insert_dangling_reference, 'nobody')), writer.say('b')
    go_on.set()
    held.result(LIMIT)
    assert (said.result(LIMIT), after.result(LIMIT)) == ('a', 'b')
    assert 'FOREIGN KEY' in str(dangling.exception(LIMIT))
    assert writer.put(select_words).result(LIMIT) == ['a', 'b']
    assert writer.published == [None, 'a', 'b', ['a', 'b']]


def test_urgent_transaction_goes_first(writer: Writer) -> None:
    held, go_on = block_writer(writer)
    said = [writer.say(f'{n:03}') for n in range(150)]
    heart = writer.put(select_words, first=True)
    go_on.set()
    held.result(LIMIT)
    assert heart.result(LIMIT) == []
    assert [each.result(LIMIT) for each in said] == [f'{n:03}' for n in range(150)]


def test_locked_file_fails_waiting_but_not_later_transactions(writer: Writer, tmp_path: Path) -> None:
    assert writer.say('a').result(LIMIT) == 'a'
    other = sqlite3.connect(tmp_path / 'desk.db', isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    failed = writer.say('b').exception(LIMIT)
    assert isinstance(failed, StoreUnavailable)
    assert 'locked' in str(failed.__cause__)
    other.execute('COMMIT')
    other.close()
    assert writer.say('c').result(LIMIT) == 'c'


def test_failed_open_is_retried_with_next_transaction(tmp_path: Path) -> None:
    writer = Writer(tmp_path / 'folder' / 'desk.db')
    failed = writer.say('a').exception(LIMIT)
    assert isinstance(failed, StoreUnavailable)
    assert failed.detail == 'unable to open database file (SQLITE_CANTOPEN)'
    (tmp_path / 'folder').mkdir()
    assert writer.say('b').result(LIMIT) == 'b'
    writer.thread.stop()


def test_stopped_thread_finishes_work_and_restarts(writer: Writer) -> None:
    writer.thread.stop()  # nothing to stop
    said = writer.say('a')
    writer.thread.stop()
    assert said.done()
    assert writer.say('b').result(LIMIT) == 'b'


def test_read_connection_rolls_back_and_survives_errors(writer: Writer, tmp_path: Path) -> None:
    assert writer.say('a').result(LIMIT) == 'a'
    reader = Writer(tmp_path / 'desk.db')
    reader.thread = ConnectionThread(
        'reader', partial(sqlite3.connect, tmp_path / 'desk.db', isolation_level=None), read
    )
    failed = reader.put(partial(insert_word, 'a'))
    assert isinstance(failed.exception(LIMIT), sqlite3.IntegrityError)
    assert reader.say('left behind').result(LIMIT) == 'left behind'
    assert reader.put(select_words).result(LIMIT) == ['a']
    reader.thread.stop()
