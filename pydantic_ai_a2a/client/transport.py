"""Requests and event streams of one interface: JSON-RPC (§9), HTTP+JSON (§11) or gRPC (§10).

Each has a client span. The requests are sent within the span, and so carry its trace.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

import httpx2
from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue
from pydantic_core import to_json

from .. import chains
from ..errors import A2AError, MethodNotFoundError, RemoteProtocolError, RemoteUnavailable, retry_seconds
from ..json_values import as_object
from ..settings.limits import LONG
from ..telemetry.spans import client_span, inside, name_task, recording
from ..types.a2a_objects import ListTasksResult, StreamResponse, Task
from ..types.operation_params import ListParams, ListPushParams, SendParams
from ..wire.extensions.own_extensions import LIVE_TEXT_URI
from ..wire.protocol.codec import Codec, HttpCodec
from ..wire.protocol.lenient_reading import AnswerUnreadable, reading
from ..wire.protocol.operations import OPERATIONS, Operation, Params
from ..wire.protocol.received_errors import http_error, rpc_error, status_error
from ..wire.protocol.received_push_configs import read_config, read_configs
from ..wire.protocol.received_tasks import read_event, read_list, read_streamed, read_task
from ..wire.protocol.value_count import count_values
from ..wire.protocol.versions import codec_of
from ..wire.schemas.json_depth import is_deep
from .answer_limits import MAX_ANSWER, MAX_DEPTH, MAX_VALUES
from .conversation_place import Place
from .foreign_json import TooDeep, TooManyValues, read_json
from .http_connections import HttpConnections, pieces_of
from .interfaces import Interface
from .remote_urls import origin, shown_url
from .server_sent_events import EventReader, EventTooLong

_ABOUT_TASKS = frozenset({'SendMessage', 'GetTask', 'CancelTask'})
"""Operations whose answer is a task or a message."""
_REQUIRED = frozenset({'SendMessage', 'SendStreamingMessage', 'GetTask', 'ListTasks', 'CancelTask', 'SubscribeToTask'})
"""Operations that every server of A2A 1.0 has over JSON-RPC."""
_OLDER = codec_of('fasta2a')
_PASSED_ON = ('retry-after', 'www-authenticate')
"""Headers of a refusal that its error has."""
MOST_PAGES = 10_000
"""Most pages of a list."""
_LONGEST_REASON = 4_000
"""Most bytes of a text that are read for the reason of a refusal."""
_TOO_DEEP = f'the answer is nested more than {MAX_DEPTH} deep'
_LONGEST_NUMBER = 18
"""Most digits of the number of an event."""
Events: TypeAlias = AsyncGenerator[tuple[StreamResponse, int | None, int], None]
_DESCRIPTION = re.compile(r'error_description="([^"\\]{1,300})')
"""Why credentials are refused, such as that a token has expired (RFC 6750)."""


_READERS: Mapping[str, Callable[[object], Any]] = {
    'SendMessage': read_event,
    'GetTask': read_task,
    'CancelTask': read_task,
    'ListTasks': lambda wire: _tasks(read_list(wire)),
    'CreateTaskPushNotificationConfig': read_config,
    'GetTaskPushNotificationConfig': read_config,
    'ListTaskPushNotificationConfigs': read_configs,
    'DeleteTaskPushNotificationConfig': lambda _: None,
    'GetExtendedAgentCard': lambda wire: wire,  # read once its signatures are verified
}


class Request(NamedTuple):
    """One request of HTTP, as `HttpConnections.open` takes it."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None


