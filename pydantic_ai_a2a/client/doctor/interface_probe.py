"""Requests to an interface of an agent, with the unchanged answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2
from pydantic_core import to_json

from ...errors import A2AError, RemoteError, RemoteProtocolError
from ...wire.protocol.operations import OPERATIONS, Params
from ...wire.protocol.value_count import count_values
from ..foreign_json import read_json
from ..http_connections import HttpConnections
from ..interfaces import Interface
from ..remote_urls import shown_url
from ..server_sent_events import EventReader
from ..transport import Request, Transport

_LONGEST = 10_000_000
"""Longest accepted answer, in bytes."""
_MOST_VALUES = 100_000
"""Most JSON values of a stream. The answer is one short sentence."""
_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class StreamEvent:
    """An event of a stream."""

    at: float
    """Time of the arrival, in seconds."""
    id: str
    data: Any
    """The parsed data; None for broken JSON."""


@dataclass(kw_only=True)
class HttpAnswer:
    """The answer to a request."""

    sent: str
    status: int = 0
    """HTTP status; 0 without an answer."""
    media_type: str = ''
    result: Any = None
    """The result of an accepted request."""
    error: A2AError | RemoteError | None = None
    """The refusal, or the reason why there is no answer."""
    code: int | None = None
    """The JSON-RPC error code, or the HTTP status of a refusal over HTTP+JSON."""
    events: list[StreamEvent] = field(default_factory=list[StreamEvent])

    @property
    def came(self) -> str:
        """The answer in a few words."""
        if not self.status:
            return str(self.error)
        refusal = '' if self.error is None else f', {self.error}'
        return f'HTTP {self.status} {self.media_type}{refusal}'[:_SHOWN]


class Probe:
    """Sends requests to an interface.

    Args:
        interface: The interface.
        connections: Connections with the credentials of the caller.
    """

    def __init__(self, interface: Interface, connections: HttpConnections) -> None:
        self.interface = interface
        self._connections = connections
        self._transport = Transport(connections, interface)

    @property
    def name(self) -> str:
        """The binding and the version."""
        return f'{self.interface.binding} {self.interface.version}'

    def without_credentials(self) -> Probe:
        """Return a probe of the same interface, without credentials."""
        return Probe(self.interface, HttpConnections(timeout=self._connections.timeout))

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def ask(self, name: str, params: Params, *, streams: bool = False) -> HttpAnswer:
        """Perform an operation."""
        request = self._transport.request(self._transport.codec, OPERATIONS[name], params)
        return await self._send(request, name, streams=streams)

    async def ask_wrongly(self, name: str, params: Params) -> HttpAnswer:
        """Perform an operation with an empty object as params, to be refused by every agent."""
        request = self._transport.request(self._transport.codec, OPERATIONS[name], params)
        body: dict[str, Any] = {}
        if self.interface.binding == 'JSONRPC':
            body = {'jsonrpc': '2.0', 'id': 1, 'method': self._transport.codec.method(OPERATIONS[name]), 'params': {}}
        return await self._send(request._replace(content=to_json(body)), f'{name} with empty params')

    async def ask_nonsense(self) -> HttpAnswer:
        """Call an unknown method, over JSON-RPC."""
        body = to_json({'jsonrpc': '2.0', 'id': 1, 'method': 'NoSuchMethod', 'params': {}})
        headers = {'content-type': 'application/json', 'a2a-version': self.interface.version}
        return await self._send(Request('POST', self.interface.url, headers, body), 'NoSuchMethod')

    async def _send(self, request: Request, name: str, *, streams: bool = False) -> HttpAnswer:
        answer = HttpAnswer(sent=f'{request.method} {shown_url(request.url)} ({name})')
        # Some servers close a kept connection after an HTTP 500, perhaps while the next request is on its way.
        headers = {**request.headers, 'connection': 'close', **({'accept': 'text/event-stream'} if streams else {})}
        try:
            async with self._connections.open(*request._replace(headers=headers)) as response:
                answer.status = response.status_code
                answer.media_type = response.headers.get('content-type', '').partition(';')[0].strip().lower()
                if streams and answer.media_type == 'text/event-stream':
                    await _read_events(response, answer, self._connections.timeout)
                    return answer
                body = await self._connections.read(response, _LONGEST)
            answer.code = _code(body)
            answer.result = self._transport.result(response, body)
        except (A2AError, RemoteError) as error:
            answer.error = error
        return answer


async def _read_events(response: httpx2.Response, answer: HttpAnswer, patience: float) -> None:
    """Read a stream until its end, within the bytes and the time of an answer that comes as a whole.

    Raises:
        TimeoutError: The stream takes too long. The context of `open` makes it a `RemoteUnavailable`.
        RemoteProtocolError: The stream has too many bytes or JSON values.
    """
    reader, size, values = EventReader(_LONGEST), 0, 0
    async with asyncio.timeout(2 * patience):
        async for piece in response.aiter_bytes():
            size += len(piece)
            events = [(data, event_id) for data, event_id in reader.read(piece) if data] if size <= _LONGEST else []
            values += sum(count_values(data, _MOST_VALUES) for data, _ in events)
            if size > _LONGEST or values > _MOST_VALUES:
                raise RemoteProtocolError(
                    f'It has more than {_LONGEST} bytes, or more than {_MOST_VALUES} JSON values.'
                )
            answer.events += [
                StreamEvent(at=time.monotonic(), id=event_id.decode(errors='replace'), data=_parsed(data))
                for data, event_id in events
            ]


def _parsed(text: str | bytes) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return None


def _code(body: bytes) -> int | None:
    try:
        code: Any = _parsed(body)['error']['code']
    except (KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None
