"""Calls of agents over gRPC (§10), as a transport of httpx2.

A request has the method in its URL and the params as JSON, and its headers become metadata. The answer has the form of
the HTTP+JSON binding: JSON, server-sent events, or a `google.rpc.Status` with an HTTP status.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import grpc
import httpx2
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc import ChannelConnectivity, aio
from pydantic_core import from_json, to_json

from ..errors import A2AError
from ..json_values import as_object
from ..settings.limits import LONG
from ..wire.extensions.own_extensions import EVENT_ID, EVENT_IDS_URI
from ..wire.protobuf.method_messages import SERVICE, MethodMessages, methods
from ..wire.protocol.received_errors import http_error
from .answer_limits import MAX_ANSWER, MAX_VALUES, PACE

_OF_HTTP = {'accept', 'accept-encoding', 'connection', 'content-length', 'content-type', 'host', 'user-agent'}
"""Headers that gRPC does not have, or writes itself."""
_HEALTH = '/grpc.health.v1.Health/Check'
"""A method that every server answers, if only with `UNIMPLEMENTED`."""
_CANCELLED, _DEADLINE_EXCEEDED, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 1, 4, 8, 14
_LOST = {_CANCELLED: httpx2.ReadError, _DEADLINE_EXCEEDED: httpx2.ReadTimeout, _UNAVAILABLE: httpx2.ReadError}
"""The errors of calls that end so without a `google.rpc.Status` of the server."""
_STATUSES = {3: 400, 5: 404, 7: 403, 8: 429, 9: 400, 12: 404, 14: 503, 16: 401}
"""The HTTP status of each `google.rpc.Code`; 500 for others."""
_PASSED_ON = ('retry-after', 'www-authenticate', 'x-correlation-id')
"""Metadata of a refusal that become headers."""

_ = error_details_pb2  # registers the messages of the details


class GrpcTransport(httpx2.AsyncBaseTransport):
    """The connections of one event loop to gRPC servers."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, bytes], aio.Channel] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Call a method. A stream is returned with its first event, or after some time without an event."""
        method = methods()[request.url.path[1:]]
        messages = MethodMessages(method, MAX_VALUES, calling=True)
        metadata = [(name, value) for name, value in request.headers.multi_items() if name not in _OF_HTTP]
        sent = await asyncio.to_thread(messages.encode, request.content)
        limit: float = request.extensions['timeout']['read']
        channel: Any = await self._connected(request.url, limit)
        path = f'/{SERVICE}/{method.name}'
        try:
            if method.server_streaming:
                events = _EventStream(channel.unary_stream(path)(sent, metadata=metadata), channel, messages, limit)
                await events.begin()
                return httpx2.Response(200, headers={'content-type': 'text/event-stream'}, stream=events)
            call = channel.unary_unary(path)(sent, metadata=metadata, timeout=limit + len(sent) / PACE)
            return httpx2.Response(200, json=await _read(messages, await call))
        except aio.AioRpcError as error:
            if error.code().value[0] == _DEADLINE_EXCEEDED:  # perhaps the connection is dead
                self._channels.pop((request.url.scheme, request.url.netloc), None)
            return _refusal(error)

    async def aclose(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _connected(self, url: httpx2.URL, limit: float) -> aio.Channel:
        """Return a connection, so that an error of the connection is known from an error of a call.

        Raises:
            httpx2.ConnectError: The server cannot be reached.
        """
        place = url.scheme, url.netloc
        channel = self._channels.get(place)
        if channel is None or channel.get_state() is ChannelConnectivity.TRANSIENT_FAILURE:
            channel = self._channels[place] = _channel(url)
        try:
            async with asyncio.timeout(limit):
                while (state := channel.get_state(try_to_connect=True)) is not ChannelConnectivity.READY:
                    if state is ChannelConnectivity.TRANSIENT_FAILURE:
                        raise httpx2.ConnectError('The server cannot be reached.')
                    await channel.wait_for_state_change(state)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout('The server does not take the connection.') from error
        return channel


def _channel(url: httpx2.URL) -> aio.Channel:
    options = (
        ('grpc.max_receive_message_length', MAX_ANSWER),
        ('grpc.use_local_subchannel_pool', 1),  # else a new channel waits as long as a channel that has failed
    )
    target = f'dns:///{url.netloc.decode()}'  # with its scheme, so that no host is taken for one
    if url.scheme == 'grpc':
        return aio.insecure_channel(target, options)
    roots = Path(file).read_bytes() if (file := os.environ.get('SSL_CERT_FILE')) else None  # as for HTTP
    return aio.secure_channel(target, grpc.ssl_channel_credentials(roots), options)


async def _read(messages: MethodMessages, message: bytes) -> dict[str, Any]:
    try:
        return messages.read(message) if len(message) < LONG else await asyncio.to_thread(messages.read, message)
    except A2AError as error:
        raise httpx2.DecodingError(error.message) from error


class _EventStream(httpx2.AsyncByteStream):
    """The messages of a stream, as server-sent events.

    Args:
        call: The call.
        channel: The channel of the call.
        messages: The messages of the method.
        limit: Seconds of silence after which the server is asked for a sign of life. Over HTTP, servers send comments.
    """

    def __init__(self, call: Any, channel: Any, messages: MethodMessages, limit: float) -> None:
        self._call = call
        self._channel = channel
        self._messages = messages
        self._limit = limit
        self._reading = asyncio.ensure_future(call.read())

    async def begin(self) -> None:
        """Wait some time for the first message. Raise the status of a call that is refused until then.

        The connection may have taken some of the time that there is for the beginning of an answer.
        """
        try:
            await self._wait(self._limit / 2)
            if self._reading.done():
                self._reading.result()
        except BaseException:
            await self.aclose()
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                await self._wait(self._limit)
                if not self._reading.done():
                    await self._check_alive()
                    continue
                if (message := self._reading.result()) is aio.EOF:
                    return
                event = await _read(self._messages, message)
                yield b'id: %s\ndata: %s\n\n' % (_event_id(event), to_json(event))
                self._reading = asyncio.ensure_future(self._call.read())
        except aio.AioRpcError as error:
            refusal = _refusal(error)
            raise http_error(from_json(refusal.content), refusal.status_code) from error

    async def aclose(self) -> None:
        """End the call."""
        self._call.cancel()
        await asyncio.wait((self._reading,))  # ends with the call
        if not self._reading.cancelled():
            self._reading.exception()  # nobody reads the error any more, and asyncio would log it

    async def _wait(self, limit: float) -> None:
        await asyncio.wait((self._reading,), timeout=limit)

    async def _check_alive(self) -> None:
        try:
            await self._channel.unary_unary(_HEALTH)(b'', timeout=self._limit)
        except aio.AioRpcError as error:
            if error.code().value[0] in _LOST:
                raise httpx2.ReadTimeout('The server is silent.') from error


def _event_id(event: dict[str, Any]) -> bytes:
    """Return the id in the metadata of an event, and remove it there; empty for none."""
    payload = next(iter(event.values()), cast('dict[str, Any]', {}))
    metadata: dict[str, Any] = payload.pop('metadata', {})
    event_id = as_object(metadata.pop(EVENT_IDS_URI, None)).get(EVENT_ID)
    if metadata:
        payload['metadata'] = metadata
    return event_id.encode() if isinstance(event_id, str) and event_id.isdigit() else b''


def _refusal(error: aio.AioRpcError) -> httpx2.Response:
    """Return the answer to a call that the server has refused.

    Raises:
        httpx2.TransportError: The call was lost.
        httpx2.DecodingError: The answer is too long.
    """
    trailing: dict[str, Any] = dict([*(error.trailing_metadata() or ())])
    code, text, status = error.code().value[0], error.details() or '', trailing.get('grpc-status-details-bin')
    if 'CLIENT: Received message larger than max' in text:
        raise httpx2.DecodingError(text) from error
    if status is None and (code in _LOST or 'RST_STREAM' in text):
        raise _LOST.get(code, httpx2.ReadError)(text) from error
    details: list[dict[str, Any]] = []
    with suppress(DecodeError, TypeError):  # the second is of a detail of an unknown type
        details = json_format.MessageToDict(status_pb2.Status.FromString(status or b'')).get('details', [])
    too_large = 'larger than max' in text or any(detail.get('reason') == 'INVALID_REQUEST' for detail in details)
    return httpx2.Response(
        413 if code == _RESOURCE_EXHAUSTED and too_large else _STATUSES.get(code, 500),
        headers={name: trailing[name] for name in _PASSED_ON if name in trailing},
        json={'error': {'message': text, 'details': details}},
    )
