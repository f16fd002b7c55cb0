"""Health over HTTP, for supervisors that restart processes and load balancers that send them traffic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from ..runs.loop_host import ComponentState
from .replies import NO_SNIFF

logger = logging.getLogger('pydantic_ai_a2a')

LIVE_PATH = '/health/live'
READY_PATH = '/health/ready'
PATIENCE = 2.0
"""Seconds until the backend must have answered."""

_READY = frozenset({'ok', 'idle', 'off', 'degraded', 'paused'})


class Live:
    """`/health/live`: HTTP 200 as long as the process answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD."""
        await answer_health(scope, send, 200, {'live': True})


class Ready:
    """`/health/ready`: HTTP 200 if this process should get traffic, else 503, with the state of each component.

    Args:
        components: Returns the states of the process's own components, such as `server`.
        read: Reads a little from the backend. `read` and `write` are called only once the server has begun.
        write: Writes a little to the backend, like `Backend.check_writes`.
    """

    def __init__(
        self,
        components: Callable[[], Mapping[str, ComponentState]],
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
        await answer_health(scope, send, 200 if ready else 503, {'ready': ready, 'components': components})

    async def _backend(self) -> ComponentState:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._read()
        except Exception:  # drivers of databases raise errors of their own, which only the log shows
            logger.exception('The backend cannot be read; %s answers HTTP 503.', READY_PATH)
            return 'failed'
        try:
            async with asyncio.timeout(PATIENCE):
                await self._write()
        except Exception as error:  # as above
            logger.error('The backend cannot be written: %r; %s answers HTTP 503.', error, READY_PATH)
            return 'read-only'
        return 'ok'


async def answer_health(scope: Scope, send: Send, status: int, content: Mapping[str, Any]) -> None:
    """Answer with health as JSON, which is never cached."""
    body = to_json(content)
    headers = [
        (b'content-type', b'application/json'),
        (b'content-length', b'%d' % len(body)),
        (b'cache-control', b'no-store'),
        NO_SNIFF,
    ]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': b'' if scope['method'] == 'HEAD' else body})
