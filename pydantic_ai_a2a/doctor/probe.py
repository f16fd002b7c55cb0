"""Requests to an interface of an agent, with the unchanged answers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import httpx2
from pydantic_core import to_json

from ..client.cards import Interface
from ..client.connections import Connections, read_json
from ..client.transport import Request, Transport
from ..client.urls import shown
from ..errors import A2AError, RemoteError
from ..protocol.operations import OPERATIONS, Params
from ..protocol.versions import codec_of

_LONGEST = 10_000_000
"""Longest accepted answer, in bytes."""
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
class Answer:
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

    def __init__(self, interface: Interface, connections: Connections) -> None:
        self.interface = interface
        self._connections = connections
        self._transport = Transport(connections, interface)
        self._codec = codec_of(interface.version)

    @property
    def name(self) -> str:
        """The binding and the version."""
        return f'{self.interface.binding} {self.interface.version}'

    def without_credentials(self) -> Probe:
        """Return a probe of the same interface, without credentials."""
        anonymous = Connections(headers={}, auth=None, client=None, timeout=self._connections.timeout)
        return Probe(self.interface, anonymous)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def ask(self, name: str, params: Params, *, streams: bool = False) -> Answer:
        """Perform an operation."""
        request = self._transport.request(self._codec, OPERATIONS[name], params)
        return await self._send(request, name, streams=streams)

    async def ask_wrongly(self, name: str, params: Params) -> Answer:
        """Perform an operation with an empty object as params, to be refused by every agent."""
        request = self._transport.request(self._codec, OPERATIONS[name], params)
        body: dict[str, Any] = {}
        if self.interface.binding == 'JSONRPC':
            body = {'jsonrpc': '2.0', 'id': 1, 'method': self._codec.method(OPERATIONS[name]), 'params': {}}
        return await self._send(replace(request, body=to_json(body)), f'{name} with empty params')

    async def ask_nonsense(self) -> Answer:
        """Call an unknown method, over JSON-RPC."""
        body = to_json({'jsonrpc': '2.0', 'id': 1, 'method': 'NoSuchMethod', 'params': {}})
        headers = {'content-type': 'application/json', 'a2a-version': self.interface.version}
        return await self._send(Request('POST', self.interface.url, headers, body), 'NoSuchMethod')

    async def _send(self, request: Request, name: str, *, streams: bool = False) -> Answer:
        answer = Answer(sent=f'{request.verb} {shown(request.url)} ({name})')
        # Some servers close a kept connection after an HTTP 500, perhaps while the next request is on its way.
        headers = {**request.headers, 'connection': 'close', **({'accept': 'text/event-stream'} if streams else {})}
        try:
            async with self._connections.open(
                request.verb, request.url, headers=headers, content=request.body
            ) as response:
                answer.status = response.status_code
                answer.media_type = response.headers.get('content-type', '').partition(';')[0].strip().lower()
                if streams and answer.media_type == 'text/event-stream':
                    await _read_events(response, answer)
                    return answer
                body = await self._connections.read(response, _LONGEST)
            answer.code = _code(body)
            answer.result = self._transport.result(response, body)
        except (A2AError, RemoteError) as error:
            answer.error = error
        return answer


async def _read_events(response: httpx2.Response, answer: Answer) -> None:
    response.encoding = 'utf-8'
    async for event in httpx2.EventSource(response, _LONGEST):
        if event.data:
            answer.events.append(StreamEvent(at=time.monotonic(), id=event.id, data=_parsed(event.data)))


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


# --- the result of a step of an examination ---------------------------------------------------------------------------

Level: TypeAlias = Literal['ok', 'hint', 'warning', 'fault', 'not checked']
"""`ok`; `hint`, allowed but worth to know; `warning`, some clients will fail; `fault`, against the specification."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a step."""

    step: str
    level: Level
    text: str
    """The result in words."""
    section: str = ''
    """Section of the A2A specification."""
    sent: str = ''
    """The request."""
    came: str = ''
    """The answer."""
    advice: str = ''
    """The necessary change; empty for a good result."""
