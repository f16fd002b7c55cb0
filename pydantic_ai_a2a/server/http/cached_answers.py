"""Answers that clients may cache: entity tags, HEAD and 304."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from starlette.types import Receive, Scope, Send

from ..auth.request_info import header
from .replies import NO_SNIFF


class CachedAnswer:
    """A body with the headers of its answer, for many requests, as an ASGI app.

    Args:
        body: The whole body.
        headers: Headers besides those of every answer.
        media_type: The media type of the body.
    """

    def __init__(
        self, body: bytes, headers: Iterable[tuple[str, str]], *, media_type: bytes = b'application/json'
    ) -> None:
        self._body = body
        self._tag = etag(body)
        self._headers = [(name.lower().encode(), value.encode()) for name, value in (('ETag', self._tag), *headers)]
        self._content = [(b'content-type', media_type), (b'content-length', b'%d' % len(body)), NO_SNIFF]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the body, or with HTTP 304 if the client has the body already."""
        if _matches(header(scope['headers'], b'if-none-match'), self._tag):
            status, headers, body = 304, [*self._headers], b''
        else:
            status, headers = 200, self._headers + self._content
            body = b'' if scope['method'] == 'HEAD' else self._body
        await send({'type': 'http.response.start', 'status': status, 'headers': headers})
        await send({'type': 'http.response.body', 'body': body})


def _matches(if_none_match: str | None, tag: str) -> bool:
    if if_none_match is None:
        return False
    tags = [value.strip().removeprefix('W/') for value in if_none_match.split(',')]
    return tag in tags or '*' in tags


def etag(card: bytes) -> str:
    """Return a strong entity tag of a rendered card (§8.6.1)."""
    return f'"{sha256(card).hexdigest()}"'
