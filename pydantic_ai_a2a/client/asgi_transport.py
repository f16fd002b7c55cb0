"""HTTP to an ASGI app in this process, with answers that stream.

Httpx2's own transport collects a whole answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextvars import Context
from typing import Any

import httpx2
from starlette.types import ASGIApp

from ..clock import STOP_TIME

logger = logging.getLogger('pydantic_ai_a2a')

_AHEAD = 16
"""Most messages of an answer that wait for the reader."""


class StreamingTransport(httpx2.AsyncBaseTransport):
    """Sends requests to an ASGI app, and reads each piece of an answer as soon as the app sends the piece.

    Args:
        app: The app.
        context: Returns the context variables of a request. Default: none.
    """

    def __init__(self, app: ASGIApp, context: Callable[[], Context] = Context) -> None:
        self._app = app
        self._context = context

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; return when the answer has begun."""
        timeouts: Mapping[str, float | None] = request.extensions.get('timeout', {})
        answer = _ResponseStream(self._app, request, await request.aread(), timeouts.get('read'), self._context())
        try:
            start = await answer.next()
        except BaseException:
            await answer.aclose()
            raise
        return httpx2.Response(start['status'], headers=start['headers'], stream=answer, request=request)


class _ResponseStream(httpx2.AsyncByteStream):
    def __init__(
        self, app: ASGIApp, request: httpx2.Request, body: bytes, timeout: float | None, context: Context
    ) -> None:
        self._body: bytes | None = body
        self._name = f'{request.method} {request.url.path}'
        self._timeout = timeout
        """Longest silence of the app, in seconds; None for no limit."""
        self._messages = asyncio.Queue[MutableMapping[str, Any] | None]()
        self._room = asyncio.Semaphore(_AHEAD)
        self._serving = asyncio.create_task(self._serve(app, _scope(request)), context=context)

    async def next(self) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(self._timeout):
                message = await self._messages.get()
        except TimeoutError as error:
            raise httpx2.ReadTimeout('The app is silent.') from error
        if message is None:
            await self._serving  # the app's own error, if it has one
            raise httpx2.RemoteProtocolError('The app has ended without an answer.')
        self._room.release()
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self.next()
            more = message.get('more_body', False)
            yield message.get('body', b'')

    async def aclose(self) -> None:
        self._serving.cancel()
        await asyncio.wait((self._serving,), timeout=STOP_TIME)
        if not self._serving.done():
            logger.warning('An app in this process goes on with %s although its caller has left.', self._name)
        elif not self._serving.cancelled():
            self._serving.exception()  # the caller has left, and asyncio would log the error of the app

    async def _serve(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._messages.put_nowait(None)

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self._room.acquire()
        self._messages.put_nowait(message)

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {'type': 'http.request', 'body': body, 'more_body': False}
        return await asyncio.Future()  # `aclose` cancels the app


def _scope(request: httpx2.Request) -> dict[str, Any]:
    url = request.url
    return {
        'type': 'http',
        'asgi': {'version': '3.0'},
        'http_version': '1.1',
        'method': request.method,
        'headers': [(name.lower(), value) for name, value in request.headers.raw],
        'scheme': url.scheme,
        'path': url.path,
        'raw_path': url.raw_path.partition(b'?')[0],
        'query_string': url.query,
        'server': (url.host, url.port),
        'client': ('127.0.0.1', 0),
        'root_path': '',
    }
