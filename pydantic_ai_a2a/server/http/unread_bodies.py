"""Ends the connections of requests that are answered before their bodies were read.

Else a refused client could hold its connection open with a body that never ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Message, Receive, Scope, Send

REST = 64_000_000
"""Maximum bytes of a refused body to discard."""
REST_TIME = 5.0
"""Maximum seconds to discard a refused body."""

CLOSE = ('Connection', 'close')
"""The header that ends a connection with an answer."""
_RAW = (b'connection', b'close')


def has_body(scope: Scope) -> bool:
    """Return whether a request has a body that holds up its connection. With HTTP/2, bodies hold up no connection."""
    if scope.get('http_version', '1.1')[0] != '1':
        return False
    for name, value in scope['headers']:
        if name == b'transfer-encoding' or (name == b'content-length' and value != b'0'):
            return True
    return False


def closing(scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Return a `receive` and a `send` that end the connection after an answer that comes before the end of the body."""
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
    """Return a `send` for a client that is still sending: it discards the rest of the body before the answer ends.

    A server closes the connection when the answer ends. If a client then sends more, the connection is reset, and the
    client may lose the answer. Many clients read an answer only after they have sent the whole body.
    """

    async def send_and_discard(message: Message) -> None:
        if message['type'] != 'http.response.body':
            await send(message)
            return
        await send({**message, 'more_body': True})
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_TIME):
                await _discard(receive)
        await send({'type': 'http.response.body', 'body': b''})

    return send_and_discard


async def _discard(receive: Receive) -> None:
    rest = REST
    while rest > 0:
        message = await receive()
        if not message.get('more_body'):
            return
        rest -= len(message.get('body', b''))
