"""Notices a client that goes while its request is still being read."""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.types import Message, Receive


class ClientWatch:
    """Notices that a client goes before its body was read, and keeps the part of the body that comes meanwhile."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[asyncio.Future[Message]] = deque()

    async def receive(self) -> Message:
        """Return the next message, a kept one first."""
        return await (self._kept.popleft() if self._kept else self._receive())

    async def gone(self) -> None:
        """Return once the client has gone; never while parts of the body follow, which are not taken yet."""
        while True:
            if not self._kept or self._kept[-1].done():
                self._kept.append(asyncio.ensure_future(self._receive()))
            await asyncio.wait([self._kept[-1]])
            message = self._kept[-1].result()
            if message['type'] == 'http.disconnect':
                return
            if message.get('more_body'):
                await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Listen no longer."""
        for message in self._kept:
            message.cancel()
