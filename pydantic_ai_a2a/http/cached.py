"""Answers that clients may cache: entity tags, HEAD and 304."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from starlette.types import Scope, Send

from ..auth.callers import header
from ..card import etag
from .base import NO_SNIFF

__all__ = ('CachedAnswer', 'cached_answer', 'send_cached')


class CachedAnswer(NamedTuple):
    """A body with the headers of its answer, for many requests."""

    body: bytes
    tag: str
    """The entity tag."""
    headers: tuple[tuple[bytes, bytes], ...]
    """Headers of every answer."""
    content: tuple[tuple[bytes, bytes], ...]
    """Further headers of an answer with HTTP 200."""


def cached_answer(
    body: bytes, headers: Iterable[tuple[str, str]], *, media_type: bytes = b'application/json'
) -> CachedAnswer:
    """Return a body as `send_cached` sends it.

    Args:
        body: The whole body.
        headers: Headers besides those of every answer.
        media_type: The media type of the body.
    """
    tag = etag(body)
    return CachedAnswer(
        body,
        tag,
        headers=tuple((name.lower().encode(), value.encode()) for name, value in (('ETag', tag), *headers)),
        content=((b'content-type', media_type), (b'content-length', b'%d' % len(body)), NO_SNIFF),
    )


async def send_cached(scope: Scope, send: Send, answer: CachedAnswer) -> None:
    """Answer with a body, or with HTTP 304 if the client has the body already."""
    if _matches(header(scope['headers'], b'if-none-match'), answer.tag):
        status, headers, body = 304, [*answer.headers], b''
    else:
        status, headers = 200, [*answer.headers, *answer.content]
        body = b'' if scope['method'] == 'HEAD' else answer.body
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': body})


def _matches(if_none_match: str | None, tag: str) -> bool:
    if if_none_match is None:
        return False
    tags = [value.strip().removeprefix('W/') for value in if_none_match.split(',')]
    return tag in tags or '*' in tags
