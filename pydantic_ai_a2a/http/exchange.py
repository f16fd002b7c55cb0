"""One request and its answer, whatever the binding: who calls, in which version, what comes back. Knows no frame."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from .. import telemetry
from ..audit import new_correlation_id
from ..auth.guard import Guard
from ..auth.tenants import Tenants
from ..errors import A2AError, InvalidParamsError, PayloadTooLargeError, QuotaExceededError
from ..protocol.codec import Codec, Params, tenant_of
from ..protocol.limits import check_values
from ..protocol.operations import Operation, refuse_unsupported
from ..protocol.versions import CodecChoice, Versions, in_dialect_of
from ..quotas import Metering, audit_refusal
from ..runs.direct import Direct
from ..service.streams import OpenStreams
from ..service.tasks import EventStream, Service, TaskList
from ..settings import LONG
from ..types import Call, Caller, SendParams, StoredTask, SubscribeParams
from .base import (
    CHUNK,
    AnswerUnread,
    ClientGone,
    as_error,
    audit_refused,
    check_content_type,
    header,
    read_body,
    reply,
    start,
)
from .card import send_card
from .connection import abort, abort_later
from .extended_card import UNSHARED, ExtendedCard
from .extensions import Extensions, echo
from .request import request_info
from .slow_clients import SlowClients
from .sse import EventWriter, parse_event_id
from .unread import CLOSE, discarding, has_body
from .unsent import Readers, UnsentAnswer

__all__ = ('Exchange', 'Request', 'Serving')

logger = logging.getLogger('pydantic_ai_a2a')


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What every exchange needs of the app."""

    service: Service
    versions: Versions
    body_limit: int
    """Bytes of a body at most."""
    senders: SlowClients
    """Ends requests that take too long to come."""
    readers: Readers
    """Sends long answers, and ends those that are not read."""
    value_limit: int
    """JSON values of a body at most."""
    guard: Guard
    metering: Metering | None = None
    extensions: Extensions
    capabilities: Collection[str]
    """Capabilities that the agent card declares (§4.4.3)."""
    extended: ExtendedCard | None = None
    direct: Direct | None = None
    """Answers with messages; None: all answers are tasks."""
    tenants: Tenants | None = None
    """Those that requests may name; None: what they name means nothing."""
    streams: OpenStreams
    runs_here: Callable[[str], bool]
    """Whether this process runs a task."""
    start: Callable[[], Awaitable[None]]
    """Starts what the lifespan has not started."""
    keep: Callable[[Iterable[tuple[bytes, bytes]], Caller], dict[str, Any]] | None = None
    """What runs may want to know of a call, from its headers and caller; None if no run does."""


Request: TypeAlias = tuple[Operation, Params | None, CodecChoice]
"""What a binding makes of a request: what is asked for, and the codec of the answer."""
Perform: TypeAlias = Callable[[Call, Operation, Params | None, CodecChoice], Awaitable[None]]
"""Performs an operation and sends its result."""


