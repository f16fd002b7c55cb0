"""What every binding does with HTTP: read a request, answer, turn an exception into an error. Knows no operation."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

from starlette.types import Receive, Scope, Send

from ..audit import audit
from ..auth.request import RequestInfo
from ..errors import (
    A2AError,
    InternalError,
    PayloadTooLargeError,
    RequestTimeoutError,
    StoreUnavailable,
    UnsupportedMediaTypeError,
)
from ..types import Caller

__all__ = (
    'CHUNK',
    'JSON',
    'NO_SNIFF',
    'AnswerUnread',
    'ClientGone',
    'as_error',
    'audit_refused',
    'check_content_type',
    'header',
    'read_body',
    'reply',
    'request_late',
    'start',
)

logger = logging.getLogger('pydantic_ai_a2a')

NO_SNIFF = (b'x-content-type-options', b'nosniff')
"""Keeps browsers from reading an answer as something else than it says it is."""

JSON = ('application/json',)

CHUNK = 65_536
"""Bytes that are sent at once: servers wait for a client that does not read between two sends, and never in one."""

_DIGITS = re.compile('[0-9]{1,19}')
"""A length, as servers let it pass; what is none is counted while it is read."""


class ClientGone(Exception):
    """The client went away before its request was read, or its answer: there is nobody to answer."""


class AnswerUnread(ClientGone):
    """The client takes too long to read its answer, which is broken off; the text is for the log."""


def header(scope: Scope, name: bytes) -> str | None:
    """The header's value, several joined with commas; None if it is absent."""
    found: bytes | None = None
    for key, value in scope['headers']:
        if key == name:
            if found is not None:
                return b','.join(value for key, value in scope['headers'] if key == name).decode('latin-1')
            found = value
    return None if found is None else found.decode('latin-1')


def check_content_type(scope: Scope, taken: Collection[str] = JSON) -> None:
    """Refuse what a foreign web page can send without asking: anything but JSON.

    Args:
        scope: The request.
        taken: The media types that are taken.

    Raises:
        UnsupportedMediaTypeError: The body is not declared as one of them.
    """
    declared = header(scope, b'content-type') or ''
    if declared not in taken and declared.partition(';')[0].strip().lower() not in taken:
        raise UnsupportedMediaTypeError(f'The request body must be {" or ".join(taken)}.')


def request_late() -> RequestTimeoutError:
    """What is answered where a request takes too long to come: it is the connection's last answer."""
    return RequestTimeoutError(headers={'Connection': 'close'})


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The request's body, of at most `limit` bytes.

    Raises:
        PayloadTooLargeError: It is larger; what was declared as such is not even read.
        ClientGone: The client disconnected in between.
    """
    declared = header(scope, b'content-length')
    if declared is not None and _DIGITS.fullmatch(declared) and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()  # no list of chunks: they may be small, and take more for themselves than for what they hold
    while True:
        message = await receive()
        if message['type'] == 'http.disconnect':
            raise ClientGone
        chunk = message.get('body', b'')
        if len(body) + len(chunk) > limit:
            raise _too_large(limit)
        if not message.get('more_body'):
            return b'%b%b' % (body, chunk) if body else chunk
        body += chunk


def _too_large(limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f'The request body is larger than {limit} bytes.')


def as_error(exception: Exception, correlation_id: str) -> A2AError:
    """What the client is told: the protocol's error, or for anything else only that something broke."""
    if isinstance(exception, StoreUnavailable):
        logger.warning('The store is unavailable (correlation id %s): %s', correlation_id, exception.detail)
    if isinstance(exception, A2AError):
        return exception
    logger.error('Request failed (correlation id %s).', correlation_id, exc_info=exception)
    return InternalError()


def audit_refused(error: A2AError, request: RequestInfo, caller: Caller | None = None) -> None:
    """Record the refusal of a request, if the audit log lists refusals of its kind."""
    if error.refusal is None:
        return
    audit(
        'refused',
        correlation_id=request.correlation_id,
        remote=request.address,
        refusal=error.refusal,
        caller=(caller.id or None) if caller else None,
        tenant=(caller.tenant or None) if caller else None,
    )


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
    await start(send, status, len(body), correlation_id, headers, media_type=media_type)
    await send({'type': 'http.response.body', 'body': body})


async def start(
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
