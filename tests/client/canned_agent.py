"""Servers that answer what a test tells them to, right or wrong: over HTTP, and over gRPC."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2
from google.protobuf import any_pb2, json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from pydantic_ai_a2a import A2AClient, Server, serve
from pydantic_ai_a2a.client.asgi_transport import StreamingTransport
from pydantic_ai_a2a.wire.protobuf.method_messages import SERVICE

from ..bounds import LIMIT

CARD: dict[str, Any] = {
    'name': 'canned',
    'capabilities': {'streaming': True},
    'supportedInterfaces': [
        {'protocolBinding': 'JSONRPC', 'url': 'http://agent.example/rpc', 'protocolVersion': '1.0'}
    ],
}
TASK: dict[str, Any] = {'id': 't', 'contextId': 'c', 'status': {'state': 'TASK_STATE_COMPLETED'}}
WORKING: dict[str, Any] = {**TASK, 'status': {'state': 'TASK_STATE_WORKING'}}
CREDENTIALS: dict[str, Any] = {'timeout': LIMIT, 'headers': {'authorization': 'Bearer secret-token'}}
"""Options of clients, whose secret no error may show."""


def agent_message(*parts: Any, **fields: Any) -> dict[str, Any]:
    """A message of the agent; a string is a part with text."""
    return {'messageId': 'm', 'role': 'ROLE_AGENT', 'parts': [*map(_part, parts)], **fields}


def artifact_update(*parts: Any, artifact_id: str = 'a', **fields: Any) -> dict[str, Any]:
    """The event of an artifact of `TASK`; a string is a part with text."""
    artifact = {'artifactId': artifact_id, 'parts': [*map(_part, parts)]}
    return {'artifactUpdate': {'taskId': 't', 'contextId': 'c', 'artifact': artifact, **fields}}


def status_update(state: str, message: Any = None, **fields: Any) -> dict[str, Any]:
    """The event of a state of `TASK`, such as `COMPLETED`."""
    return {'statusUpdate': {'taskId': 't', 'contextId': 'c', 'status': _status(state, message), **fields}}


def task_in_state(state: str, message: Any = None, **fields: Any) -> dict[str, Any]:
    """`TASK` in another state, such as `FAILED`."""
    return {**TASK, 'status': _status(state, message), **fields}


def _part(part: Any) -> Any:
    return {'text': part} if isinstance(part, str) else part


def _status(state: str, message: Any) -> dict[str, Any]:
    return {'state': f'TASK_STATE_{state}', **({} if message is None else {'message': message})}


def card_with_interface(**interface: Any) -> dict[str, Any]:
    """The card with other fields of its interface, such as `url`."""
    return {**CARD, 'supportedInterfaces': [{**CARD['supportedInterfaces'][0], **interface}]}


def result_response(value: Any) -> Response:
    """A JSON-RPC response."""
    return Response(json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': value}), media_type='application/json')


def list_response(*tasks: Any, token: str = '') -> Response:
    """A page of tasks, with the token of the next one."""
    return result_response({'tasks': [*tasks], 'nextPageToken': token})


def error_response(
    code: int, message: str = 'No.', status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON-RPC error."""
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'error': {'code': code, 'message': message}})
    return Response(body, status, headers, media_type='application/json')


def stream_response(*values: Any, ids: bool = False) -> Response:
    """An event stream of results, for one request; a string is sent as it is."""

    async def body() -> AsyncGenerator[str]:
        for n, value in enumerate(values, 1):
            if isinstance(value, str):
                yield value
            else:
                number = f'id: {n}\n' if ids else ''
                yield number + 'data: ' + json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': value}) + '\n\n'

    return StreamingResponse(body(), media_type='text/event-stream')


def silent_response() -> Response:
    """An answer whose body never comes."""

    async def body() -> AsyncGenerator[str]:
        await asyncio.Event().wait()
        yield ''

    return StreamingResponse(body(), media_type='application/json')