class Transport:
    """One interface of a remote agent.

    Args:
        connections: The connections to the agent.
        interface: The interface.
        live: True to ask for live text in streams: the agent declares the extension.
    """

    def __init__(self, connections: HttpConnections, interface: Interface, *, live: bool = False) -> None:
        self._connections = connections
        self._interface = interface
        self._live = live
        self.codec: Codec = codec_of(interface.version)
        """Of A2A 1.0 or 0.3, or of FastA2A if the agent turns out to speak its dialect only."""
        self._attributes = _attributes_of(interface)
        self.place = Place(shown_url(interface.url), interface.tenant)
        """The agent of the interface, without the query and the credentials of its URL."""
        self.url = self.place.url
        """URL of the interface for errors."""

    async def call(self, name: str, params: Params) -> Any:
        """Perform an operation whose answer is no stream, and return the answer.

        Args:
            name: The operation.
            params: Its params.

        Raises:
            A2AError: The agent refuses the operation.
            RemoteUnavailable: The agent has not answered.
            RemoteProtocolError: The answer is not A2A.
        """
        if not recording():
            return await self._answer(name, params)
        with inside(client_span(name, params, self._attributes), end=True) as span:
            answer = await self._answer(name, params)
            if name in _ABOUT_TASKS:
                _name_task(span, answer)
            return answer

    async def _answer(self, name: str, params: Params) -> Any:
        operation, codec = OPERATIONS[name], self.codec
        try:
            return await self._call(codec, operation, params)
        except MethodNotFoundError:
            if not self._may_be_older(codec, name):
                raise
        answer = await self._call(_OLDER, operation, params)
        self.codec = _OLDER
        return answer

    async def items(self, name: str, params: ListParams | ListPushParams) -> AsyncGenerator[Any, None]:
        """Yield the items of a list, over all pages; see `call` for the errors."""
        for _ in range(MOST_PAGES):
            items, token = await self.call(name, params)
            for item in items:
                yield item
            if not token:
                return
            params = replace(params, page_token=token)
        raise self.unreadable(f'the answer to {name} has more than {MOST_PAGES} pages')

    def stream(self, name: str, params: Params, *, last_event_id: int | None = None) -> Events:
        """Perform a streaming operation, and yield its events; see `call` for the errors.

        Each event comes with its number and its bytes. The number is None if the agent numbers no events; else a
        stream can be resumed after the event.

        Args:
            name: The operation.
            params: Its params.
            last_event_id: Number of the last event that was received; the agent sends the events after it.
        """
        events = self._events(name, params, last_event_id)
        return self._traced(events, name, params) if recording() else events

    async def _traced(self, events: Events, name: str, params: Params) -> Events:
        span = client_span(name, params, self._attributes)
        try:
            async with aclosing(events):
                while True:
                    # Between the events, the code of the reader runs, whose spans are not within this one.
                    with inside(span, end=False):
                        event = await anext(events, None)
                    if event is None:
                        return
                    _name_task(span, event[0])
                    yield event
        finally:
            span.end()

    async def _events(self, name: str, params: Params, last_event_id: int | None) -> Events:
        operation, codec = OPERATIONS[name], self.codec
        headers = {'accept': 'text/event-stream'}
        if last_event_id is not None:
            headers['last-event-id'] = str(last_event_id)
        while True:
            try:
                async with self._connections.open(*self.request(codec, operation, params, headers)) as response:
                    if response.status_code != 200 or _media_type(response) != 'text/event-stream':
                        # A refusal, or one event as JSON.
                        event, size = await self._event(response, await self._connections.read(response))
                        self.codec = codec
                        yield event, None, size
                        return
                    reader = EventReader(MAX_ANSWER)
                    async for piece in pieces_of(response):
                        for data, event_id in reader.read(piece):
                            if data:
                                event, size = await self._event(response, data)
                                self.codec = codec
                                yield event, _number(event_id), size
                return
            except EventTooLong:
                raise self.unreadable(f'an event has more than {MAX_ANSWER} bytes') from None
            except MethodNotFoundError:
                if not self._may_be_older(codec, name):
                    raise
                codec = _OLDER

    def _may_be_older(self, codec: Codec, name: str) -> bool:
        """Return True if the agent may have the operation by its name in FastA2A's dialect.

        The cards of older versions of FastA2A declare A2A 1.0, but the servers have only the methods of 0.3.
        """
        return codec.dialect == '1.0' and self._interface.binding == 'JSONRPC' and name in _REQUIRED

    async def _call(self, codec: Codec, operation: Operation, params: Params) -> Any:
        async with self._connections.open(*self.request(codec, operation, params)) as response:
            body = await self._connections.read(response)
        args = _READERS[operation.name], response, body
        return self._read(*args) if len(body) < LONG else await asyncio.to_thread(self._read, *args)

    async def _event(self, response: httpx2.Response, data: bytes) -> tuple[StreamResponse, int]:
        """Return the event in the data of a server-sent event, and its size in a task; see `result` for the errors.

        The size is in bytes, or larger for many JSON values, which take more memory.
        """
        size = len(data)
        if size >= LONG or response.status_code != 200:
            event = await asyncio.to_thread(self._read, read_event, response, data)
        else:
            event = read_streamed(data, in_response=self._interface.binding == 'JSONRPC')
            if event is None:
                event = self._read(read_event, response, data)
        match event:
            case {'artifact_update': {'artifact': {'parts': [{'text': _} as part]} as artifact}} if (
                'metadata' not in part and 'metadata' not in artifact
            ):
                return event, size  # a piece of text, which is joined to the text before
            case _ if is_deep(data, event, MAX_DEPTH):
                raise self.unreadable(_TOO_DEEP)
            case _:
                return event, max(size, count_values(data, MAX_VALUES) * (MAX_ANSWER // MAX_VALUES))

    def _read(self, reader: Callable[[object], Any], response: httpx2.Response, body: bytes | str) -> Any:
        try:
            with reading(self.url):
                return reader(self.result(response, body))
        except AnswerUnreadable as error:
            raise self.unreadable(str(error)) from None

    def request(
        self, codec: Codec, operation: Operation, params: Params, more_headers: Mapping[str, str] = {}
    ) -> Request:
        """Return the request of an operation, in the tenant of the interface."""
        url = self._interface.url
        if self._interface.tenant:
            params = replace(params, tenant=self._interface.tenant)
        headers = {'content-type': 'application/json', 'accept': 'application/json', **more_headers}
        if codec.dialect != 'fasta2a':
            headers['a2a-version'] = codec.dialect
        if isinstance(params, SendParams) and (depth := chains.depth.get()) is not None:
            headers[chains.HEADER] = str(depth + 1)
        extensions, follows = (), operation.stream
        if isinstance(params, SendParams):
            extensions, follows = params.extensions, operation.stream or params.return_immediately
        if follows and self._live:
            extensions = (*extensions, LIVE_TEXT_URI)
        if extensions:
            headers[codec.extensions_header] = ', '.join(extensions)
        if self._interface.binding == 'JSONRPC':
            return Request('POST', url, headers, codec.encode_request(operation, params))
        if self._interface.binding == 'GRPC':
            return Request('POST', f'{url}/{operation.name}', headers, to_json(codec.params(params)))
        sent = cast('HttpCodec', codec).http_request(operation, params)
        base, _, key = url.partition('?')
        query = '&'.join(filter(None, (key, sent.query)))
        return Request(sent.verb, f'{base.rstrip("/")}{sent.path}{"?" * bool(query)}{query}', headers, sent.body)

    def result(self, response: httpx2.Response, body: bytes | str) -> object:
        """Return the result in an answer.

        Raises:
            A2AError: The answer is a refusal.
            RemoteProtocolError: The answer is not A2A.
        """
        status = response.status_code
        try:
            answer: object = read_json(body) if body else {}
        except TooManyValues:
            raise self.unreadable(f'the answer has more than {MAX_VALUES} JSON values') from None
        except TooDeep:
            raise self.unreadable(_TOO_DEEP) from None
        except ValueError:
            is_text = status >= 400 and _media_type(response) == 'text/plain'
            text = body if isinstance(body, str) else body[:_LONGEST_REASON].decode(errors='replace')
            answer = text.strip() if is_text else None
        if self._interface.binding != 'JSONRPC':
            return self._checked(status, answer, response)
        wire = as_object(answer)
        if (error := wire.get('error')) is not None and (status < 400 or isinstance(error, dict)):
            raise _with_headers(rpc_error(cast('object', error), status), response)
        self._checked(status, answer, response)
        if 'result' not in wire and 'jsonrpc' not in wire:
            raise self.unreadable('the answer is no JSON-RPC response')
        return wire.get('result')

    def _checked(self, status: int, answer: object, response: httpx2.Response) -> object:
        if 300 <= status < 400:
            raise self.unreadable(f'HTTP {status} redirects, and redirects are not followed')
        if status in (502, 504):
            text = f'{self.url} has answered with HTTP {status}. Try again later.'
            raise RemoteUnavailable(text, retry_after=retry_seconds(response.headers))
        if status >= 400:
            refusal = as_object(as_object(answer).get('error'))
            error = http_error(answer, status) if refusal else status_error(status, self.url, answer)
            raise _with_headers(error, response)
        if answer is None:
            kind = _media_type(response) or 'no media type'
            raise self.unreadable(
                'the answer is broken JSON'
                if kind == 'application/json'
                else f'the answer is not JSON but {kind[:100]}'
            )
        return answer

    def unreadable(self, reason: str) -> RemoteProtocolError:
        """Return the error for an answer that is not A2A."""
        return RemoteProtocolError(f'{self.url} has not answered in the form of A2A: {reason}.')


def _attributes_of(interface: Interface) -> dict[str, AttributeValue]:
    """Return the attributes that the spans of all requests to an interface have."""
    host, _, port = origin(interface.url).partition('://')[2].rpartition(':')
    return {
        'a2a.protocol.version': interface.version,
        'a2a.tenant': interface.tenant,
        'gen_ai.agent.name': interface.agent,
        'server.address': host.strip('[]'),
        'server.port': int(port or 0),
    }


def _name_task(span: Span, answer: Any) -> None:
    """Name the task of an answer or an event in its span. Pieces of artifacts name nothing new."""
    found = answer.get('task') or answer.get('message') or answer.get('status_update') or answer
    state = found.get('status', {}).get('state')
    name_task(span, found.get('task_id') or found.get('id'), found.get('context_id'), state)


def _media_type(response: httpx2.Response) -> str:
    return response.headers.get('content-type', '').partition(';')[0].strip().lower()


def _with_headers(error: A2AError, response: httpx2.Response) -> A2AError:
    for name in _PASSED_ON:
        if (value := response.headers.get(name)) is not None:
            error.headers[name.title()] = value[:1_000]
    if (described := _DESCRIPTION.search(error.headers.get('Www-Authenticate', ''))) is not None:
        error.message = f'{error.message} {described[1]}'
        error.args = (error.message,)
    if correlation_id := response.headers.get('x-correlation-id'):
        error.metadata.setdefault('correlationId', correlation_id[:256])
    return error


def _tasks(page: ListTasksResult) -> tuple[list[Task], str]:
    return page['tasks'], page.get('next_page_token', '')


def _number(event_id: bytes) -> int | None:
    return int(event_id) if event_id.isdigit() and len(event_id) <= _LONGEST_NUMBER else None
