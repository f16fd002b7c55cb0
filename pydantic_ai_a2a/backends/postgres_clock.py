"""What time it is for all machines that share a PostgreSQL database: its own. Knows no statement but the one that asks.

Leases are compared with those of other machines, whose clocks nobody has to keep together.
"""

from __future__ import annotations

import time

import asyncpg

__all__ = ('Clock',)

_ASK = 'SELECT CAST(EXTRACT(epoch FROM clock_timestamp()) * 1000 AS BIGINT)'


class Clock:
    """The database's clock, as it was when it was asked last: when a connection is opened, and then now and again."""

    def __init__(self) -> None:
        self._ahead = 0
        """Milliseconds that it is ahead of this machine's."""

    def now(self) -> int:
        """The time (ms), from any thread; this machine's before the first answer."""
        return _here() + self._ahead

    async def ask(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Ask the database, over a connection that does nothing else now."""
        asked = _here()
        there = await connection.fetchval(_ASK)
        took = _here() - asked
        ahead = there - asked - took // 2
        if abs(ahead - self._ahead) > took:  # else it may be but the time that the question was under way
            self._ahead = ahead


def _here() -> int:
    return time.time_ns() // 1_000_000
