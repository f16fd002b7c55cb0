"""The flow of a request over every transport: admit, read, decode, perform, answer, close."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

from ...errors import ClientGone, InvalidParamsError
from ...settings.limits import LONG, Limits
from ...types.frozen_values import frozen
from ...types.operation_params import SubscribeParams
from ...types.stored_events import TaskEvent
from ...wire.protocol.codec import HttpCodec
from ...wire.protocol.missing_capabilities import refuse_unsupported_params
from ...wire.protocol.operations import Operation, Params
from ...wire.protocol.versions import CodecChoice, Versions
from ..auth.request_info import RequestInfo, header
from ..store.ports import Subscription
from .client_time_limits import SlowClients
from .dispatch import Dispatch, Dispatcher
from .event_streams import EventStream, OpenStreams, parse_event_id
from .unsent_answers import CHUNK, Readers, UnsentAnswer

DecodedRequest: TypeAlias = tuple[Operation, Params | None, CodecChoice]
"""A decoded request, with the codec of its answer."""


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


class RequestFlow(ABC):
    """One request and its answer. A transport reads and decodes the request, and writes the answer."""

    reads_at_once: ClassVar[bool] = True
    """True if the client can read a long answer as soon as there is room for it."""
    tenant = ''
    """The tenant that the transport names beside the params."""
    unanswered = False
    """True if the client wants no result."""
    unread = True
    """True until the request was read."""
    left: asyncio.Future[None] | None = None
    """Done once the client has gone, for transports that tell at once."""
    task: asyncio.Task[Any] | None = None
    """The task of a stream."""
    reader_gone = False
    """True once the reader of a stream has gone, for transports that tell while the stream is written."""
    at_end: Callable[[], None] | None = None
    """Called at the end, if there is something to close."""

    def __init__(self, serving: Serving, request: RequestInfo) -> None:
        self.serving = serving
        self.request = request
        self.correlation_id = request.correlation_id
        self.dispatch = Dispatch(serving.dispatcher, request)

    @abstractmethod
    async def read(self) -> bytes:
        """Return the body of the request.

        Raises:
            A2AError: The body is refused.
            ClientGone: The client went away.
        """

    @abstractmethod
    def decode(self, body: bytes) -> DecodedRequest:
        """Decode the request.

        Raises:
            A2AError: The request cannot be served.
        """

    @abstractmethod
    async def gone(self) -> None:
        """Return once the client has gone."""

    @abstractmethod
    async def answer(self, operation: Operation, result: Any, choice: CodecChoice) -> None:
        """Write the result of the operation, or the events of a stream."""

    @abstractmethod
    async def break_off(self, gone: ClientGone) -> None:
        """End the exchange with a client that has gone, or that does not read its answer."""

    @abstractmethod
    async def fail(self, exception: BaseException) -> bool:
        """Answer with the error of an exception. Return False if nobody waits for an answer."""

    async def serve(self) -> None:
        """Serve the request. All errors are answered here."""
        serving, dispatch = self.serving, self.dispatch
        try:
            await dispatch.admit()
            body = await serving.senders.wait(self.read())
            self.unread = False
            size = len(body)
            decoded = self.decode(body) if size < LONG else await self.in_thread(self.decode, body)
            operation, params, choice = decoded
            if operation.stream:
                params = self._resuming(params)
            result = dispatch.perform(
                operation,
                params,
                choice.codec,
                on_drop=self.drop,
                tenant=self.tenant,
                size=size,
                unanswered=self.unanswered,
                left=self.left,
            )
            # No variable keeps the request or the result: each part of a long answer is released once it is sent.
            del body, decoded, params
            await self.answer(operation, await result, choice)
        except ClientGone as gone:
            dispatch.close(gone)
            await self.break_off(gone)
        except BaseException as exception:
            dispatch.close(exception)
            if not await self.fail(exception):
                raise  # not in `fail`, whose frame would keep the exception, and all its frames, until a collection
        finally:
            if dispatch.held is not None:
                dispatch.close(sys.exc_info()[1])
            if self.at_end is not None:
                self.at_end()

    def _resuming(self, params: Params | None) -> Params | None:
        """Return the params of a stream with the event after which the client resumes."""
        self.task = asyncio.current_task()
        if not isinstance(params, SubscribeParams):
            return params
        return replace(params, last_event_id=parse_event_id(header(self.request.headers, b'last-event-id')))

    @abstractmethod
    async def write_events(self, events: Sequence[TaskEvent], *, ended: bool) -> None:
        """Write events of a stream, perhaps none; `ended` if the last one ends the stream."""

    @abstractmethod
    async def keep_alive(self) -> None:
        """Tell the client of a stream without events that the stream goes on."""

    async def follow(self, stream: EventStream, subscription: Subscription) -> bool:
        """Write the events of a stream until its end state, the end of its reader or the drain of the server.

        Return False if events are missing, because the reader was too slow.
        """
        streams = self.serving.streams
        streams.add(subscription)  # from now on, each interval of keep-alive ends the wait in `next`
        try:
            while True:
                events = await subscription.next()
                if subscription.dropped or self.reader_gone:
                    return not subscription.dropped
                if not events:
                    if streams.over(stream.task_id):
                        return True
                    await self.keep_alive()
                    continue
                events, ended = stream.up_to_end(events)
                writing = self.write_events(events, ended=ended)
                del events  # each long event is released once it is sent
                await writing
                if ended:
                    return True
        finally:
            streams.remove(subscription)
            subscription.close()

    def decode_params(self, codec: HttpCodec, operation: Operation, **places: Any) -> Params | None:
        """Return the params from the places of `HttpCodec.decode_params`."""
        try:
            return codec.decode_params(operation, **places)
        except InvalidParamsError as error:
            refuse_unsupported_params(operation, error, self.serving.dispatcher.card.capabilities, codec.refusals)
            raise

    async def in_thread(self, convert: Callable[..., Any], *args: Any) -> Any:
        """Convert a long message."""
        return await asyncio.to_thread(convert, *args)

    def drop(self) -> bool:
        """Break off the stream of a reader too far behind."""
        assert self.task is not None, 'the request has a stream'
        return self.task.cancel()

    def room(self, size: int) -> AbstractContextManager[UnsentAnswer | None]:
        """Reserve room for an answer, or for a part of a stream; a short one needs none.

        Raises:
            OverloadedError: Too many bytes of other answers are unsent.
        """
        return nullcontext() if size <= CHUNK else self.serving.readers.answer(size, ready=self.reads_at_once)
