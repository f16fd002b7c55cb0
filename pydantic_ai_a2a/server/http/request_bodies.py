"""The bodies of requests: their media types, and their limits."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.types import Receive, Scope

from ...errors import ClientGone, JSONParseError, PayloadTooLargeError, RequestTimeoutError, UnsupportedMediaTypeError

JSON = ('application/json',)

_DIGITS = re.compile(b'[0-9]{1,19}')
"""A length as servers let it pass. A body without a valid length is counted while it is read."""


def check_content_type(declared: str | None, taken: Collection[str] = JSON) -> None:
    """Refuse bodies that foreign web pages can send without a preflight: all but JSON.

    Args:
        declared: The `Content-Type` header of the body.
        taken: The media types to accept.

    Raises:
        UnsupportedMediaTypeError: The body has another media type.
    """
    if (declared or '').partition(';')[0].strip().lower() not in taken:
        raise UnsupportedMediaTypeError(f'The request body must be {" or ".join(taken)}.')


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the request's body, of at most `limit` bytes.

    Raises:
        PayloadTooLargeError: The body is larger. A body whose declared length is larger is not read.
        UnsupportedMediaTypeError: The body is compressed: what it expands to could not be bounded by its length.
        JSONParseError: The web server has dropped the body.
        ClientGone: The client disconnected before the end of the body.
    """
    for name, value in scope['headers']:
        if name == b'content-length' and _DIGITS.fullmatch(value) and int(value) > limit:
            raise _too_large(limit)
        if name == b'content-encoding' and value.strip().lower() not in (b'', b'identity'):
            raise UnsupportedMediaTypeError(
                'The request body must not be compressed: send it without Content-Encoding.',
                headers={'Accept-Encoding': 'identity'},  # RFC 9110 §15.5.16
            )
    body = bytearray()  # not a list: small chunks need more memory than their bytes
    while True:
        message = await receive()
        if message['type'] == 'http.disconnect':
            raise ClientGone
        chunk = message.get('body', b'')
        if len(body) + len(chunk) > limit:
            raise _too_large(limit)
        if not message.get('more_body'):
            if not body and not chunk:
                _check_dropped(scope)
            return b'%b%b' % (body, chunk) if body else chunk
        body += chunk


def request_late() -> RequestTimeoutError:
    """Return the error for a request that takes too long to come. The answer closes the connection."""
    return RequestTimeoutError(headers={'Connection': 'close'})


def _check_dropped(scope: Scope) -> None:
    """Refuse a request whose body the web server has dropped: httptools does so with `Upgrade: h2c`."""
    headers = dict(scope['headers'])
    if b'upgrade' in headers and (b'transfer-encoding' in headers or headers.get(b'content-length', b'0') != b'0'):
        raise JSONParseError(
            'The web server drops the body of a request with the header Upgrade: serve with h11 (uvicorn --http h11),'
            ' or send no Upgrade.'
        )


def _too_large(limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f'The request body is larger than {limit} bytes.')
