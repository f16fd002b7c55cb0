"""One HTTP request and its answer, for all bindings: reads the body, and sends the result or the events of a stream."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar

from starlette.types import Receive, Scope, Send

from ...base_exceptions import ends_task
from ...correlation_ids import new_correlation_id
from ...errors import A2AError, ClientGone, OverloadedError, PayloadTooLargeError
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from ...wire.protocol.codec import Codec
from ...wire.protocol.operations import Operation
from ...wire.protocol.versions import CodecChoice, in_dialect_of
from ..auth.request_info import header
from ..service.answer_size import stored_size
from ..service.direct_messages import DirectMessage
from ..service.event_streams import EventStream
from ..service.request_flow import RequestFlow, Serving
from ..service.unsent_answers import CHUNK, AnswerUnread, UnsentAnswer
from ..store.ports import Subscription
from .aborted_connections import abort, abort_later
from .asgi_requests import request_info
from .cached_answers import CachedAnswer
from .client_watch import ClientWatch
from .replies import NO_SNIFF, reply, start_reply
from .request_bodies import JSON, check_content_type, read_body
from .unread_bodies import CLOSE, discarding, has_body

logger = logging.getLogger('pydantic_ai_a2a')

_COMMENT = b': keep-alive\n'  # no blank line behind it: old readers make an event without data of that (httpx-sse)
_UNSHARED = ('Cache-Control', 'private, no-cache')
"""The header against shared caching of a caller's card."""


