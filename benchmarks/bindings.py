"""CPU time of the server over the other bindings, beside JSON-RPC, in rounds in which the bindings take turns."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import grpc
from a2a.types import Message, Part, Role, SendMessageRequest
from a2a.types.a2a_pb2_grpc import A2AServiceStub

from .load import LIMIT, Connection, get_card, message, send, stream
from .report import Row
from .servers import Databases, Served, server
from .sizes import Size

Call = Callable[[], Awaitable[object]]


async def bindings(size: Size, databases: Databases) -> list[Row]:
    """A blocking send, and a streamed answer with an event for each of 50 deltas."""
    with ExitStack() as stack:
        served = stack.enter_context(server(kind='ours', agent='deltas', backend=databases.make('memory'), grpc=True))
        port = await _grpc_port(served)
        connection = await Connection.open(served)
        async with grpc.aio.insecure_channel(f'127.0.0.1:{port}') as channel:
            stub = A2AServiceStub(channel)
            rows: list[Row] = []
            for case, calls in (
                ('blocking send', (_rpc(connection, send), _http(connection, 'send'), lambda: _unary(stub))),
                ('stream of 50 deltas', (_rpc(connection, stream), _http(connection, 'stream'), lambda: _stream(stub))),
            ):
                rounds = [[await _cpu(served, call, size.seconds) for call in calls] for _ in range(size.rounds + 1)]
                for place, binding in ((1, 'HTTP+JSON'), (2, 'gRPC')):
                    row = Row.of(f'{case} over {binding}', [each[place] / each[0] for each in rounds[1:]])
                    rows.append(row)
        await connection.close()
    return rows


async def _cpu(served: Served, call: Call, seconds: float) -> float:
    """Return the CPU seconds of the server for a call."""
    calls, end, before = 0, time.monotonic() + seconds, served.cpu()
    async with asyncio.timeout(LIMIT):
        while not calls or time.monotonic() < end:
            await call()
            calls += 1
    return (served.cpu() - before) / calls


async def _grpc_port(served: Served) -> int:
    """Return the port on the agent card."""
    connection = await Connection.open(served)
    card = json.loads(await connection.exchange(get_card(), shows=b'GRPC'))
    await connection.close()
    (url,) = [each['url'] for each in card['supportedInterfaces'] if each['protocolBinding'] == 'GRPC']
    return int(url.rpartition(':')[2])


def _rpc(connection: Connection, request: Callable[[], bytes]) -> Call:
    return lambda: connection.exchange(request())


def _http(connection: Connection, action: str) -> Call:
    def request() -> bytes:
        body = json.dumps({'message': message()}).encode()
        head = (
            f'POST /message:{action} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/a2a+json\r\n'
            f'A2A-Version: 1.0\r\nContent-Length: {len(body)}\r\n\r\n'
        )
        return head.encode() + body

    return lambda: connection.exchange(request())


def _request() -> SendMessageRequest:
    written = message()
    parts = [Part(text=written['parts'][0]['text'])]
    return SendMessageRequest(message=Message(message_id=written['messageId'], role=Role.ROLE_USER, parts=parts))


async def _unary(stub: A2AServiceStub) -> None:
    answer = await stub.SendMessage(_request())
    assert answer.task.status.state == 3


async def _stream(stub: A2AServiceStub) -> None:
    last = None
    async for event in stub.SendStreamingMessage(_request()):
        last = event
    assert last is not None
    assert last.status_update.status.state == 3