class CannedAgent:
    """Answers requests with the next of its answers; the last one is repeated."""

    def __init__(self, *answers: Response, card: Any = None) -> None:
        self.answers = [*answers]
        self.card: Any = CARD if card is None else card
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        """Method, path, headers and body of each request."""
        self.app = Starlette(routes=[Route('/{path:path}', self._serve, methods=['GET', 'POST', 'DELETE'])])

    @property
    def methods(self) -> list[str]:
        """The JSON-RPC methods of the requests."""
        return [body['method'] for _, _, _, body in self.requests if body]

    @property
    def params(self) -> list[dict[str, Any]]:
        """The params of the JSON-RPC requests."""
        return [body['params'] for _, _, _, body in self.requests if body]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the JSON-RPC requests."""
        return [params['message'] for params in self.params if 'message' in params]

    async def _serve(self, request: Request) -> Response:
        body = await request.body()
        path = request.url.path
        parsed = json.loads(body) if body else None
        self.requests.append((request.method, path, dict(request.headers), parsed))
        if path.endswith('agent-card.json') or (path.endswith('agent.json') and self.card is not None):
            if isinstance(self.card, Response):
                return self.card
            return Response(json.dumps(self.card), media_type='application/json')
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def serve_canned(canned: CannedAgent, app: ASGIApp | None = None) -> Server:
    """Serve canned answers, perhaps by an app around them, with a card that names the URL of the server."""
    server = serve(app or canned.app, anonymous=True)
    if isinstance(canned.card, dict):
        canned.card = card_with_interface(url=server.url)
    return server


@asynccontextmanager
async def canned_client(canned: CannedAgent, **options: Any) -> AsyncGenerator[A2AClient]:
    """A client of canned answers in this process. Everything in the block is bounded."""
    async with asyncio.timeout(LIMIT), A2AClient(canned.app, **{**CREDENTIALS, **options}) as client:
        yield client


@asynccontextmanager
async def canned_http_client(canned: CannedAgent, **options: Any) -> AsyncGenerator[A2AClient]:
    """A client of canned answers over HTTP. Everything in the block is bounded."""
    with serve_canned(canned) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url, **{**CREDENTIALS, **options}) as client:
            yield client


def timeout_after_few_requests(canned: CannedAgent, monkeypatch: pytest.MonkeyPatch) -> float:
    """Let much time pass with each request, and return a `timeout` that is over after a few requests."""
    loop = asyncio.get_running_loop()
    time = loop.time
    monkeypatch.setattr(loop, 'time', lambda: time() + len(canned.requests) * LIMIT / 8)
    return LIMIT / 3


@asynccontextmanager
async def client_at_url(app: ASGIApp, target: Any, **options: Any) -> AsyncGenerator[A2AClient]:
    """A client that reaches an app in this process at any URL. Everything in the block is bounded."""
    async with (
        asyncio.timeout(LIMIT),
        httpx2.AsyncClient(transport=StreamingTransport(app), follow_redirects=True) as http,
        A2AClient(target, http_client=http, **options) as client,
    ):
        yield client


# --- over gRPC

Answers = Callable[[str, bytes, Any], AsyncIterator[bytes]]
"""Yields the messages of an answer to a method, from the request and the context of the call."""


def encode_message(kind: str, value: dict[str, Any]) -> bytes:
    """A message of A2A, as bytes."""
    message: Message = getattr(a2a_pb2, kind)()
    return json_format.ParseDict(value, message).SerializeToString()


def always_answer(kind: str, value: dict[str, Any]) -> Answers:
    """One message as each answer."""

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield encode_message(kind, value)

    return answers


def always_refuse(*end: Any) -> Answers:
    """The end of each call: the arguments of the `abort` of its context, such as those of `grpc_error`."""

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        await context.abort(*end)
        yield b''

    return answers


def grpc_error(code: StatusCode, text: str, *details: Message) -> tuple[StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """The end of a refused call, for the `abort` of its context."""
    packed = [any_pb2.Any() for _ in details]
    for message, detail in zip(packed, details, strict=True):
        message.Pack(detail)
    described = status_pb2.Status(code=code.value[0], message=text, details=packed)
    return code, text, (('grpc-status-details-bin', described.SerializeToString()),)


def error_info(reason: str) -> Message:
    return error_details_pb2.ErrorInfo(reason=reason, domain='a2a-protocol.org')


def grpc_card(url: str) -> Any:
    """A card that offers only gRPC."""
    interface = {'url': url, 'protocolBinding': 'GRPC', 'protocolVersion': '1.0', 'tenant': 'blue'}
    return {'name': 'agent', 'capabilities': {'streaming': True}, 'supportedInterfaces': [interface]}


class CannedGrpcAgent:
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
async def canned_grpc_agent(
    answers: Answers, alive: Callable[[], Any] = _at_once, port: int = 0
) -> AsyncGenerator[CannedGrpcAgent]:
    """A server on this machine, within the bound of a test."""
    made = CannedGrpcAgent(answers, alive)
    server = grpc.aio.server()

    class Handler(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            return made.service(handler_call_details)

    server.add_generic_rpc_handlers((Handler(),))
    made.card = grpc_card(f'127.0.0.1:{server.add_insecure_port(f"127.0.0.1:{port}")}')
    await server.start()
    try:
        async with asyncio.timeout(LIMIT):
            yield made
    finally:
        await server.stop(None)
