"""The servers: `python -m benchmarks.targets SPEC` serves one on a free port, which it prints. SPEC is JSON."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, TypedDict

import uvicorn
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pydantic_ai_a2a import A2AApp, Approvals, Caller, Results, Retention, Workers, serve_grpc, to_a2a

from .agents import AGENTS, TEXT

CARD = '/.well-known/agent-card.json'
LEASE = 2.0
"""Seconds, for the agents `timed` and `stuck`: the end of a process is noticed after a lease."""
MANY = 10**7


class Spec(TypedDict, total=False):
    """A server under test."""

    kind: str
    """`echo`, `route` or `ours`."""
    agent: str
    backend: str
    tasks: int
    """Number of finished tasks to store first."""
    items: int
    """Number of messages and of artifacts of one more stored task, which is called `large`."""
    waiting: int
    """Number of tasks of other callers that wait for an approval of the caller, to store first."""
    grpc: bool
    """True serves gRPC as well, on a port that the card has."""
    send_buffer: int
    """Bytes that the kernel keeps of what is sent: by default megabytes, and few streams would stall."""


def echo() -> Starlette:
    """The floor: a route that parses JSON and sends the value back."""

    async def serve(request: Request) -> JSONResponse:
        return JSONResponse({**await request.json(), 'state': 'TASK_STATE_COMPLETED'})

    async def card(request: Request) -> JSONResponse:
        return JSONResponse({'name': 'benchmark'})

    return Starlette(routes=[Route('/', serve, methods=['POST']), Route(CARD, card)])


def route(agent: Agent[None, Any]) -> Starlette:
    """A hand-written route without A2A's rules: it validates, stores and broadcasts nothing."""

    async def events(text: str) -> AsyncIterator[str]:
        async with agent.iter(text) as run:
            async for node in run:
                if Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as stream:
                        async for delta in stream.stream_text(delta=True, debounce_by=None):
                            artifact = {'parts': [{'text': delta}]}
                            yield f'data: {json.dumps({"artifactUpdate": {"artifact": artifact}})}\n\n'
        yield 'data: {"state": "TASK_STATE_COMPLETED"}\n\n'

    async def serve(request: Request) -> Response:
        call = await request.json()
        text = call['params']['message']['parts'][0]['text']
        if call['method'] == 'SendStreamingMessage':
            return StreamingResponse(events(text), media_type='text/event-stream')
        output = (await agent.run(text)).output
        part = {'text': output} if isinstance(output, str) else {'data': output.model_dump(mode='json')}
        return JSONResponse({'id': call['id'], 'state': 'TASK_STATE_COMPLETED', 'part': part})

    return Starlette(routes=[Route('/', serve, methods=['POST'])])


def ours(spec: Spec) -> A2AApp:
    """The app with its default settings, but that finished tasks stay stored, and that streams have live text."""
    kept = Retention(max_tasks=MANY)
    options: dict[str, Any] = {'backend': spec.get('backend', 'memory'), 'retention': kept}
    if spec['agent'] in ('streams', 'large'):  # what a client gets that asks for live text
        options['results'] = Results(stream='mark')
    elif spec['agent'] in ('deltas', 'timed', 'stuck'):  # one event for each delta
        options['results'] = Results(stream='mark', interval=0)
    if spec['agent'] in ('timed', 'stuck'):
        options['workers'] = Workers(lease=LEASE)
    if 'waiting' in spec:
        options |= {'auth': as_approver, 'approvals': Approvals(approvers='approve')}
    if spec.get('grpc'):
        options['lifespan'] = partial(serve_grpc, port=0)
    return to_a2a(AGENTS[spec['agent']](), **options)


def as_approver(request: Request) -> Caller:
    """Authenticate each request as that of an approver."""
    return Caller(id='boss', scopes=frozenset({'approve'}))


async def store(app: A2AApp, tasks: int, items: int) -> None:
    """Store finished tasks of the anonymous caller."""
    from tests.suites import values  # imports pytest and Hypothesis, which most servers do not need

    now = time.time_ns() // 10**6

    def message(n: int) -> tuple[str, bytes]:
        body = {'messageId': f'm{n}', 'role': 'ROLE_AGENT', 'parts': [{'text': TEXT}]}
        return f'm{n}', json.dumps(body).encode()

    def artifact(n: int) -> tuple[str, bytes]:
        return f'a{n}', json.dumps({'artifactId': f'a{n}', 'parts': [{'text': TEXT}]}).encode()

    async def finished(task: str, count: int) -> None:
        await values.submit(app.backend, values.message('hello', new=task, owner='/', at=now))
        history, artifacts = [message(n) for n in range(1, count)], [artifact(n) for n in range(count)]
        await values.claim_and_finish(app.backend, task, at=now, history=history, artifacts=artifacts)

    for n in range(tasks):
        await finished(f'stored-{n:09d}', 1)
    if items:
        await finished('large', items)


async def store_waiting(app: A2AApp, tasks: int) -> None:
    """Store tasks that wait for an approval, of callers with 100 tasks each."""
    from tests.suites import values

    now = time.time_ns() // 10**6
    call = {'id': 'c', 'kind': 'approval', 'tool': 'pay', 'text': 'May I call pay {"cents":5}?', 'args': {'cents': 5}}
    pending = json.dumps({'calls': [call]}).encode()
    for n in range(tasks):
        task = f'waiting-{n:09d}'
        await values.submit(app.backend, values.message('pay', new=task, owner=f'/caller {n // 100}', at=now))
        await values.claim_and_finish(app.backend, task, 'input-required', at=now, pending=pending)


def serve(app: Starlette, send_buffer: int = 0) -> None:
    """Serve on a free port, which is printed."""
    # The protocol is named: else asyncio does not set TCP_NODELAY, and answers wait 40 ms for a delayed ACK.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        if send_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        listener.bind(('127.0.0.1', 0))
        listener.listen(2048)
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level='error', timeout_graceful_shutdown=1, backlog=2048)
        uvicorn.Server(config).run(sockets=[listener])


def main(spec: Spec) -> None:
    if spec['kind'] == 'ours':
        app = ours(spec)
        if 'tasks' in spec:
            asyncio.run(store(app, spec['tasks'], spec.get('items', 0)))
        if 'waiting' in spec:
            asyncio.run(store_waiting(app, spec['waiting']))
        serve(app, spec.get('send_buffer', 0))
    else:
        serve(echo() if spec['kind'] == 'echo' else route(AGENTS[spec['agent']]()))


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
