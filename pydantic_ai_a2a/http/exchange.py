"""One HTTP request and its answer, for all bindings: reads the body, and sends the result."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from itertools import chain
from typing import Any, ClassVar

from starlette.types import Receive, Scope, Send

from ..auth.callers import header
from ..errors import A2AError, ClientGone, PayloadTooLargeError, ends_task
from ..protocol.operations import Codec, Operation
from ..protocol.versions import CodecChoice, in_dialect_of
from ..service import exchange
from ..service.dispatch import DirectMessage, stored_size
from ..service.exchange import Serving
from ..service.slow_clients import CHUNK, AnswerUnread
from ..service.tasks import EventStream
from ..types import StoredTask, new_correlation_id
from .base import (
    CLOSE,
    JSON,
    Listener,
    abort,
    abort_later,
    cached_answer,
    check_content_type,
    discarding,
    has_body,
    read_body,
    reply,
    send_cached,
    start,
)
from .card import request_info
from .sse import EventWriter

logger = logging.getLogger('pydantic_ai_a2a')

_UNSHARED = ('Cache-Control', 'private, no-cache')
"""The header against shared caching of a caller's card."""


class Exchange(exchange.Exchange):
    """One request and its answer. A binding decodes the request and frames the answer."""

    media_type: ClassVar[bytes] = b'application/json'
    """The media type of answers."""
    unshared: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Headers against shared caching of an answer."""
    _streaming = False
    """True once an event stream has begun."""
    _listener: Listener | None = None
    """Set once the request has watched its client."""

    def __init__(self, serving: Serving, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(serving, request_info(scope, new_correlation_id(), gone=self.gone))
        self.scope = scope
        self.receive = receive
        self.send = send
        if serving.dispatcher.tenants is not None:
            self.tenant = scope['path_params'].get('tenant', '')

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

    async def gone(self) -> None:
        """Return once the client has gone."""
        if self._listener is None:
            self._listener = Listener(self.receive)
            self.receive, self.at_end = self._listener.receive, self._listener.close
        await self._listener.gone()

    def is_over(self, exception: BaseException) -> bool:
        """Return True if the server ends the request, or if the answer has begun and can only be broken off."""
        return self._streaming or ends_task(exception, asyncio.current_task())

    async def leave(self, gone: ClientGone) -> None:
        """End the connection of a client that does not read the answer; other clients have already disconnected."""
        if isinstance(gone, AnswerUnread):
            logger.warning('%s (correlation id %s).', gone, self.correlation_id)
            await abort(self.scope)

    async def fail(self, exception: BaseException) -> None:
        """Answer with the error of an exception; end a connection whose client may still send the body."""
        error = await self.dispatch.refused(exception)
        if self.unread and has_body(self.scope):
            error.headers.update([CLOSE])
            if isinstance(error, PayloadTooLargeError):
                self.send = discarding(self.receive, self.send)
        await self.refuse(error)

    async def answer(self, operation: Operation, result: Any, choice: CodecChoice) -> None:
        """Send the result of the operation, or the events of a stream."""
        if operation.stream and not self.unanswered:
            await self._stream(result, choice)
            return
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
            with self.room(len(message)) as answer:
                self._streaming = True
                await self._writer(choice.codec).write_one(message, answer)
            return
        try:
            writer = self._writer(_codec_for(stream.first, choice))
            with self.room(0 if stream.first is None else stored_size(stream.first)) as answer:
                self._streaming = True
                await writer.begin(stream, answer)
            await writer.follow(stream, self.receive)
        except asyncio.CancelledError:
            assert self.task is not None, 'the request has a stream'
            dropped = stream.subscription is not None and stream.subscription.dropped
            # The drop cancels the task of the request. If that was the only cancel, `uncancel` returns 0, and the
            # request goes on to its end. If the server ends the request, too, its cancel must not be swallowed.
            if not dropped or self.task.uncancel():
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
