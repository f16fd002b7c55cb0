"""One HTTP request and its answer, for all bindings: reads the body, dispatches the operation, sends the result."""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, TypeAlias

from starlette.types import Receive, Scope, Send

from ..auth.callers import header
from ..errors import A2AError, ClientGone, PayloadTooLargeError, ends_task
from ..protocol.envelope import check_values
from ..protocol.operations import Codec, Operation, Params
from ..protocol.versions import CodecChoice, Versions, in_dialect_of
from ..service.dispatch import DirectMessage, Dispatch, Dispatcher, stored_size
from ..service.tasks import EventStream, OpenStreams, parse_event_id
from ..settings import LONG, Limits
from ..types import StoredTask, SubscribeParams, frozen, new_correlation_id
from .base import (
    CHUNK,
    JSON,
    AnswerUnread,
    Listener,
    abort,
    abort_later,
    cached_answer,
    check_content_type,
    read_body,
    reply,
    send_cached,
    start,
)
from .card import request_info
from .slow_clients import CLOSE, Readers, SlowClients, UnsentAnswer, discarding, has_body
from .sse import EventWriter

logger = logging.getLogger('pydantic_ai_a2a')

_UNSHARED = ('Cache-Control', 'private, no-cache')
"""The header against shared caching of a caller's card."""


@frozen
class Serving:
    """The parts of the app that every exchange needs."""

    dispatcher: Dispatcher
    versions: Versions
    limits: Limits
    senders: SlowClients
    """Ends requests that take too long to come."""
    readers: Readers
    """Sends long answers, and ends answers that are not read."""
    streams: OpenStreams


Request: TypeAlias = tuple[Operation, Params | None, CodecChoice]
"""A decoded request, with the codec of its answer."""


