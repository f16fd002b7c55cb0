"""Recordings of the events and the JSON between a client and an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2
from pydantic_core import from_json

from ..types.a2a_objects import StreamResponse
from ..wire.protocol.stored_values import json_of


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer."""

    method: str
    """Method of HTTP."""
    path: str
    """Path and query of the request."""
    request: Any
    """JSON of the request; None for a request without a body."""
    response: httpx2.Response = field(repr=False)
    """Status and headers of the answer."""
    _body: bytearray = field(repr=False)

    @property
    def answer(self) -> Any:
        """JSON of the answer; of a stream, the list of its events until now. None for an answer without a body."""
        body = httpx2.Response(200, headers=self.response.headers, content=bytes(self._body)).content
        if self.response.headers.get('content-type', '').startswith('text/event-stream'):
            return [from_json(line[5:]) for line in body.splitlines(keepends=True) if _is_data(line)]
        return from_json(body) if body else None


def _is_data(line: bytes) -> bool:
    return line.startswith(b'data:') and line.endswith(b'\n')


@dataclass(frozen=True, slots=True)
class Recording:
    """The events and the exchanges of a client."""

    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The events of `stream`, `subscribe` and `until`, as JSON of A2A 1.0."""
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    """The requests and their answers, as the JSON that was sent."""


class RecordingTransport(httpx2.AsyncBaseTransport):
    """Passes requests on, and records them."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport
        self.recordings: list[Recording] = []

    def add(self, event: StreamResponse) -> None:
        """Record an event."""
        for recording in self.recordings:
            recording.events.append(json_of(event))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and record the request and the answer."""
        response = await self._transport.handle_async_request(request)
        body = bytearray()
        response.stream = _Copied(cast('httpx2.AsyncByteStream', response.stream), body)
        sent = from_json(request.content) if request.content else None
        exchange = Exchange(request.method, request.url.raw_path.decode(), sent, response, body)
        for recording in self.recordings:
            recording.exchanges.append(exchange)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


class _Copied(httpx2.AsyncByteStream):
    """A body that is copied while it is read."""

    def __init__(self, stream: httpx2.AsyncByteStream, copy: bytearray) -> None:
        self._stream = stream
        self._copy = copy

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._copy.extend(piece)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
