"""Health over HTTP, for supervisors that restart processes and load balancers that send them traffic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from ..runs.host import Component
from .base import NO_SNIFF

__all__ = ('LIVE_PATH', 'READY_PATH', 'Live', 'Ready')

logger = logging.getLogger('pydantic_ai_a2a')

LIVE_PATH = '/health/live'
READY_PATH = '/health/ready'
_LIMIT = 2.0
"""Seconds that the backend gets to answer."""

_READY = frozenset({'ok', 'idle', 'off', 'degraded'})


class Live:
    """`/health/live`: HTTP 200 as long as the process answers at all."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD."""
        await _answer(scope, send, 200, {'live': True})


class Ready:
    """`/health/ready`: HTTP 200 if this process should get traffic, else 503; and how each component is.

    Args:
        components: The states of the components that the process knows itself; `server` among them.
        read: Reads something small from the backend. Called only once the server has begun, like `write`.
        write: Writes something small to the backend, as `Backend.check_writes` does.
    """

    def __init__(
        self,
        components: Callable[[], Mapping[str, Component]],
        read: Callable[[], Awaitable[Any]],
        write: Callable[[], Awaitable[None]],
    ) -> None:
        self._components = components
        self._read = read
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD."""
        components = dict(self._components())
        components['backend'] = 'idle' if components['server'] == 'idle' else await self._backend()
        ready = _READY.issuperset(components.values())
        await _answer(scope, send, 200 if ready else 503, {'ready': ready, 'components': components})

    async def _backend(self) -> Component:
        try:
            async with asyncio.timeout(_LIMIT):
                await self._read()
        except Exception:  # whatever the driver of a database raises; the caller reads that it failed, the log why
            logger.exception('The backend cannot be read; %s answers that this process is not ready.', READY_PATH)
            return 'failed'
        try:
            async with asyncio.timeout(_LIMIT):
                await self._write()
        except Exception as error:  # as above
            logger.error('The backend cannot be written: %r; %s answers HTTP 503.', error, READY_PATH)
            return 'read-only'
        return 'ok'


async def _answer(scope: Scope, send: Send, status: int, content: Mapping[str, Any]) -> None:
    body = to_json(content)
    headers = [
        (b'content-type', b'application/json'),
        (b'content-length', b'%d' % len(body)),
        (b'cache-control', b'no-store'),
        NO_SNIFF,
    ]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': b'' if scope['method'] == 'HEAD' else body})
