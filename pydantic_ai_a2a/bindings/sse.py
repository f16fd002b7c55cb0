"""Event streams as Server-Sent Events, by plain ASGI sends. Knows frames and readers; no operation, no version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from starlette.types import Receive, Send

from ..ports import Subscription
from ..protocol.codec import EncodeEvent
from ..service import EventStream
from ..types import StoredTask, TaskEvent
from .base import CHUNK, NO_SNIFF, send_body

__all__ = ('EventWriter', 'OpenStreams', 'parse_event_id')

logger = logging.getLogger('pydantic_ai_a2a')

_COMMENT = b': keep-alive\n\n'


def parse_event_id(value: str | None) -> int | None:
    """Return the number in `Last-Event-ID`; None without the header, or if its value is not a number."""
    if value is None or not (value.isascii() and value.isdigit()):
        return None
    return int(value) if len(value) < 19 else 2**62  # larger than the number of any event


class OpenStreams:
    """The open streams of an app: one keep-alive timer for all, and their end when the server shuts down."""

    def __init__(self, interval: float) -> None:
        self.closing = False
        """Whether streams end as soon as nothing runs that they could tell of."""
        self._interval = interval
        self._subscriptions: set[Subscription] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, subscription: Subscription) -> None:
        """A stream was opened in the running loop."""
        self._subscriptions.add(subscription)
        loop = asyncio.get_running_loop()
        if self._timer is None or self._loop is None or self._loop.is_closed():
            self._loop = loop
            self._timer = loop.call_later(self._interval, self._tick)

    def remove(self, subscription: Subscription) -> None:
        """A stream was closed."""
        self._subscriptions.discard(subscription)

    def close(self) -> None:
        """End the streams that have nothing to wait for in this process."""
        self.closing = True
        self._nudge()

    def _nudge(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.nudge()

    def _tick(self) -> None:
        self._timer = None
        self._nudge()
        if self._subscriptions and self._loop is not None:
            self._timer = self._loop.call_later(self._interval, self._tick)


class EventWriter:
    """Writes one stream."""

    def __init__(
        self,
        send: Send,
        *,
        frame: Callable[[bytes], bytes],
        encode: EncodeEvent,
        encode_first: Callable[[StoredTask], bytes],
        correlation_id: str,
        headers: Sequence[tuple[str, str]],
        streams: OpenStreams,
        patient: Callable[[Awaitable[None]], Awaitable[None]],
        runs_here: Callable[[str], bool],
    ) -> None:
        self._send = send
        self._frame = frame
        self._encode = encode
        self._encode_first = encode_first
        self._correlation_id = correlation_id
        self._headers = headers
        self._streams = streams
        self._patient = patient
        self._runs_here = runs_here
        self._gone = False

    async def write(self, stream: EventStream, receive: Receive) -> None:
        """Send the snapshot and then events until one of the stream's end states, the client or the server goes."""
        await self._start()
        if stream.first is not None:
            snapshot = self._encode_first(stream.first)
            await self._body(_event(stream.first.header.last_event, self._frame(snapshot)))
            del snapshot
            stream.first = None  # it may be long, and the stream stay open for long
        subscription = stream.subscription
        if subscription is not None:
            watch = asyncio.get_running_loop().create_task(self._watch(receive, subscription))
            self._streams.add(subscription)
            try:
                await self._follow(stream, subscription)
            finally:
                self._streams.remove(subscription)
                subscription.close()
                watch.cancel()
        if not self._gone:
            await self._send({'type': 'http.response.body', 'body': b''})

    async def write_one(self, data: bytes) -> None:
        """Send one event of what cannot be resumed, and close (§3.1.2)."""
        await self._start()
        await self._body(b'data: ' + self._frame(data) + b'\n\n')
        await self._send({'type': 'http.response.body', 'body': b''})

    async def _follow(self, stream: EventStream, subscription: Subscription) -> None:
        while True:
            events = await subscription.next()
            if self._gone or subscription.dropped:
                return
            if not events:
                if self._streams.closing and not self._runs_here(stream.task_id):
                    return
                await self._body(_COMMENT)
                continue
            events, ended = _up_to(events, stream)
            *before, last = events
            frames = [_event(event.n, self._frame(self._encode(event, False))) for event in before]
            frame = _event(last.n, self._frame(self._encode(last, ended)))
            await self._body(b''.join([*frames, frame]) if before else frame)
            if ended:
                return

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

    async def _body(self, body: bytes) -> None:
        if len(body) <= CHUNK:
            await self._send({'type': 'http.response.body', 'body': body, 'more_body': True})
        else:
            await self._patient(send_body(self._send, body, more=True))


def _event(n: int, data: bytes) -> bytes:
    return b'id: %d\ndata: %s\n\n' % (n, data)


def _up_to(events: Sequence[TaskEvent], stream: EventStream) -> tuple[Sequence[TaskEvent], bool]:
    """The events up to the first that ends the stream."""
    for index, event in enumerate(events):
        if event.state in stream.ends:
            return events[: index + 1], True
    return events, False
