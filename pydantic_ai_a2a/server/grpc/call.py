"""One gRPC call and its answer: reads the message, dispatches the operation, writes the answer or the stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from traceback import clear_frames
from typing import Any, ClassVar

from grpc import aio

from ...base_exceptions import is_cancelled, is_for_the_process
from ...correlation_ids import new_correlation_id
from ...errors import ClientGone, InvalidRequestError, OverloadedError
from ...settings.limits import LONG
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from ...wire.protobuf.method_messages import MethodMessages
from ...wire.protocol.codec import HttpCodec
from ...wire.protocol.operations import Operation
from ...wire.protocol.versions import HTTP, CodecChoice
from ..auth.request_info import header
from ..service.answer_size import stored_size
from ..service.direct_messages import DirectMessage
from ..service.event_streams import EventStream
from ..service.request_flow import DecodedRequest, RequestFlow, Serving
from ..service.unsent_answers import UnsentAnswer
from .call_info import request_info
from .call_status import refusal_of

logger = logging.getLogger('pydantic_ai_a2a')

_TOO_SLOW = 'A subscriber reads its events too slowly, and its stream ends'


@dataclass(frozen=True, slots=True)
class GrpcCalls:
    """The calls of a server."""

    converting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a long message is converted, which takes many times the memory of the message."""
    open: dict[asyncio.Task[None], GrpcCall] = field(default_factory=dict['asyncio.Task[None]', 'GrpcCall'])
    """The calls that have not ended, also calls that store a message although their clients have gone."""


