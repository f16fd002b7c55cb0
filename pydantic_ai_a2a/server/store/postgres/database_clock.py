"""The wall clock of a PostgreSQL database, which is the same for all machines that share the database."""

from __future__ import annotations

import asyncpg

from ....clock import SYSTEM, Clock
from .sql_translation import CLOCK


class DatabaseClock(Clock):
    """Estimates the database's wall clock from this machine's steady clock, which nobody sets.

    The database is asked whenever a connection is opened, and every few seconds while the process listens. Leases do
    not depend on this estimate: the statements that write and compare them read the database's clock themselves.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ahead = SYSTEM.now() - SYSTEM.steady()
        """Milliseconds that the database's wall clock is ahead of the steady clock; before the first answer, this
        machine's wall clock."""

    def now(self) -> int:
        return self.steady() + self._ahead

    async def ask(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Ask the database for the time over a connection that is idle."""
        asked = self.steady()
        there = await connection.fetchval(f'SELECT {CLOCK}')
        took = self.steady() - asked
        ahead = there - asked - took // 2
        if abs(ahead - self._ahead) > took:  # a smaller difference may be network delay
            self._ahead = ahead
