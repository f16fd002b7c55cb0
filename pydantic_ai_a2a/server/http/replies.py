"""Sends whole answers, or the heads of answers whose length is known."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import Send

NO_SNIFF = (b'x-content-type-options', b'nosniff')
"""The header that keeps browsers from guessing another content type."""


async def reply(
    send: Send,
    status: int,
    body: bytes,
    correlation_id: str,
    headers: Collection[tuple[str, str]] = (),
    *,
    media_type: bytes = b'application/json',
) -> None:
    """Send one whole answer, JSON unless said otherwise."""
    await start_reply(send, status, len(body), correlation_id, headers, media_type=media_type)
    await send({'type': 'http.response.body', 'body': body})


async def start_reply(
    send: Send,
    status: int,
    size: int,
    correlation_id: str,
    headers: Collection[tuple[str, str]] = (),
    *,
    media_type: bytes = b'application/json',
) -> None:
    """Begin an answer whose body has so many bytes; `reply` sends one at once."""
    raw = [
        (b'content-type', media_type),
        (b'content-length', b'%d' % size),
        (b'x-correlation-id', correlation_id.encode()),
        NO_SNIFF,
    ]
    if headers:
        raw += [(name.lower().encode('latin-1'), value.encode('latin-1')) for name, value in headers]
    await send({'type': 'http.response.start', 'status': status, 'headers': raw})
