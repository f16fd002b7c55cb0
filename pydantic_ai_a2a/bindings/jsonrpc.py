"""JSON-RPC 2.0 over HTTP POST (§9): frames requests and answers. Knows the codecs' interface; no version, no agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from .. import telemetry
from ..errors import A2AError
from ..protocol import versions
from ..protocol.codec import Codec, EncodeEvent, RpcRefused, RpcRequest
from ..protocol.envelope import request_id
from ..protocol.operations import refuse_unsupported
from ..service import CAPABILITIES, EventStream, Service
from ..types import CallContext, Caller, SendParams, StoredTask
from .base import (
    Authenticate,
    ClientGone,
    as_error,
    check_content_type,
    header,
    identify,
    new_correlation_id,
    read_body,
    reply,
)
from .extensions import Extensions, echo
from .sse import EventWriter, OpenStreams, parse_event_id

__all__ = ('JsonRpc',)

logger = logging.getLogger('pydantic_ai_a2a')

_WRITE: Mapping[str, Callable[[Codec, Any, Any], bytes]] = {
    'SendMessage': lambda codec, _, task: codec.encode_task_result(task),
    'GetTask': lambda codec, _, task: codec.encode_task(task),
    'CancelTask': lambda codec, _, task: codec.encode_task(task),
    'ListTasks': lambda codec, params, found: codec.encode_page(
        found.page, page_size=params.page_size, next_page_token=found.next_page_token
    ),
}
"""How an operation's result is written, given its params."""


