"""Event streams as Server-Sent Events, by plain ASGI sends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from itertools import chain

from starlette.types import Receive, Send

from ..errors import OverloadedError
from ..protocol.operations import Codec
from ..service.slow_clients import CHUNK, AnswerUnread, Readers, UnsentAnswer
from ..service.tasks import EventStream, OpenStreams
from ..store.ports import Subscription
from ..types import TaskEvent
from .base import NO_SNIFF

logger = logging.getLogger('pydantic_ai_a2a')

_COMMENT = b': keep-alive\n'  # no blank line behind it: old readers make an event without data of that (httpx-sse)


class EventWriter:
    """Writes a stream.

    Args:
        send: Sends an ASGI message.
        codec: Writes the snapshot and the events.
        envelope: The bytes before and after an event.
        correlation_id: Names the request.
        headers: Headers of the answer.
        streams: The open streams of the app.
        readers: Sends long events.
    """

    def __init__(
        self,
        send: Send,
        codec: Codec,
        *,
        envelope: tuple[bytes, bytes],
        correlation_id: str,
        headers: Sequence[tuple[str, str]],
        streams: OpenStreams,
        readers: Readers,
    ) -> None:
        self._send = send
        before, after = envelope
        self._head, self._tail = b'\ndata: ' + before, after + b'\n\n'
        """The bytes between an event's number and content, and behind the content."""
        self._encode = codec.encode_event
        self._encode_first = codec.result_pieces
        self._correlation_id = correlation_id
        self._headers = headers
        self._streams = streams
        self._readers = readers
        self._gone = False

    async def begin(self, stream: EventStream, answer: UnsentAnswer | None) -> None:
        """Send the snapshot, if there is one; a long one as `answer`. The stream then no longer holds it."""
        await self._start()
        if stream.first is None:
            return
        number = b'id: %d' % stream.first.header.last_event
        pieces = chain((number, self._head), self._encode_first(stream.first), (self._tail,))
        stream.first = None
        await self._send_pieces(pieces, answer)

    async def follow(self, stream: EventStream, receive: Receive) -> None:
        """Send events until an end state of the stream, a disconnect of the client or the drain of the server.

        Raises:
            AnswerUnread: The stream was closed, because the process holds too many unread bytes.
        """
        subscription = stream.subscription
        if subscription is not None:
            watch = asyncio.get_running_loop().create_task(self._watch(receive, subscription))
            self._streams.add(subscription)
            try:
                await self._follow(stream, subscription)
            except OverloadedError as error:
                raise AnswerUnread(
                    'A stream was closed, because the process holds too many unread bytes of answers'
                ) from error
            finally:
                self._streams.remove(subscription)
                subscription.close()
                watch.cancel()
        if not self._gone:
            await self._send({'type': 'http.response.body', 'body': b''})

    async def write_one(self, data: bytes, answer: UnsentAnswer | None) -> None:
        """Send one event of what cannot be resumed, a long one as `answer`, and close (§3.1.2)."""
        await self._start()
        await self._send_pieces((self._head[1:], data, self._tail), answer)
        await self._send({'type': 'http.response.body', 'body': b''})

    async def _follow(self, stream: EventStream, subscription: Subscription) -> None:
        while True:
            events = await subscription.next()
            if self._gone or subscription.dropped:
                return
            if not events:
                if self._streams.over(stream.task_id):
                    return
                await self._send({'type': 'http.response.body', 'body': _COMMENT, 'more_body': True})
                continue
            events, ended = stream.up_to_end(events)
            if pieces := self._framed(events, ended):
                del events
                await self._events(pieces)
            if ended:
                return

    def _framed(self, events: Sequence[TaskEvent], ended: bool) -> list[bytes]:
        """Return the pieces of events; `ended` if the last event ends the stream."""
        pieces: list[bytes] = []
        last = events[-1].n if ended else None
        for event in events:
            pieces += (b'id: %d' % event.n, self._head, self._encode(event, event.n == last), self._tail)
        return pieces

    async def _events(self, pieces: list[bytes]) -> None:
        """Send the pieces of events."""
        size = sum(map(len, pieces))
        if size <= CHUNK:
            await self._send_pieces(pieces, None)
            return
        with self._readers.answer(size) as answer:
            await self._send_pieces(pieces, answer)

    async def _watch(self, receive: Receive, subscription: Subscription) -> None:
        """Stop writing when the client has gone; its task goes on."""
        while (await receive())['type'] != 'http.disconnect':
            pass
        self._gone = True
        subscription.nudge()

    async def _start(self) -> None:
        headers = [
            (b'content-type', b'text/event-stream'),
            (b'cache-control', b'no-store'),
            (b'x-accel-buffering', b'no'),
            (b'x-correlation-id', self._correlation_id.encode()),
            NO_SNIFF,
            *((name.lower().encode('latin-1'), value.encode('latin-1')) for name, value in self._headers),
        ]
        await self._send({'type': 'http.response.start', 'status': 200, 'headers': headers})

    async def _send_pieces(self, pieces: Iterable[bytes], answer: UnsentAnswer | None) -> None:
        if answer is None:
            await self._send({'type': 'http.response.body', 'body': b''.join(pieces), 'more_body': True})
            return
        await answer.write(pieces)
        if isinstance(pieces, list):
            pieces.clear()  # the answer releases each piece once it is sent
        await answer.send(self._send, more=True)
