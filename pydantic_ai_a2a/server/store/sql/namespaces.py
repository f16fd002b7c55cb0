"""What the processes of a namespace serve, and which other namespaces a store has.

A process that serves an agent has a second row in `process`, beside the one that `peers` writes: its `id` goes on with
a space and the name and the skills of the card. The row hears no notifications, so processes of earlier versions do not
notice it.
"""

from __future__ import annotations

from typing import NamedTuple

from . import peers
from .transaction import LockName, Transaction

_ANNOUNCE = (
    'INSERT INTO process (agent, id, until, hears) VALUES (?, ?, a2a_clock() + ?, 0)'
    ' ON CONFLICT (agent, id) DO UPDATE SET until = excluded.until'
)
_SERVED = "SELECT id FROM process WHERE agent = ? AND until > a2a_clock() AND id LIKE '% %'"
_HAS_DATA = ' OR '.join(f'EXISTS (SELECT 1 FROM {table} WHERE agent = ?)' for table in ('task', 'conversation'))


def _namespaces_of(table: str) -> str:
    """Return the query for the namespaces of a table, with one look-up in an index for each namespace."""
    return (
        f'SELECT agent FROM (WITH RECURSIVE names (agent) AS (SELECT MIN(agent) FROM {table} UNION ALL'
        f' SELECT (SELECT MIN({table}.agent) FROM {table} WHERE {table}.agent > names.agent) FROM names'
        f' WHERE agent IS NOT NULL) SELECT agent FROM names WHERE agent IS NOT NULL) AS of_{table}'
    )


NAMESPACES = f'{_namespaces_of("task")} UNION {_namespaces_of("conversation")} UNION SELECT agent FROM queue ORDER BY 1'
"""The namespaces with tasks, with conversations, or with a paused queue."""


class Neighbors(NamedTuple):
    """What a process meets in its store."""

    services: list[str]
    """What other living processes of the namespace serve."""
    namespaces: list[str]
    """The other namespaces, if this one has no data."""


def announce(agent: str, process: str, service: str, lease: int) -> Transaction[None]:
    """Write what a process serves, for so many milliseconds; 0 at its end."""
    yield LockName((agent, 'processes'))
    yield [(peers.FORGET_PROCESSES, [(agent,)]), (_ANNOUNCE, [(agent, f'{process} {service}', lease)])]


def neighbors(agent: str, process: str) -> Transaction[Neighbors]:
    """Read what a process meets in its store."""
    served = [row[0].partition(' ') for row in (yield _SERVED, (agent,))]
    services = {service for other, _, service in served if other != process}
    names: list[str] = []
    if not (yield f'SELECT 1 WHERE {_HAS_DATA}', (agent, agent)):
        names = [row[0] for row in (yield NAMESPACES, ()) if row[0] != agent]
    return Neighbors(sorted(services), names)
