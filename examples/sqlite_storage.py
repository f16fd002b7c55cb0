"""A FastA2A storage in an SQLite file: tasks and conversations outlive the process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from fasta2a.schema import Artifact, Message, Task, TaskState, TaskStatus
from fasta2a.storage import Storage
from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

T = TypeVar('T')

TASK = TypeAdapter(Task)
SCHEMA = """
CREATE TABLE IF NOT EXISTS task (id TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS context (id TEXT PRIMARY KEY, body BLOB NOT NULL);
"""


class SqliteStorage(Storage[list[ModelMessage]]):
    """Each task and each context is one row of JSON. Every call is one transaction, in a thread."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        with self._connect() as connection:
            connection.executescript('PRAGMA journal_mode = WAL;' + SCHEMA)
        connection.close()

    async def load_task(self, task_id: str, history_length: int | None = None) -> Task | None:
        task = await self._run(lambda connection: read_task(connection, task_id))
        if task is not None and history_length is not None:
            history = task.get('history', [])
            task['history'] = history[len(history) - history_length :] if history_length < len(history) else history
        return task

    async def submit_task(self, context_id: str, message: Message) -> Task:
        task_id = str(uuid4())
        first: Message = {**message, 'task_id': task_id, 'context_id': context_id}
        task = Task(id=task_id, context_id=context_id, status=status('submitted'), history=[first])
        await self._run(lambda connection: write_task(connection, task))
        return task

    async def update_task(
        self,
        task_id: str,
        state: TaskState,
        new_artifacts: list[Artifact] | None = None,
        new_messages: list[Message] | None = None,
    ) -> Task:
        def update(connection: sqlite3.Connection) -> Task:
            task = read_task(connection, task_id)
            if task is None:
                raise LookupError(task_id)
            context_id = task['context_id']
            task['status'] = status(state)
            task['artifacts'] = [*task.get('artifacts', ()), *(new_artifacts or ())]
            said: list[Message] = [
                {**each, 'task_id': task_id, 'context_id': context_id} for each in new_messages or ()
            ]
            task['history'] = [*task.get('history', ()), *said]
            write_task(connection, task)
            return task

        return await self._run(update)

    async def load_context(self, context_id: str) -> list[ModelMessage] | None:
        def load(connection: sqlite3.Connection) -> list[ModelMessage] | None:
            row = connection.execute('SELECT body FROM context WHERE id = ?', (context_id,)).fetchone()
            return None if row is None else ModelMessagesTypeAdapter.validate_json(row[0])

        return await self._run(load)

    async def update_context(self, context_id: str, context: list[ModelMessage]) -> None:
        body = ModelMessagesTypeAdapter.dump_json(context)
        await self._run(lambda connection: write(connection, 'context', context_id, body))

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def transaction() -> T:
            connection = self._connect()
            try:
                connection.execute('BEGIN IMMEDIATE')
                result = work(connection)
                connection.execute('COMMIT')
                return result
            finally:
                connection.close()  # and with it what was not committed

        return await asyncio.to_thread(transaction)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None)


def status(state: TaskState) -> TaskStatus:
    return TaskStatus(state=state, timestamp=datetime.now(UTC).isoformat())


def read_task(connection: sqlite3.Connection, task_id: str) -> Task | None:
    row = connection.execute('SELECT body FROM task WHERE id = ?', (task_id,)).fetchone()
    return None if row is None else TASK.validate_json(row[0])


def write_task(connection: sqlite3.Connection, task: Task) -> None:
    write(connection, 'task', task['id'], TASK.dump_json(task, by_alias=True))


def write(connection: sqlite3.Connection, table: str, key: str, body: bytes) -> None:
    connection.execute(f'INSERT OR REPLACE INTO {table} (id, body) VALUES (?, ?)', (key, body))
