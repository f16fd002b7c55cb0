"""Calls of a gRPC server in this process: real connections, and messages as bytes where a test needs that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
from a2a.types import Message, Part, Role, SendMessageRequest, StreamResponse, Task
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as AnyMessage
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from pydantic_ai_a2a import A2AApp, serve_grpc
from pydantic_ai_a2a.wire.extensions.own_extensions import EVENT_IDS_URI
from pydantic_ai_a2a.wire.protobuf.method_messages import SERVICE, methods

from ...app_client import lifespan
from ...bounds import LIMIT

_ = error_details_pb2  # registers the messages of the details

Metadata = Sequence[tuple[str, str]]


class Refused(NamedTuple):
    """The end of a refused call."""

    code: str
    text: str
    details: list[dict[str, Any]]
    trailing: dict[str, Any]


class Stream:
    """A stream of answers."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._answers = aiter(call)

    async def next(self) -> Any:
        return await anext(self._answers)

    async def rest(self) -> list[Any]:
        return [answer async for answer in self._answers]


class GrpcAgent:
    """The methods of an agent over gRPC."""

    def __init__(self, channel: grpc.aio.Channel, address: str = '') -> None:
        self.channel = channel
        self.address = address

    async def call(self, method: str, request: AnyMessage, *, metadata: Metadata = (), **options: Any) -> Any:
        """Return the answer of a method."""
        return await self._unary(method)(request, metadata=metadata, timeout=options.get('timeout', LIMIT))

    def start(self, method: str, request: AnyMessage, *, metadata: Metadata = (), timeout: float = LIMIT) -> Any:
        """Begin a call."""
        return self._unary(method)(request, metadata=metadata, timeout=timeout)

    def stream(self, method: str, request: AnyMessage, *, metadata: Metadata = (), timeout: float = LIMIT) -> Stream:
        """Begin a stream."""
        answer = methods()[method].output_type
        call = self.channel.unary_stream(
            f'/{SERVICE}/{method}',
            request_serializer=_written,
            response_deserializer=GetMessageClass(answer).FromString,
        )
        return Stream(call(request, metadata=metadata, timeout=timeout))

    async def refused(self, method: str, request: AnyMessage, *, metadata: Metadata = ()) -> Refused:
        """Return the refusal of a call."""
        with_stream = methods()[method].server_streaming
        try:
            if with_stream:
                await self.stream(method, request, metadata=metadata).rest()
            else:
                await self.call(method, request, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return refusal_of(error)
        raise AssertionError(f'{method} is not refused')

    async def raw(self, path: str, message: bytes | None, *, metadata: Metadata = ()) -> bytes | Refused:
        """Send a message as bytes, or none, to a method of any name, and return the first answer.

        The message goes out with the call: sent alone, it may come after a refusal. gRPC's client calls that INTERNAL.
        """
        channel: Any = self.channel
        method = channel.unary_stream if message is not None else channel.stream_stream
        try:
            call = method(path)(message if message is not None else (), metadata=metadata, timeout=LIMIT)
            answers: list[bytes] = [answer async for answer in call]
        except grpc.aio.AioRpcError as error:
            return refusal_of(error)
        return answers[0]

    def _unary(self, method: str) -> Any:
        answer = methods()[method].output_type
        return self.channel.unary_unary(
            f'/{SERVICE}/{method}',
            request_serializer=_written,
            response_deserializer=GetMessageClass(answer).FromString,
        )


def _written(message: AnyMessage) -> bytes:
    return message.SerializeToString()


def refusal_of(error: grpc.aio.AioRpcError) -> Refused:
    trailing: dict[str, Any] = dict([*(error.trailing_metadata() or ())])
    status = status_pb2.Status.FromString(trailing.pop('grpc-status-details-bin', b''))
    details = [MessageToDict(detail) for detail in status.details]
    assert (status.code, status.message) in ((0, ''), (error.code().value[0], error.details()))
    return Refused(error.code().name, error.details() or '', details, trailing)


@asynccontextmanager
async def serving(app: A2AApp, **options: Any) -> AsyncGenerator[GrpcAgent]:
    """The agent of an app that is served over gRPC. Everything in the block is bounded."""
    async with (
        asyncio.timeout(LIMIT),
        lifespan(app),
        serve_grpc(app, port=0, **options) as state,
        grpc.aio.insecure_channel(state['grpc_address']) as channel,
    ):
        yield GrpcAgent(channel, state['grpc_address'])


_ids = iter(range(10**6, 10**9))


def send_request(text: str = 'hello', **fields: Any) -> SendMessageRequest:
    """A request with a message of the user."""
    message_id = f'message-of-grpc-{next(_ids)}'
    return SendMessageRequest(
        message=Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)], **fields)
    )


def event_id(event: StreamResponse) -> int:
    """The id in the metadata of an event."""
    kind = event.WhichOneof('payload')
    assert kind is not None
    return int(MessageToDict(getattr(event, kind).metadata)[EVENT_IDS_URI]['eventId'])


def text_of(task: Task) -> str:
    return ''.join(part.text for artifact in task.artifacts for part in artifact.parts)
