"""A server that answers what a test tells it to, right or wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

CARD: dict[str, Any] = {
    'name': 'canned',
    'capabilities': {'streaming': True},
    'supportedInterfaces': [
        {'protocolBinding': 'JSONRPC', 'url': 'http://agent.example/rpc', 'protocolVersion': '1.0'}
    ],
}
TASK: dict[str, Any] = {'id': 't', 'contextId': 'c', 'status': {'state': 'TASK_STATE_COMPLETED'}}
WORKING: dict[str, Any] = {**TASK, 'status': {'state': 'TASK_STATE_WORKING'}}


def result(value: Any) -> Response:
    """A JSON-RPC response."""
    return Response(json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': value}), media_type='application/json')


def refusal(code: int, message: str = 'No.', status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON-RPC error."""
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'error': {'code': code, 'message': message}})
    return Response(body, status, headers, media_type='application/json')


def stream(*values: Any, ids: bool = False) -> Response:
    """An event stream of results; a string is sent as it is."""

    async def body() -> AsyncGenerator[str]:
        for n, value in enumerate(values, 1):
            if isinstance(value, str):
                yield value
            else:
                number = f'id: {n}\n' if ids else ''
                yield number + 'data: ' + json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': value}) + '\n\n'

    return StreamingResponse(body(), media_type='text/event-stream')


def silence() -> Response:
    """An answer whose body never comes."""

    async def body() -> AsyncGenerator[str]:
        await asyncio.Event().wait()
        yield ''

    return StreamingResponse(body(), media_type='application/json')


class Canned:
    """Answers requests with the next of its answers; the last one is repeated."""

    def __init__(self, *answers: Response, card: Any = None, **cards: Response) -> None:
        self.answers = [*answers]
        self.card: Any = CARD if card is None else card
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        """Method, path, headers and body of each request."""
        self.app = Starlette(routes=[Route('/{path:path}', self._serve, methods=['GET', 'POST', 'DELETE'])])

    @property
    def methods(self) -> list[str]:
        """The JSON-RPC methods of the requests."""
        return [body['method'] for _, _, _, body in self.requests if body]

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
