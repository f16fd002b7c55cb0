"""One request and its answer, whatever the binding: who calls, in which version, what comes back. Knows no frame."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from .. import telemetry
from ..auth.guard import Guard
from ..errors import A2AError, QuotaExceededError
from ..protocol.codec import Codec, EncodeEvent, Params
from ..protocol.limits import check_values
from ..protocol.operations import Operation, refuse_unsupported
from ..protocol.versions import Choice, in_dialect_of
from ..quotas import Metering, audit_refusal
from ..service import EventStream, Service
from ..types import CallContext, Caller, SendParams, StoredTask
from .base import ClientGone, as_error, check_content_type, header, new_correlation_id, read_body, reply
from .extensions import Extensions, echo
from .slow import SlowSenders
from .sse import EventWriter, OpenStreams, parse_event_id

__all__ = ('Exchange', 'Request', 'Serving')

logger = logging.getLogger('pydantic_ai_a2a')

_WRITE: Mapping[str, Callable[[Codec, Any, Any], bytes]] = {
    'SendMessage': lambda codec, _, task: codec.encode_task_result(task),
    'GetTask': lambda codec, _, task: codec.encode_task(task),
    'CancelTask': lambda codec, _, task: codec.encode_task(task),
    'ListTasks': lambda codec, params, found: codec.encode_page(
        found.page, page_size=params.page_size, next_page_token=found.next_page_token
    ),
    'CreateTaskPushNotificationConfig': lambda codec, _, registered: codec.encode_push_config(registered),
    'GetTaskPushNotificationConfig': lambda codec, _, registered: codec.encode_push_config(registered),
    'ListTaskPushNotificationConfigs': lambda codec, _, found: codec.encode_push_configs(found),
    'DeleteTaskPushNotificationConfig': lambda codec, _, __: codec.encode_deleted(),
}
"""How an operation's result is written, given its params."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What every exchange needs of the app."""

    service: Service
    body_limit: int
    """Bytes of a body at most."""
    senders: SlowSenders
    """Ends those that take too long."""
    value_limit: int
    """JSON values of a body at most."""
    guard: Guard
    metering: Metering | None = None
    extensions: Extensions
    streams: OpenStreams
    runs_here: Callable[[str], bool]
    """Whether this process runs a task."""
    start: Callable[[], Awaitable[None]]
    """Starts what the lifespan has not started."""


Request: TypeAlias = tuple[Operation, Params | None, Choice]
"""What a binding makes of a request: what is asked for, and the codec of the answer."""


