"""The ledger: what the agent's tools have done, in the order in which they did it, whichever process they ran in.

It is a pipe that the processes write to and the test reads: a line is written whole or not at all, is there for good
once it is written, however its process ends, and no process that is stopped can hold up another one with it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from .facts import LedgerRow

__all__ = ('Ledger', 'LedgerWriter', 'opened')


class LedgerWriter:
    """Writes the ledger, in one of the processes."""

    def __init__(self, path: str) -> None:
        self._pipe = os.open(path, os.O_WRONLY)

    def write(self, row: LedgerRow) -> None:
        """Add a line; it is shorter than what a pipe takes in one piece."""
        os.write(self._pipe, json.dumps(row).encode() + b'\n')


class Ledger:
    """All lines so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[LedgerRow] = []
        self._rest = b''
        self._more = asyncio.Event()

    def read(self, pipe: int) -> None:
        """Take what has come."""
        *lines, self._rest = (self._rest + os.read(pipe, 65536)).split(b'\n')
        self.rows += [LedgerRow(*json.loads(line)) for line in lines]
        self._more.set()
        self._more = asyncio.Event()

    async def find(self, wanted: Callable[[LedgerRow], bool], *, after: int = 0) -> LedgerRow:
        """The first row after so many that is wanted; waits for it."""
        while True:
            for row in self.rows[after:]:
                if wanted(row):
                    return row
            after = len(self.rows)
            await self._more.wait()


@contextmanager
def opened(path: Path) -> Generator[Ledger]:
    """A new ledger, read by the running loop."""
    os.mkfifo(path)
    ledger = Ledger(path)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # also for writing: without a writer it would be at its end
    asyncio.get_running_loop().add_reader(pipe, ledger.read, pipe)
    try:
        yield ledger
    finally:
        asyncio.get_running_loop().remove_reader(pipe)
        os.close(pipe)