class Exchange(ABC):
    """One request and its answer. A binding decodes the request and frames the answer."""

    media_type: ClassVar[bytes] = b'application/json'
    """The media type of answers."""
    unshared: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Headers against shared caching of an answer."""
    unanswered = False
    """True if the client wants no result."""
    _task: asyncio.Task[Any] | None = None
    """The task of a stream."""
    _streaming = False
    """True once an event stream has begun."""
    _unread = True
    """True until the body was read."""
    _listener: Listener | None = None
    """Set once the request has watched its client."""

    def __init__(self, serving: Serving, scope: Scope, receive: Receive, send: Send) -> None:
        self.correlation_id = new_correlation_id()
        self.serving = serving
        self.scope = scope
        self.receive = receive
        self.send = send
        request = request_info(scope, self.correlation_id, gone=self._gone)
        self.dispatch = Dispatch(serving.dispatcher, request)

    @abstractmethod
    def decode(self, body: bytes) -> Request:
        """Decode the request.

        Raises:
            A2AError: The request cannot be served.
        """

    @abstractmethod
    def envelope(self) -> tuple[bytes, bytes]:
        """Return the bytes before and after a result, or an event of a stream."""

    @abstractmethod
    async def refuse(self, error: A2AError) -> None:
        """Answer with an error."""

    async def read(self) -> bytes:
        """Return the body.

        Raises:
            A2AError: The body is refused.
            ClientGone: The client went away.
        """
        declared = header(self.scope['headers'], b'content-type')
        if declared not in JSON:
            check_content_type(declared)
        return await read_body(self.scope, self.receive, self.serving.limits.body)

    async def handle(self) -> None:
        """Serve the request. All errors are answered here."""
        serving, dispatch = self.serving, self.dispatch
        try:
            await dispatch.admit()
            body = await serving.senders.wait(self.read())
            self._unread = False
            size = len(body)
            decode = self.decode if size <= serving.limits.values else self._decode_checked
            operation, params, choice = decode(body) if size < LONG else await asyncio.to_thread(decode, body)
            if operation.stream:
                params = self._resuming(params)
            result = dispatch.perform(
                operation,
                params,
                choice.codec,
                gone=self._gone,
                on_drop=self._drop,
                tenant='' if serving.dispatcher.tenants is None else self.scope['path_params'].get('tenant', ''),
                size=size,
                unanswered=self.unanswered,
            )
            # No variable keeps the request or the result: each part of a long answer is released once it is sent.
            del body, params
            if operation.stream and not self.unanswered:
                await self._stream(await result, choice)
            else:
                await self._answer(operation, await result, choice)
        except ClientGone as gone:
            dispatch.close(gone)
            await self._leave(gone)
        except BaseException as exception:
            dispatch.close(exception)
            if self._streaming or ends_task(exception, asyncio.current_task()):
                raise  # the answer has begun and can only be broken off
            await self._fail(exception)
        finally:
            if dispatch.held is not None:
                dispatch.close(sys.exc_info()[1])
            if self._listener is not None:
                self._listener.close()

    def _decode_checked(self, body: bytes) -> Request:
        """Decode a body that is long enough to hold too many values, at a byte each."""
        check_values(body, self.serving.limits.values)
        return self.decode(body)

    def _resuming(self, params: Params | None) -> Params | None:
        """Return the params of a stream with the event after which the client resumes."""
        self._task = asyncio.current_task()
        if not isinstance(params, SubscribeParams):
            return params
        return replace(params, last_event_id=parse_event_id(header(self.scope['headers'], b'last-event-id')))

    async def _gone(self) -> None:
        """Return once the client has gone."""
        self._listener = self._listener or Listener(self.receive)
        self.receive = self._listener.receive
        await self._listener.gone()

    def _drop(self) -> None:
        """Break off the stream of a reader too far behind."""
        assert self._task is not None, 'the request has a stream'
        self._task.cancel()

    async def _leave(self, gone: ClientGone) -> None:
        """End the connection of a client that does not read the answer; other clients have already disconnected."""
        if isinstance(gone, AnswerUnread):
            logger.warning('%s (correlation id %s).', gone, self.correlation_id)
            await abort(self.scope)

    async def _fail(self, exception: BaseException) -> None:
        error = await self.dispatch.refused(exception)
        if self._unread and has_body(self.scope):
            error.headers.update([CLOSE])
            if isinstance(error, PayloadTooLargeError):
                self.send = discarding(self.receive, self.send)
        await self.refuse(error)

    async def _answer(self, operation: Operation, result: Any, choice: CodecChoice) -> None:
        if self.unanswered:
            await reply(self.send, 200, b'', self.correlation_id, self.dispatch.headers)
            return
        if (write := operation.write) is None:
            await self._show_card(result)
            return
        if isinstance(result, DirectMessage):
            message = choice.codec.encode_message_result(result.body)
            size, pieces = len(message), iter((message,))
            del message
        else:
            codec = _codec_for(result, choice) if choice.task_decides else choice.codec
            size, pieces = stored_size(result), write(codec, result)
        del result  # the pieces hold it until they are sent
        before, after = self.envelope()
        headers = (*self.unshared, *self.dispatch.headers)
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
        """Reserve room for a part of a stream; a short part needs none.

        Raises:
            OverloadedError: Too many bytes of other answers are unsent.
        """
        return nullcontext() if size <= CHUNK else self.serving.readers.answer(size)

    async def _show_card(self, card: bytes) -> None:
        """Answer with the caller's extended card."""
        headers = (*self.dispatch.headers, _UNSHARED)
        if self.scope['method'] == 'GET':
            headers = (*headers, ('X-Correlation-Id', self.correlation_id))
            await send_cached(self.scope, self.send, cached_answer(card, headers, media_type=self.media_type))
        else:
            body = card.join(self.envelope())
            await reply(self.send, 200, body, self.correlation_id, headers, media_type=self.media_type)

    async def _stream(self, stream: EventStream | DirectMessage, choice: CodecChoice) -> None:
        if isinstance(stream, DirectMessage):
            message = choice.codec.encode_message_result(stream.body)
            with self._room(len(message)) as answer:
                self._streaming = True
                await self._writer(choice.codec).write_one(message, answer)
            return
        try:
            writer = self._writer(_codec_for(stream.first, choice))
            with self._room(0 if stream.first is None else stored_size(stream.first)) as answer:
                self._streaming = True
                await writer.begin(stream, answer)
            await writer.follow(stream, self.receive)
        except asyncio.CancelledError:
            assert self._task is not None, 'the request has a stream'
            dropped = stream.subscription is not None and stream.subscription.dropped
            # The drop cancels the task of the request. If that was the only cancel, `uncancel` returns 0, and the
            # request goes on to its end. If the server ends the request, too, its cancel must not be swallowed.
            if not dropped or self._task.uncancel():
                raise
            logger.warning(
                'A subscriber read its events too slowly and was disconnected; the task goes on (correlation id %s).',
                self.correlation_id,
            )
            abort_later(self.scope, self.serving.readers.seconds)

    def _writer(self, codec: Codec) -> EventWriter:
        return EventWriter(
            self.send,
            codec,
            envelope=self.envelope(),
            correlation_id=self.correlation_id,
            headers=self.dispatch.headers,
            readers=self.serving.readers,
            streams=self.serving.streams,
        )


def _codec_for(result: object, choice: CodecChoice) -> Codec:
    """Return the codec of an answer. For a method of several dialects, the dialect of the task decides."""
    return in_dialect_of(choice, result.header.dialect if isinstance(result, StoredTask) else '')