class JsonRpc:
    """The endpoint, as an ASGI app."""

    def __init__(
        self,
        service: Service,
        *,
        body_limit: int,
        authenticate: Authenticate | None,
        extensions: Extensions,
        streams: OpenStreams,
        runs_here: Callable[[str], bool],
        start: Callable[[], Awaitable[None]],
    ) -> None:
        self.service = service
        self.start = start
        self.extensions = extensions
        self.streams = streams
        self.runs_here = runs_here
        self._body_limit = body_limit
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; whatever goes wrong is answered here."""
        exchange = _Exchange(self, scope, receive, send)
        try:
            caller = await identify(scope, self._authenticate)
            check_content_type(scope)
            body = await read_body(scope, receive, self._body_limit)
            await exchange.serve(body, caller)
        except ClientGone:
            return
        except RpcRefused as refused:
            exchange.id = refused.id
            exchange.wants_stream = refused.stream
            await exchange.refuse(refused.error)
        except Exception as exception:
            if exchange.streaming:
                raise  # the answer has begun: all that is left is to break it off
            await exchange.refuse(as_error(exception, exchange.correlation_id))


class _Exchange:
    """One request and its answer."""

    def __init__(self, endpoint: JsonRpc, scope: Scope, receive: Receive, send: Send) -> None:
        self.correlation_id = new_correlation_id()
        self.id = b'null'
        """The request's id as JSON."""
        self.wants_stream = False
        """Whether the request asks for an event stream, as far as it has been read."""
        self.streaming = False
        """Whether an event stream has begun."""
        self._endpoint = endpoint
        self._scope = scope
        self._receive = receive
        self._send = send
        self._choice: versions.Choice | None = None
        self._headers: tuple[tuple[str, str], ...] = ()

    async def serve(self, body: bytes, caller: Caller) -> None:
        """Decode the request, perform it, answer."""
        try:
            choice = self._choice = versions.choose(self._version(), body)
        except A2AError:
            self.id = request_id(body)
            raise
        request = choice.codec.decode(body)
        self.id = request.id
        self.wants_stream = request.operation.stream
        refuse_unsupported(request.operation, CAPABILITIES)
        if self._endpoint.extensions.declared:
            request = self._activate(request, choice.codec)
        await self._endpoint.start()
        with telemetry.operation_span(request.operation.name, self._scope) as span:
            call = CallContext(caller, self.correlation_id, None if span is None else telemetry.traceparent())
            if request.operation.stream:
                await self._stream(call, request, choice)
            else:
                await self._answer(call, request, choice)

    def _activate(self, request: RpcRequest, codec: Codec) -> RpcRequest:
        """The request with the extensions that it activates, which the answer's header repeats (§4.6)."""
        name, params = codec.extensions_header, request.params
        enforce = isinstance(params, SendParams) or not codec.reads_without_extensions
        requested = header(self._scope, name.lower().encode())
        active = self._endpoint.extensions.activate(requested, name=name, enforce=enforce)
        self._headers = echo(active, name)
        if active and isinstance(params, SendParams):
            return request._replace(params=replace(params, extensions=tuple(active)))
        return request

    def _version(self) -> str | None:
        version = header(self._scope, b'a2a-version')
        if version is None and (query := self._scope['query_string']):
            named = parse_qs(query.decode('latin-1')).get('A2A-Version')
            return ','.join(named) if named else None
        return version

    async def _answer(self, call: CallContext, request: RpcRequest, choice: versions.Choice) -> None:
        service = self._endpoint.service
        result: Any = await getattr(service, request.operation.service)(call, request.params)
        codec = _codec_for(result, choice) if choice.task_decides else choice.codec
        body = _WRITE[request.operation.name](codec, request.params, result)
        await reply(self._send, 200, self._frame(body), self.correlation_id, self._headers)

    async def _stream(self, call: CallContext, request: RpcRequest, choice: versions.Choice) -> None:
        writing = asyncio.current_task()
        assert writing is not None
        stream: EventStream | None = None
        try:
            stream = await self._open(call, request, writing)
            self.streaming = True
            codec = _codec_for(stream.first, choice)
            first = None if stream.first is None else codec.encode_task_result(stream.first)
            await self._writer(codec.event_encoder(stream.first)).write(stream, first, self._receive)
        except asyncio.CancelledError:
            dropped = stream is not None and stream.subscription is not None and stream.subscription.dropped
            if not dropped or writing.uncancel():
                raise  # not the reader's lag: somebody ends the request
            logger.warning('A reader fell behind and was dropped (correlation id %s).', self.correlation_id)
        finally:
            if stream is not None and stream.subscription is not None:
                stream.subscription.close()

    async def _open(self, call: CallContext, request: RpcRequest, writing: asyncio.Task[Any]) -> EventStream:
        service = self._endpoint.service
        params: Any = request.params
        if request.operation.name == 'SubscribeToTask':
            last_event_id = parse_event_id(header(self._scope, b'last-event-id'))
            return await service.subscribe_to_task(call, params, writing.cancel, last_event_id)
        return await service.stream_message(call, params, writing.cancel)

    def _writer(self, encode: EncodeEvent) -> EventWriter:
        return EventWriter(
            self._send,
            frame=self._frame,
            encode=encode,
            correlation_id=self.correlation_id,
            headers=self._headers,
            streams=self._endpoint.streams,
            runs_here=self._endpoint.runs_here,
        )

    def _frame(self, result: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":' + self.id + b',"result":' + result + b'}'

    async def refuse(self, error: A2AError) -> None:
        """Answer with an error: HTTP 200, but for what is refused below JSON-RPC (§9.5)."""
        codec = (self._choice or versions.before_reading(self._version())).codec
        described = codec.encode_error(error, self.correlation_id)
        body = b'{"jsonrpc":"2.0","id":' + self.id + b',"error":' + described + b'}'
        media_type = b'application/json'
        if self.wants_stream and codec.refuses_in_streams and not error.transport:
            body, media_type = b'data: ' + body + b'\n\n', b'text/event-stream'
        status = error.http_status if error.transport else 200
        await reply(self._send, status, body, self.correlation_id, error.headers.items(), media_type=media_type)


def _codec_for(result: object, choice: versions.Choice) -> Codec:
    """The codec of an answer: a task that is asked for by a method of several dialects has its own."""
    return versions.in_dialect_of(choice, result.header.dialect if isinstance(result, StoredTask) else '')