class Exchange(ABC):
    """One request and its answer. A binding says how the request is decoded, and how what is answered is framed."""

    media_type: ClassVar[bytes] = b'application/json'
    """Of the answers."""
    unshared: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Headers that keep answers from being given to others, where caches on the way might."""
    notify: Perform | None = None
    """Performs the operation of a request that gets no result; None: the request gets one."""
    attributes: Mapping[str, str]
    """What an operation's span says of the binding."""

    def __init__(self, serving: Serving, scope: Scope, receive: Receive, send: Send) -> None:
        self.correlation_id = new_correlation_id()
        self.serving = serving
        self.scope = scope
        self.request = request_info(scope, self.correlation_id)
        self.receive = receive
        self.send = send
        self._tenant = ''  # that the request names
        self._streaming = False  # whether an event stream has begun
        self._unread = True  # whether the body is
        self._caller: Caller | None = None  # once it is known, in the tenant that is settled by then
        self._admitted: Caller | None = None  # as its credentials say, whichever tenant it names
        self._counted = False  # whether it was, by what limits the rate of what it asks for
        self._is_direct: bool | None = None  # whether a message is answered with a message, once that is known
        self._headers: tuple[tuple[str, str], ...] = ()

    @abstractmethod
    def decode(self, body: bytes) -> Request:
        """What is asked for.

        Raises:
            A2AError: It is nothing that can be served.
        """

    @abstractmethod
    def envelope(self) -> tuple[bytes, bytes]:
        """Return what is sent before a result, or an event of a stream, and what is sent after it."""

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
            caller = self._caller = self._admitted = await serving.guard.admit(self.request)
            body = await serving.senders.wait(self.read())
            self._unread = False
            size = len(body)
            decode = self.decode if size <= serving.value_limit else self._decode_checked
            operation, params, choice = decode(body) if size < LONG else await asyncio.to_thread(decode, body)
            if serving.tenants is not None:
                caller = self._caller = await self._in_tenant(serving.tenants, caller, params)
            if serving.guard.scoped:
                self._authorize(caller, operation, params)
            if operation.lists:
                serving.guard.check_list(caller, self.request)
            refuse_unsupported(operation, serving.capabilities, choice.codec.refusals)
            params = self._activate(params, choice.codec)
            await serving.start()
            with telemetry.operation_span(operation.name, self.request.headers, self.attributes) as span:
                traceparent = None if span is None else telemetry.traceparent()
                kept = None if serving.keep is None else serving.keep(self.request.headers, caller)
                call = Call(caller, self.correlation_id, traceparent, kept, size)
                perform = self.notify or (self._stream if operation.stream else self._answer)
                if serving.metering is None:
                    await perform(call, operation, params, choice)
                else:
                    await self._metered(serving.metering, perform, call, (operation, params, choice))
        except ClientGone as gone:
            await self._leave(gone)
        except Exception as exception:
            if self._streaming:
                raise  # the answer has begun: all that is left is to break it off
            await self._fail(exception)

    def _decode_checked(self, body: bytes) -> Request:
        """Decode a body that is long enough to hold too many values, at a byte each."""
        check_values(body, self.serving.value_limit)
        return self.decode(body)

    async def _leave(self, gone: ClientGone) -> None:
        """End the connection of a client that does not read its answer; others have ended theirs."""
        if isinstance(gone, AnswerUnread):
            logger.warning('%s (correlation id %s).', gone, self.correlation_id)
            await abort(self.scope)

    async def _fail(self, exception: Exception) -> None:
        error = as_error(exception, self.correlation_id)
        audit_refused(error, self.request, self._caller)
        if not self._counted:
            error = await self._count_refused(error)
        if self._unread and has_body(self.scope):
            error.headers.update([CLOSE])
            if isinstance(error, PayloadTooLargeError):
                self.send = discarding(self.receive, self.send)
        await self.refuse(error)

    async def _count_refused(self, error: A2AError) -> A2AError:
        """Count a request of a known caller that is refused before it is known what it asks for; what to answer."""
        metering = self.serving.metering
        if metering is None or self._admitted is None or self._caller is None:
            return error
        try:
            await self.serving.start()
            await metering.admit('*', metering.subject(self._admitted, self.request.address))
        except Exception as exception:
            if isinstance(exception, QuotaExceededError):
                audit_refusal(exception, self._caller, self.request.address, self.correlation_id)
            return as_error(exception, self.correlation_id)
        return error

    async def _in_tenant(self, tenants: Tenants, caller: Caller, params: Params | None) -> Caller:
        """The caller in the tenant that the path or the params name (§8.3.2)."""
        path, named = self.scope['path_params'].get('tenant', ''), tenant_of(params)
        if path and named not in ('', path):
            raise InvalidParamsError.of('tenant', 'must be what the path says')
        self._tenant = path or named
        settled = await tenants.settle(caller, self._tenant)
        if settled is None:
            self.serving.guard.refuse_tenant(caller, self._tenant, self.request)
        return settled if settled is caller else self.serving.guard.owning(settled)

    def _authorize(self, caller: Caller, operation: Operation, params: Params | None) -> None:
        """Refuse a caller without the scopes that the operation needs; a message may bring another one along."""
        names = [operation.name]
        if isinstance(params, SendParams) and params.push_config is not None:
            names.append('CreateTaskPushNotificationConfig')
        for name in names:
            self.serving.guard.authorize(caller, name, self.request)

    async def _metered(self, metering: Metering, perform: Perform, call: Call, request: Request) -> None:
        """Perform a request if its caller may."""
        operation, params, _ = request
        self._counted = True
        address = self.request.address
        try:
            # As the credentials say: whoever may name any tenant would not be limited at all.
            subject = metering.subject(self._admitted or call.caller, address)
            await metering.admit(operation.name, subject)
            if operation.stream or (isinstance(params, SendParams) and await self._waits(params)):
                with metering.stream(subject):
                    await perform(call, *request)
            else:
                await perform(call, *request)
        except QuotaExceededError as error:
            audit_refusal(error, call.caller, address, self.correlation_id)
            raise

    async def _waits(self, params: SendParams) -> bool:
        """Whether a send is answered only when a run has ended."""
        if not params.return_immediately:
            return True
        direct = self.serving.direct
        return direct is not None and await self._takes(direct, params)

    async def _takes(self, direct: Direct, params: SendParams) -> bool:
        """Whether a message is answered with a message; who says so is asked once."""
        if self._is_direct is None:
            self._is_direct = await direct.takes(params.message)
        return self._is_direct

    def _activate(self, params: Params | None, codec: Codec) -> Params | None:
        """The params with the extensions that they activate, which the answer's header repeats (§4.6)."""
        name = codec.extensions_header
        requested = header(self.scope, codec.extensions_key)
        if requested is None and not self.serving.extensions.required:
            return params
        enforce = isinstance(params, SendParams) or not codec.reads_without_extensions
        active = self.serving.extensions.activate(requested, name=name, enforce=enforce)
        self._headers = echo(active, name)
        if active and isinstance(params, SendParams):
            return replace(params, extensions=tuple(active))
        return params

    async def _answer(self, call: Call, operation: Operation, params: Params | None, choice: CodecChoice) -> None:
        if (write := operation.write) is None:
            await self._show_card(call)
            return
        direct = self.serving.direct
        if direct is not None and isinstance(params, SendParams) and await self._takes(direct, params):
            message = choice.codec.encode_message_result(await self._direct(direct, call, params))
            size, pieces = len(message), iter((message,))
            del message
        else:
            result: Any = await getattr(self.serving.service, operation.service)(call, params)
            codec = _codec_for(result, choice) if choice.task_decides else choice.codec
            size, pieces = _stored_size(result), write(codec, result)
            del result  # the pieces hold it until they are sent
        before, after = self.envelope()
        headers = (*self.unshared, *self._headers)
        if size <= CHUNK:
            body = b''.join((before, *pieces, after))
            await start(self.send, 200, len(body), self.correlation_id, headers, media_type=self.media_type)
            await self.send({'type': 'http.response.body', 'body': body})
            return
        with self.serving.readers.answer(size) as answer:
            await answer.write(chain((before,), pieces, (after,)))
            del pieces
            await start(self.send, 200, answer.left, self.correlation_id, headers, media_type=self.media_type)
            await answer.send(self.send)

    def _room(self, size: int) -> AbstractContextManager[UnsentAnswer | None]:
        """Have room for so many bytes of a stream; a few need none.

        Raises:
            OverloadedError: There is none.
        """
        return nullcontext() if size <= CHUNK else self.serving.readers.answer(size)

    async def _show_card(self, call: Call) -> None:
        """Answer with the caller's extended card."""
        serving = self.serving
        serving.guard.check_known(call.caller, self.request)
        assert serving.extended is not None, 'the card declares it'
        card = await serving.extended.render(call.caller, self.scope, self._tenant)
        headers = (*self._headers, UNSHARED)
        if self.scope['method'] == 'GET':
            headers = (*headers, ('X-Correlation-Id', self.correlation_id))
            await send_card(self.scope, self.send, card, headers, media_type=self.media_type)
        else:
            body = card.join(self.envelope())
            await reply(self.send, 200, body, self.correlation_id, headers, media_type=self.media_type)

    async def _stream(self, call: Call, operation: Operation, params: Params | None, choice: CodecChoice) -> None:
        direct = self.serving.direct
        if direct is not None and isinstance(params, SendParams) and await self._takes(direct, params):
            message = choice.codec.encode_message_result(await self._direct(direct, call, params))
            with self._room(len(message)) as answer:
                self._streaming = True
                await self._writer(choice.codec, None).write_one(message, answer)
            return
        writing = asyncio.current_task()
        assert writing is not None
        stream: EventStream | None = None
        try:
            stream = await self._open(call, operation, params, writing)
            writer = self._writer(_codec_for(stream.first, choice), stream.first)
            with self._room(0 if stream.first is None else _stored_size(stream.first)) as answer:
                self._streaming = True
                await writer.begin(stream, answer)
            await writer.follow(stream, self.receive)
        except asyncio.CancelledError:
            dropped = stream is not None and stream.subscription is not None and stream.subscription.dropped
            if not dropped or writing.uncancel():
                raise  # not the reader's lag: somebody ends the request
            logger.warning('A reader fell behind and was dropped (correlation id %s).', self.correlation_id)
            abort_later(self.scope, self.serving.readers.seconds)
        finally:
            if stream is not None and stream.subscription is not None:
                stream.subscription.close()

    async def _direct(self, direct: Direct, call: Call, params: SendParams) -> bytes:
        """The message that answers one, unless the client goes away before.

        Raises:
            ClientGone: It has.
        """
        submission = await self.serving.service.check(call, params)
        message = await direct.answer(submission, self.correlation_id, self._gone)
        if message is None:
            raise ClientGone
        return message

    async def _gone(self) -> None:
        while (await self.receive())['type'] != 'http.disconnect':
            pass

    async def _open(self, call: Call, operation: Operation, params: Any, writing: asyncio.Task[Any]) -> EventStream:
        if isinstance(params, SubscribeParams):
            params = replace(params, last_event_id=parse_event_id(header(self.scope, b'last-event-id')))
        return await getattr(self.serving.service, operation.service)(call, params, writing.cancel)

    def _writer(self, codec: Codec, first: StoredTask | None) -> EventWriter:
        return EventWriter(
            self.send,
            envelope=self.envelope(),
            encoder=partial(codec.event_encoder, first),
            encode_first=codec.result_pieces,
            correlation_id=self.correlation_id,
            headers=self._headers,
            readers=self.serving.readers,
            streams=self.serving.streams,
            runs_here=self.serving.runs_here,
        )


def _stored_size(result: object) -> int:
    """About how many bytes a result has; of a result that holds no tasks, which is short, 0."""
    if not isinstance(result, StoredTask):
        return sum(map(_stored_size, result.page.tasks)) if isinstance(result, TaskList) else 0
    header = result.header
    bodies = (header.status_message or b'', header.metadata or b'', *(result.history or ()), *(result.artifacts or ()))
    return sum(map(len, bodies))


def _codec_for(result: object, choice: CodecChoice) -> Codec:
    """The codec of an answer: a task that is asked for by a method of several dialects has its own."""
    return in_dialect_of(choice, result.header.dialect if isinstance(result, StoredTask) else '')