class HttpExchange(RequestFlow):
    """One request and its answer. A binding decodes the request and frames the answer."""

    media_type: ClassVar[bytes] = b'application/json'
    """The media type of answers."""
    unshared: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Headers against shared caching of an answer."""
    envelope: tuple[bytes, bytes] = b'', b''
    """The bytes before and after a result, or an event of a stream."""
    _streaming = False
    """True once an event stream has begun."""
    _codec: Codec
    """Writes the events of a stream."""
    _head: bytes
    """The bytes between the number of an event and its content."""
    _tail: bytes
    """The bytes behind the content of an event."""
    _listener: ClientWatch | None = None
    """Set once the request has watched its client."""

    def __init__(self, serving: Serving, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(serving, request_info(scope, new_correlation_id(), gone=self.gone))
        self.scope = scope
        self.receive = receive
        self.send = send
        if serving.dispatcher.tenants is not None:
            self.tenant = scope['path_params'].get('tenant', '')

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
        self._listener = self._listener or ClientWatch(self.receive)
        self.receive, self.at_end = self._listener.receive, self._listener.close
        await self._listener.gone()

    async def break_off(self, gone: ClientGone) -> None:
        """End the connection of a client that does not read the answer; other clients have already disconnected."""
        if isinstance(gone, AnswerUnread):
            logger.warning('%s (correlation id %s).', gone, self.correlation_id)
            await abort(self.scope)

    async def fail(self, exception: BaseException) -> bool:
        """Answer with the error of an exception; end a connection whose client may still send the body."""
        if self._streaming or ends_task(exception, asyncio.current_task()):
            return False  # the answer has begun and can only be broken off, or the server ends the request
        error = await self.dispatch.refused(exception)
        if self.unread and has_body(self.scope):
            error.headers.update([CLOSE])
            if isinstance(error, PayloadTooLargeError):
                self.send = discarding(self.receive, self.send)
        await self.refuse(error)
        return True

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
        before, after = self.envelope
        headers = (*self.unshared, *self.dispatch.headers)
        if size <= CHUNK:
            body = b''.join((before, *pieces, after))
            await start_reply(self.send, 200, len(body), self.correlation_id, headers, media_type=self.media_type)
            await self.send({'type': 'http.response.body', 'body': body})
            return
        with self.serving.readers.answer(size) as answer:
            await answer.write(chain((before,), pieces, (after,)))
            del pieces
            await start_reply(self.send, 200, answer.left, self.correlation_id, headers, media_type=self.media_type)
            await answer.send(self.send)

    async def _show_card(self, card: bytes) -> None:
        """Answer with the caller's extended card."""
        headers = (*self.dispatch.headers, _UNSHARED)
        if self.scope['method'] == 'GET':
            headers = (*headers, ('X-Correlation-Id', self.correlation_id))
            answer = CachedAnswer(card, headers, media_type=self.media_type)
            await answer(self.scope, self.receive, self.send)
        else:
            body = card.join(self.envelope)
            await reply(self.send, 200, body, self.correlation_id, headers, media_type=self.media_type)

    # --- event streams, as Server-Sent Events ------------------------------------------------------------------------

    async def _stream(self, stream: EventStream | DirectMessage, choice: CodecChoice) -> None:
        before, after = self.envelope
        self._head, self._tail = b'\ndata: ' + before, after + b'\n\n'
        if isinstance(stream, DirectMessage):
            message = choice.codec.encode_message_result(stream.body)
            with self.room(len(message)) as answer:
                await self._start_stream()
                # Without a number: the one event cannot be resumed (§3.1.2).
                await self._send_pieces((self._head[1:], message, self._tail), answer)
            await self.send({'type': 'http.response.body', 'body': b''})
            return
        try:
            self._codec = _codec_for(stream.first, choice)
            await self._send_first(stream)
            if stream.subscription is not None:
                await self._watched(stream, stream.subscription)
            if not self.reader_gone:
                await self.send({'type': 'http.response.body', 'body': b''})
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

    async def _start_stream(self) -> None:
        self._streaming = True
        headers = [
            (b'content-type', b'text/event-stream'),
            (b'cache-control', b'no-store'),
            (b'x-accel-buffering', b'no'),
            (b'x-correlation-id', self.correlation_id.encode()),
            NO_SNIFF,
            *((name.lower().encode('latin-1'), value.encode('latin-1')) for name, value in self.dispatch.headers),
        ]
        await self.send({'type': 'http.response.start', 'status': 200, 'headers': headers})

    async def _send_first(self, stream: EventStream) -> None:
        """Begin a stream with its snapshot, if there is one. The stream then no longer holds it."""
        first, stream.first = stream.first, None
        with self.room(0 if first is None else stored_size(first)) as answer:
            await self._start_stream()
            if first is not None:
                number = b'id: %d' % first.header.last_event
                pieces = chain((number, self._head), self._codec.result_pieces(first), (self._tail,))
                del first
                await self._send_pieces(pieces, answer)

    async def _watched(self, stream: EventStream, subscription: Subscription) -> None:
        """Send the events of a stream until its client goes, or takes too much memory."""
        watch = asyncio.get_running_loop().create_task(self._watch(subscription))
        try:
            await self.follow(stream, subscription)
        except OverloadedError as error:
            raise AnswerUnread(
                'A stream was closed, because the process holds too many unread bytes of answers'
            ) from error
        finally:
            watch.cancel()

    async def _watch(self, subscription: Subscription) -> None:
        """Stop writing when the client has gone; its task goes on."""
        while (await self.receive())['type'] != 'http.disconnect':
            pass
        self.reader_gone = True
        subscription.nudge()

    async def keep_alive(self) -> None:
        """Send a comment."""
        await self.send({'type': 'http.response.body', 'body': _COMMENT, 'more_body': True})

    async def write_events(self, events: Sequence[TaskEvent], *, ended: bool) -> None:
        """Send events."""
        last = events[-1].n if ended else None
        pieces = [
            piece
            for event in events
            for piece in (b'id: %d' % event.n, self._head, self._codec.encode_event(event, event.n == last), self._tail)
        ]
        if pieces:
            del events
            with self.room(sum(map(len, pieces))) as answer:
                await self._send_pieces(pieces, answer)

    async def _send_pieces(self, pieces: Iterable[bytes], answer: UnsentAnswer | None) -> None:
        if answer is None:
            await self.send({'type': 'http.response.body', 'body': b''.join(pieces), 'more_body': True})
            return
        await answer.write(pieces)
        if isinstance(pieces, list):
            pieces.clear()  # the answer releases each piece once it is sent
        await answer.send(self.send, more=True)


def _codec_for(result: object, choice: CodecChoice) -> Codec:
    """Return the codec of an answer. For a method of several dialects, the dialect of the task decides."""
    return in_dialect_of(choice, result.header.dialect if isinstance(result, StoredTask) else '')