class GrpcCall(RequestFlow):
    """One call and its answer.

    Args:
        serving: The parts of the app.
        calls: The calls of the server.
        operation: The operation of the called method.
        messages: The messages of the method.
        context: The call.
    """

    reads_at_once: ClassVar[bool] = False
    _task: asyncio.Task[None]
    """The task of the call."""
    _codec: HttpCodec = HTTP
    _performing = False
    """True while the operation may be storing. Then nothing breaks it off."""
    _begun = False
    """True once the answer has begun."""
    _cut = False
    """True once the call ends because its reader is too slow."""

    def __init__(
        self,
        serving: Serving,
        calls: GrpcCalls,
        operation: Operation,
        messages: MethodMessages,
        context: aio.ServicerContext[bytes, bytes],
    ) -> None:
        super().__init__(serving, request_info(context, new_correlation_id(), gone=self.gone))
        self._calls = calls
        self._operation = operation
        self._messages = messages
        self._context = context
        self.left = self._left = asyncio.get_running_loop().create_future()

    async def handle(self) -> None:
        """Serve the call in a task of its own: the end of the call ends the task, but not while a message is stored."""
        self._task = task = asyncio.get_running_loop().create_task(self.serve())
        self._calls.open[task] = self
        task.add_done_callback(self._calls.open.pop)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """End the call of a client that has gone, but not while a message is stored."""
        if not self._left.done():
            self._left.set_result(None)
        if not self._performing:
            self._task.cancel()

    async def read(self) -> bytes:
        """Return the message of the client."""
        body = await self._context.read()
        if body is aio.EOF:
            raise InvalidRequestError('Invalid request: the call ended without a message')
        return body

    def decode(self, body: bytes) -> DecodedRequest:
        """Decode the message of the client."""
        codec = self._codec = self.serving.versions.choose_http(header(self.request.headers, b'a2a-version'))
        body = self._messages.decode(body)
        params = self.decode_params(codec, self._operation, path={}, query=b'', body=body)
        self._performing = True
        return self._operation, params, CodecChoice(codec)

    async def gone(self) -> None:
        """Return once the client has gone."""
        await asyncio.shield(self._left)

    def drop(self) -> bool:
        """Break off the stream of a reader too far behind, unless it breaks off already."""
        return self._cut or super().drop()

    async def answer(self, operation: Operation, result: Any, choice: CodecChoice) -> None:
        """Write a stream, or the one message of an answer."""
        self._performing = False
        if self._left.done():
            raise ClientGone
        if isinstance(result, EventStream):
            await self._stream(result)
            return
        with self.room(size := stored_size(result)) as room:
            message = await self._maybe_in_thread(size, self._encode, result)
            del result
            await self._write(message, room)

    def _encode(self, result: Any) -> bytes:
        """Return the one message of an answer."""
        if isinstance(result, DirectMessage):
            json = self._codec.encode_message_result(result.body)
        elif (write := self._operation.write) is None:
            json = result if isinstance(result, bytes) else b'{}'
        else:
            json = b''.join(write(self._codec, result))
        return self._messages.encode(json)

    async def _stream(self, stream: EventStream) -> None:
        """Write events until an end state of the stream, the end of the call or the drain of the server."""
        subscription = stream.subscription
        try:
            await self._write_first(stream)
            if subscription is None:
                return
            in_time = await self.follow(stream, subscription)
        except asyncio.CancelledError:
            if subscription is None or not subscription.dropped or self._task.uncancel():
                raise  # not the reader's lag: the call has ended
            raise ClientGone(_TOO_SLOW) from None
        if not in_time:
            self._cut = True  # the cancel of the drop may still come
            raise ClientGone(_TOO_SLOW)

    async def _write_first(self, stream: EventStream) -> None:
        """Write the task with which a stream begins, and release the task."""
        first, stream.first = stream.first, None
        if first is not None:
            with self.room(size := stored_size(first)) as room:
                message = await self._maybe_in_thread(size, self._encode_first, first)
                del first
                await self._write(message, room)

    def _encode_first(self, task: StoredTask) -> bytes:
        return self._messages.encode(b''.join(self._codec.result_pieces(task)), task.header.last_event)

    async def keep_alive(self) -> None:
        """Write nothing: gRPC itself pings on each connection."""

    async def write_events(self, events: Sequence[TaskEvent], *, ended: bool) -> None:
        """Write events of a stream."""
        for event in events:
            json = self._codec.encode_event(event, False)
            with self.room(len(json)) as room:
                await self._write(await self._maybe_in_thread(len(json), self._messages.encode, json, event.n), room)

    async def _write(self, message: bytes, room: UnsentAnswer | None) -> None:
        """Send a message. One with room keeps it until the client takes the message, or has gone."""
        if not self._begun:
            self._begun = True
            named = ((name.lower(), value) for name, value in self.dispatch.headers)
            await self._send(self._context.send_initial_metadata((('x-correlation-id', self.correlation_id), *named)))
        if room is None:
            await self._send(self._context.write(message))
            return
        room.ready(len(message))
        sending = asyncio.ensure_future(self._send(self._context.write(message)))
        sending.add_done_callback(_retrieve)
        try:
            await asyncio.wait([sending])
        except asyncio.CancelledError:
            await asyncio.wait([sending])  # gRPC cannot take back a message, and keeps its memory
            raise
        sending.result()

    async def _send(self, sending: Awaitable[None]) -> None:
        try:
            await sending
        except (aio.InternalError, aio.UsageError):  # the call, or the server, has ended meanwhile
            raise ClientGone from None

    async def fail(self, exception: BaseException) -> bool:
        """End the call with the status of an error."""
        # A cancel of a call whose client is still there would leave the call open for ever.
        if is_for_the_process(exception, self._task) or (self._left.done() and is_cancelled(exception, self._task)):
            clear_frames(exception.__traceback__)
            return False
        self._performing = False
        error = await self.dispatch.refused(exception)
        # The frames may hold a long answer, until the client has taken the refusal, or until a garbage collection.
        clear_frames(exception.__traceback__)
        if self._left.done():
            raise asyncio.CancelledError
        code, text, trailing = refusal_of(error, self._codec, self.correlation_id)
        await self._context.abort(code, text, trailing)

    async def break_off(self, gone: ClientGone) -> None:
        """End a call whose client has gone, or reads too slowly. A slow client gets the status after the messages."""
        clear_frames(gone.__traceback__)
        if not gone.args:
            raise asyncio.CancelledError
        logger.warning('%s (correlation id %s).', gone, self.correlation_id)
        await self.fail(OverloadedError('The client reads too slowly: read the task again, or subscribe again.'))

    async def in_thread(self, convert: Callable[..., Any], *args: Any) -> Any:
        """Convert a long message, one at a time."""
        async with self._calls.converting:
            return await super().in_thread(convert, *args)

    async def _maybe_in_thread(self, size: int, convert: Callable[..., Any], *args: Any) -> Any:
        return convert(*args) if size < LONG else await self.in_thread(convert, *args)


def _retrieve(sending: asyncio.Future[None]) -> None:
    """Retrieve the exception of a message: the call that waited for the message may have been cancelled twice."""
    with suppress(asyncio.CancelledError):
        sending.exception()
