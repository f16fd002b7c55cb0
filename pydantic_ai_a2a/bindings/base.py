"""What every binding does with HTTP: admit a request, answer, turn an exception into an error. Knows no operation."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from os import urandom
from typing import TypeAlias

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ..errors import (
    A2AError,
    InternalError,
    PayloadTooLargeError,
    UnauthenticatedError,
    UnsupportedMediaTypeError,
)
from ..types import ANONYMOUS, Caller

__all__ = (
    'Authenticate',
    'ClientGone',
    'as_error',
    'check_content_type',
    'header',
    'identify',
    'new_correlation_id',
    'read_body',
    'reply',
)

logger = logging.getLogger('pydantic_ai_a2a')

Authenticate: TypeAlias = Callable[[Request], 'Caller | Awaitable[Caller | None] | None']
"""Says who sends a request; None refuses it with HTTP 401."""


class ClientGone(Exception):
    """The client went away before its request was read: there is nobody to answer."""


def new_correlation_id() -> str:
    """Names one request in its answer and in the log."""
    return urandom(8).hex()


def header(scope: Scope, name: bytes) -> str | None:
    """The header's value, several joined with commas; None if it is absent."""
    values = [value for key, value in scope['headers'] if key == name]
    return b','.join(values).decode('latin-1') if values else None


def check_content_type(scope: Scope) -> None:
    """Refuse what a foreign web page can send without asking: anything but JSON.

    Raises:
        UnsupportedMediaTypeError: The body is not declared as `application/json`.
    """
    declared = header(scope, b'content-type') or ''
    if declared != 'application/json' and declared.partition(';')[0].strip().lower() != 'application/json':
        raise UnsupportedMediaTypeError


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The request's body, of at most `limit` bytes.

    Raises:
        PayloadTooLargeError: It is larger; what was declared as such is not even read.
        ClientGone: The client disconnected in between.
    """
    declared = header(scope, b'content-length')
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message['type'] == 'http.disconnect':
            raise ClientGone
        chunk = message.get('body', b'')
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get('more_body'):
            return b''.join(chunks)


def _too_large(limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f'The request body is larger than {limit} bytes.')


async def identify(scope: Scope, authenticate: Authenticate | None) -> Caller:
    """Who calls, before a body is read or state touched.

    Raises:
        UnauthenticatedError: `authenticate` does not know the caller.
    """
    if authenticate is None:
        return ANONYMOUS
    caller = authenticate(Request(scope))
    if isawaitable(caller):
        caller = await caller
    if caller is None:
        raise UnauthenticatedError
    return caller


def as_error(exception: Exception, correlation_id: str) -> A2AError:
    """What the client is told: the protocol's error, or for anything else only that something broke."""
    if isinstance(exception, A2AError):
        return exception
    logger.error('Request failed (correlation id %s).', correlation_id, exc_info=exception)
    return InternalError()


async def reply(
    send: Send,
    status: int,
    body: bytes,
    correlation_id: str,
    headers: Iterable[tuple[str, str]] = (),
    *,
    media_type: bytes = b'application/json',
) -> None:
    """One whole answer, JSON unless said otherwise."""
    raw = [
        (b'content-type', media_type),
        (b'content-length', b'%d' % len(body)),
        (b'x-correlation-id', correlation_id.encode()),
    ]
    raw += [(name.lower().encode('latin-1'), value.encode('latin-1')) for name, value in headers]
    await send({'type': 'http.response.start', 'status': status, 'headers': raw})
    await send({'type': 'http.response.body', 'body': body})
