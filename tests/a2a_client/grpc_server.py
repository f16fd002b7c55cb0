"""A gRPC server that answers what a test tells it to, right or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from a2a.types import a2a_pb2
from google.protobuf import any_pb2, json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

from pydantic_ai_a2a.grpc.messages import SERVICE

from ..bounds import LIMIT

Answers = Callable[[str, bytes, Any], AsyncIterator[bytes]]
"""Yields the messages of an answer to a method, from the request and the context of the call."""

TASK = {'id': 't', 'contextId': 'c', 'status': {'state': 'TASK_STATE_COMPLETED'}}
WORKING = {**TASK, 'status': {'state': 'TASK_STATE_WORKING'}}


def written(kind: str, value: dict[str, Any]) -> bytes:
    """A message of A2A, as bytes."""
    message: Message = getattr(a2a_pb2, kind)()
    return json_format.ParseDict(value, message).SerializeToString()


def only(kind: str, value: dict[str, Any]) -> Answers:
    """One message as each answer."""

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield written(kind, value)

    return answers


def status(code: StatusCode, text: str, *details: Message) -> tuple[StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """The end of a refused call, for the `abort` of its context."""
    packed = [any_pb2.Any() for _ in details]
    for message, detail in zip(packed, details, strict=True):
        message.Pack(detail)
    described = status_pb2.Status(code=code.value[0], message=text, details=packed)
    return code, text, (('grpc-status-details-bin', described.SerializeToString()),)


def because(reason: str) -> Message:
    return error_details_pb2.ErrorInfo(reason=reason, domain='a2a-protocol.org')


def card_of(url: str) -> Any:
    """A card that offers only gRPC."""
    interface = {'url': url, 'protocolBinding': 'GRPC', 'protocolVersion': '1.0', 'tenant': 'blue'}
    return {'name': 'agent', 'capabilities': {'streaming': True}, 'supportedInterfaces': [interface]}


class GrpcServer:
    """A server.

    Args:
        answers: Answers the calls.
        alive: Answers the question for a sign of life.
    """

    def __init__(self, answers: Answers, alive: Callable[[], Any]) -> None:
        self.answers = answers
        self._alive = alive
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """The method and the metadata of each call."""
        self.card: Any = None

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        name = details.method.rpartition('/')[2]
        if details.method == '/grpc.health.v1.Health/Check':
            check: Any = grpc.unary_unary_rpc_method_handler
            return check(self._check)
        assert details.method == f'/{SERVICE}/{name}'

        async def serve(request: bytes, context: Any) -> AsyncIterator[bytes]:
            self.calls.append((name, dict(context.invocation_metadata())))
            async for message in self.answers(name, request, context):
                yield message

        stream: Any = grpc.unary_stream_rpc_method_handler
        return stream(serve)

    async def _check(self, request: bytes, context: Any) -> bytes:
        await self._alive()
        await context.abort(StatusCode.UNIMPLEMENTED, 'no such method')
        raise AssertionError


async def _at_once() -> None:
    pass


@asynccontextmanager
async def answering(answers: Answers, alive: Callable[[], Any] = _at_once, port: int = 0) -> AsyncGenerator[GrpcServer]:
    """A server on this machine, within the bound of a test."""
    made = GrpcServer(answers, alive)
    server = grpc.aio.server()

    class Handler(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            return made.service(handler_call_details)

    server.add_generic_rpc_handlers((Handler(),))
    made.card = card_of(f'127.0.0.1:{server.add_insecure_port(f"127.0.0.1:{port}")}')
    await server.start()
    try:
        async with asyncio.timeout(LIMIT):
            yield made
    finally:
        await server.stop(None)
