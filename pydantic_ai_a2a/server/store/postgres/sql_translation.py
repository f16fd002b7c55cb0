"""Translation of the shared SQL for PostgreSQL: numbered parameters, column types, locks and notifications."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from urllib.parse import quote

from ..sql.transaction import ContextKey, LockName
from .settings import Postgres

CLOCK = 'CAST(EXTRACT(epoch FROM clock_timestamp()) * 1000 AS BIGINT)'
"""The database's clock (ms since the epoch), as it is when the expression is evaluated."""
_IDLE_LIMIT = 5000
"""Time limit of the database for the next statement of a transaction (ms)."""
WRITE = 'ISOLATION LEVEL READ COMMITTED READ WRITE'
"""Isolation of writes: a statement after a lock sees the writes of earlier lock holders."""
READ = 'ISOLATION LEVEL REPEATABLE READ READ ONLY'
"""Isolation of reads: all statements of a transaction see the same state."""


@lru_cache(maxsize=1024)
def translated(statement: str) -> str:
    """A statement with `$1` for the first `?`, the database's clock, and what is there for PostgreSQL alone."""
    numbers = count(1)
    numbered = re.sub(r'\?', lambda _: f'${next(numbers)}', statement)
    return re.sub(r'/\*(.*?)\*/', r'\1', numbered.replace('a2a_clock()', CLOCK))


def begin(settings: Postgres, options: str = WRITE, *, context: ContextKey | None = None) -> str:
    """Begin a transaction with all settings: behind a pooler, each transaction has another connection."""
    statements = [
        f'BEGIN {options}',
        f'SET LOCAL search_path TO {settings.schema}',
        f'SET LOCAL statement_timeout TO {round(settings.statement_timeout * 1000)}',
    ]
    # A process that is paused inside a transaction would hold its locks until the process continues.
    statements.append(f'SET LOCAL idle_in_transaction_session_timeout TO {_IDLE_LIMIT}')
    if context is not None:
        statements.append(lock(LockName(context)))
    return '; '.join(statements)


def lock(lock: LockName) -> str:
    """Take an advisory lock."""
    return f'SELECT pg_advisory_xact_lock({key_of(lock.name)})'


def key_of(name: tuple[str, ...]) -> int:
    """Return the number of the advisory lock of a name."""
    return int.from_bytes(blake2b('\0'.join(name).encode(), digest_size=8).digest(), signed=True)


def channel(process: str) -> str:
    """Return the channel on which a process is notified."""
    return f'a2a_{process}'


def notify(
    settings: Postgres, agent: str, sender: str, payload: str, *, hears: int, task_id: str | None = None, wants: int = 0
) -> str:
    """Return the statement that notifies other processes of a namespace.

    Args:
        settings: The database.
        agent: Namespace.
        sender: Id of this process.
        payload: What the processes are told, without quotes.
        hears: The least `process.hears`.
        task_id: Tell only processes that read this task.
        wants: The least `reader.wants`.
    """
    named = f'{settings.schema}.process WHERE agent = {_literal(agent)}'
    condition = f"id <> '{sender}' AND hears >= {hears} AND until > {CLOCK}"
    if task_id is not None:
        readers = f'{settings.schema}.reader WHERE agent = {_literal(agent)} AND task_id = {_literal(task_id)}'
        condition += f' AND id IN (SELECT process FROM {readers} AND wants >= {wants})'
    return f"SELECT pg_notify('{channel('')}' || id, '{payload}') FROM {named} AND {condition}"


def about(task_id: str, number: int) -> str:
    """Return a part of a payload: a task and a number."""
    return f'{quote(task_id, safe="")}:{number}'


def _literal(text: str) -> str:
    """Return a text as an expression without quotes of the text, under any settings of the database."""
    return f"convert_from(decode('{text.encode().hex()}', 'hex'), 'UTF8')"