class Exchange(ABC):
    """One request and its answer. A binding says how the request is decoded, and how what is answered is framed."""

    media_type: ClassVar[bytes] = b'application/json'
    """Of the answers."""
    attributes: Mapping[str, str]
    """What an operation's span says of the binding."""

    def __init__(self, serving: Serving, scope: Scope, receive: Receive, send: Send) -> None:
        self.correlation_id = new_correlation_id()
        self.serving = serving
        self.scope = scope
        self.receive = receive
        self.send = send
        self._streaming = False  # whether an event stream has begun
        self._headers: tuple[tuple[str, str], ...] = ()

    @abstractmethod
    def decode(self, body: bytes) -> Request:
        """What is asked for.

        Raises:
            A2AError: It is nothing that can be served.
        """

    @abstractmethod
    def frame(self, result: bytes) -> bytes:
        """A result, or an event of a stream, as it is sent."""

    @abstractmethod
    async def refuse(self, error: A2AError) -> None:
        """Answer with an error."""

    async def read(self) -> bytes:
        """The body.

        Raises:
            A2AError: It is not taken.
            ClientGone: The client went away.
        """
        check_content_type(self.scope)
        return await read_body(self.scope, self.receive, self.serving.body_limit)

    def version(self) -> str | None:
        """The version that the request names (§3.6.1)."""
        version = header(self.scope, b'a2a-version')
        if version is None and (query := self.scope['query_string']):
            named = parse_qs(query.decode('latin-1')).get('A2A-Version')
            return ','.join(named) if named else None
        return version

    async def handle(self) -> None:
        """Serve the request; whatever goes wrong is answered here."""
        serving = self.serving
        try:
            caller = await serving.guard.admit(self.scope, self.correlation_id)
            body = await serving.senders.read(self.read())
            if len(body) > serving.value_limit:  # at a byte each, it may hold more
                check_values(body, serving.value_limit)
            operation, params, choice = self.decode(body)
            if serving.guard.scoped:
                self._authorize(caller, operation, params)
            if operation.name == 'ListTasks':
                serving.guard.check_list(caller, self.scope, self.correlation_id)
            refuse_unsupported(operation, serving.service.capabilities)
            if serving.extensions.declared:
                params = self._activate(params, choice.codec)
            await serving.start()
            with telemetry.operation_span(operation.name, self.scope, self.attributes) as span:
                call = CallContext(caller, self.correlation_id, None if span is None else telemetry.traceparent())
                perform = self._stream if operation.stream else self._answer
                if serving.metering is None:
                    await perform(call, operation, params, choice)
                else:
                    await self._metered(serving.metering, call, (operation, params, choice))
        except ClientGone:
            return
        except Exception as exception:
            if self._streaming:
                raise  # the answer has begun: all that is left is to break it off
            await self.refuse(as_error(exception, self.correlation_id))

    def _authorize(self, caller: Caller, operation: Operation, params: Params | None) -> None:
        """Refuse a caller without the scopes that the operation needs; a message may bring another one along."""
        names = [operation.name]
        if isinstance(params, SendParams) and params.push_config is not None:
            names.append('CreateTaskPushNotificationConfig')
        for name in names:
            self.serving.guard.authorize(caller, name, self.scope, self.correlation_id)

    async def _metered(self, metering: Metering, call: CallContext, request: Request) -> None:
        """Perform a request if its caller may."""
        operation, client = request[0], self.scope.get('client')
        address = client[0] if client else None
        try:
            subject = metering.subject(call.caller, address)
            await metering.admit(operation.name, subject)
            if operation.stream:
                with metering.stream(subject):
                    await self._stream(call, *request)
            else:
                await self._answer(call, *request)
        except QuotaExceededError as error:
            audit_refusal(error, call.caller, address, self.correlation_id)
            raise

    def _activate(self, params: Params | None, codec: Codec) -> Params | None:
        """The params with the extensions that they activate, which the answer's header repeats (§4.6)."""
        name = codec.extensions_header
        enforce = isinstance(params, SendParams) or not codec.reads_without_extensions
        requested = header(self.scope, name.lower().encode())
        active = self.serving.extensions.activate(requested, name=name, enforce=enforce)
        self._headers = echo(active, name)
        if active and isinstance(params, SendParams):
            return replace(params, extensions=tuple(active))
        return params

    async def _answer(self, call: CallContext, operation: Operation, params: Params | None, choice: Choice) -> None:
        result: Any = await getattr(self.serving.service, operation.service)(call, params)
        codec = _codec_for(result, choice) if choice.task_decides else choice.codec
        body = self.frame(_WRITE[operation.name](codec, params, result))
        await reply(self.send, 200, body, self.correlation_id, self._headers, media_type=self.media_type)

    async def _stream(self, call: CallContext, operation: Operation, params: Params | None, choice: Choice) -> None:
        writing = asyncio.current_task()
        assert writing is not None
        stream: EventStream | None = None
        try:
            stream = await self._open(call, operation, params, writing)
            self._streaming = True
            codec = _codec_for(stream.first, choice)
            first = None if stream.first is None else codec.encode_task_result(stream.first)
            await self._writer(codec.event_encoder(stream.first)).write(stream, first, self.receive)
        except asyncio.CancelledError:
            dropped = stream is not None and stream.subscription is not None and stream.subscription.dropped
            if not dropped or writing.uncancel():
                raise  # not the reader's lag: somebody ends the request
            logger.warning('A reader fell behind and was dropped (correlation id %s).', self.correlation_id)
        finally:
            if stream is not None and stream.subscription is not None:
                stream.subscription.close()

    async def _open(
        self, call: CallContext, operation: Operation, params: Any, writing: asyncio.Task[Any]
    ) -> EventStream:
        service = self.serving.service
        if operation.name == 'SubscribeToTask':
            last_event_id = parse_event_id(header(self.scope, b'last-event-id'))
            return await service.subscribe_to_task(call, params, writing.cancel, last_event_id)
        return await service.stream_message(call, params, writing.cancel)

    def _writer(self, encode: EncodeEvent) -> EventWriter:
        return EventWriter(
            self.send,
            frame=self.frame,
            encode=encode,
            correlation_id=self.correlation_id,
            headers=self._headers,
            streams=self.serving.streams,
            runs_here=self.serving.runs_here,
        )


def _codec_for(result: object, choice: Choice) -> Codec:
    """The codec of an answer: a task that is asked for by a method of several dialects has its own."""
    return in_dialect_of(choice, result.header.dialect if isinstance(result, StoredTask) else '')
