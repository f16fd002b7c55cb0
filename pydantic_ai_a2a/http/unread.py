"""Ends the connections of requests that are answered before their bodies were read. Knows no operation.

Else a client that has been refused could hold its connection open with a body that never ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Message, Receive, Scope, Send

__all__ = ('CLOSE', 'closing', 'discarding', 'has_body')

_REST = 64_000_000
"""Bytes of a refused body that are discarded at most."""
_REST_TIME = 5.0
"""Seconds for which a refused body is discarded at most."""

CLOSE = ('Connection', 'close')
"""The header that ends a connection with an answer."""
_RAW = (b'connection', b'close')


def has_body(scope: Scope) -> bool:
    """Whether a request has a body that holds up its connection: with HTTP/2, it holds up nothing else."""
    if scope.get('http_version', '1.1')[0] != '1':
        return False
    return any(
        name == b'transfer-encoding' or (name == b'content-length' and value != b'0')
        for name, value in scope['headers']
    )


def closing(scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """What to serve a request with, so that its connection ends if it is answered before its body has been read."""
    if not has_body(scope):
        return receive, send
    unread = True

    async def receive_too() -> Message:
        nonlocal unread
        message = await receive()
        unread = bool(message.get('more_body'))
        return message

    async def send_and_close(message: Message) -> None:
        if unread and message['type'] == 'http.response.start':
            headers = list(message.get('headers', ()))
            if _RAW not in headers:
                message = {**message, 'headers': [*headers, _RAW]}
        await send(message)

    return receive_too, send_and_close


def discarding(receive: Receive, send: Send) -> Send:
    """Send an answer to a client that is still sending: discard what it sends for a while before the answer ends.

    A server closes the connection when the answer ends. If a client then sends more, the connection is reset, and the
    client may lose the answer. Many clients read an answer only after they have sent the whole body.
    """

    async def send_and_discard(message: Message) -> None:
        if message['type'] != 'http.response.body':
            await send(message)
            return
        await send({**message, 'more_body': True})
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_TIME):
                await _discard(receive)
        await send({'type': 'http.response.body', 'body': b''})

    return send_and_discard


async def _discard(receive: Receive) -> None:
    left = _REST
    while left > 0:
        message = await receive()
        if not message.get('more_body'):
            return
        left -= len(message.get('body', b''))
