"""Ends the connections of requests that are answered before their bodies were read. Knows no operation.

Else a client that has been refused could hold its connection open with a body that never ends.
"""

from __future__ import annotations

from starlette.types import Message, Receive, Scope, Send

__all__ = ('CLOSE', 'closing', 'has_body')

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
