"""The statements and payloads of notifications between processes."""

from __future__ import annotations

from urllib.parse import quote

from .settings import Postgres
from .sql_translation import CLOCK


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
