"""HTTP for all bindings: content types, bodies of requests, and answers."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from urllib.parse import parse_qs

from starlette.types import Message, Receive, Scope, Send

from ..auth.request_info import header
from ..card import etag
from ..errors import ClientGone, JSONParseError, PayloadTooLargeError, RequestTimeoutError, UnsupportedMediaTypeError

NO_SNIFF = (b'x-content-type-options', b'nosniff')
"""The header that keeps browsers from guessing another content type."""

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


def requested_version(scope: Scope) -> str | None:
    """Return the protocol version that a request names, in a header or in the query (§3.6.1); None without a version.

    Several values are joined by commas.
    """
    version = header(scope['headers'], b'a2a-version')
    if version is None and (query := scope['query_string']):
        named = parse_qs(query.decode('latin-1')).get('A2A-Version')
        return ','.join(named) if named else None
    return version


def request_late() -> RequestTimeoutError:
    """Return the error for a request that takes too long to come. The answer closes the connection."""
    return RequestTimeoutError(headers={'Connection': 'close'})


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


class Listener:
    """Notices that a client goes before its body was read, and keeps the part of the body that comes meanwhile."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[asyncio.Future[Message]] = deque()

    async def receive(self) -> Message:
        """Return the next message, a kept one first."""
        return await (self._kept.popleft() if self._kept else self._receive())

    async def gone(self) -> None:
        """Return once the client has gone; never while parts of the body follow, which are not taken yet."""
        while True:
            if not self._kept or self._kept[-1].done():
                self._kept.append(asyncio.ensure_future(self._receive()))
            await asyncio.wait([self._kept[-1]])
            message = self._kept[-1].result()
            if message['type'] == 'http.disconnect':
                return
            if message.get('more_body'):
                await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Listen no longer."""
        for message in self._kept:
            message.cancel()


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


# --- answers that clients may cache: entity tags, HEAD and 304 --------------------------------------------------------


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


# --- unread bodies ----------------------------------------------------------------------------------------------------
# Ends the connections of requests that are answered before their bodies were read.
#
# Else a refused client could hold its connection open with a body that never ends.

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


# --- aborted connections ----------------------------------------------------------------------------------------------
# Aborts the connection of a request whose client does not read.
#
# ASGI has no message for an abort. A server closes a connection only after the client has taken all buffered bytes, and
# a client that never reads prevents the close for ever. Uvicorn's transport can abort the connection. With other
# servers, the connection stays open.

REQUEST = 'pydantic_ai_a2a.receive'
"""Key of the scope for the server's own `receive`, before any wrapper."""
_NO_LINGER = struct.pack('ii', 1, 0)
"""A socket option: the kernel drops buffered bytes at the close, and resets the connection."""


def _transport_of(scope: Scope) -> asyncio.Transport | None:
    """Return the transport of the request's connection; None with HTTP/2, whose connections carry several requests."""
    if scope.get('http_version', '1.1')[0] != '1':
        return None
    transport = getattr(getattr(scope.get(REQUEST), '__self__', None), 'transport', None)
    return transport if callable(getattr(transport, 'abort', None)) else None


def _reset(transport: asyncio.Transport) -> None:
    """Abort a connection and drop the bytes that the process and the kernel have buffered for the client."""
    connection = transport.get_extra_info('socket')
    if connection is not None and not transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


async def abort(scope: Scope) -> None:
    """Abort the request's connection, if the server can. Bytes that are buffered for the client are lost."""
    if (transport := _transport_of(scope)) is not None:
        _reset(transport)
        await asyncio.sleep(0)  # let the server notice the abort: else the server logs that the answer is not complete


def abort_later(scope: Scope, seconds: float) -> None:
    """Abort the request's connection after some seconds. Until then, the client can take the buffered bytes."""
    if (transport := _transport_of(scope)) is not None:
        asyncio.get_running_loop().call_later(seconds, transport.abort)
