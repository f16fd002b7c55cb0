"""Long answers that clients do not read: the server's memory stays bounded, and it answers others meanwhile."""

from __future__ import annotations

import asyncio
import select
import time
from contextlib import ExitStack, closing
from typing import Any
from uuid import uuid4

import grpc
import httpx
import pytest
from a2a.types import GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest

from pydantic_ai_a2a.wire.protobuf.method_messages import SERVICE

from ..bounds import LIMIT
from ..sizes import short_or_long
from .server import ASYNCIO, ROOT, SERVERS, UVLOOP, Process, process, rpc, send_without_reading, uvicorn

LONG = 9_900_000
MANY = 100
UNSENT = 64_000_000
"""The default of `Limits.unsent`."""
TEXTS = {'GetTask': 'x' * LONG, 'SubscribeToTask': 'wait'.ljust(LONG, 'x')}
CASES = [
    ('GetTask', UVLOOP),
    ('SubscribeToTask', ASYNCIO),
    *short_or_long([], [('GetTask', ASYNCIO), ('SubscribeToTask', UVLOOP)]),
]
HEADERS = {'A2A-Version': '1.0'}
WIDE = [('grpc.max_receive_message_length', -1)]


def client_of(server: Process) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers=HEADERS, timeout=LIMIT)


def send(http: httpx.Client, text: str) -> str:
    """The id of a task whose message has this text."""
    message = {'messageId': uuid4().hex, 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    asked = rpc('SendMessage', message=message, configuration={'returnImmediately': True, 'historyLength': 0})
    return http.post('/', json=asked).json()['result']['task']['id']


def memory(http: httpx.Client) -> dict[str, int]:
    return http.get('/memory').raise_for_status().json()


@pytest.mark.long
@pytest.mark.parametrize(('method', 'options'), CASES, ids=lambda value: value if type(value) is str else value[1])
def test_unread_http_answers_stay_within_memory_limit(method: str, options: tuple[str, ...]) -> None:
    command = ('tests.e2e.long_apps:app', '--timeout-graceful-shutdown', '1', *options)
    # The memory of a fork has that of its fork server in it.
    with uvicorn(*command, fork=False) as server, client_of(server) as http, ExitStack() as stack:
        task_id = send(http, TEXTS[method])
        before, others = memory(http)['peak'], 0
        for _ in range(MANY):
            stack.enter_context(closing(send_without_reading(server.url, rpc(method, id=task_id))))
        until = time.monotonic() + LIMIT
        while server.output.count('"POST / HTTP/1.1"') <= MANY + others:  # uvicorn logs an answer when it begins
            assert time.monotonic() < until, server.output
            others += 1
            assert http.post('/', json=rpc('GetTask', id=task_id, historyLength=0)).status_code == 200
        now = memory(http)
        assert now['unsent'] <= UNSENT
        # Cut answers keep their memory until the event loop ends them, and one more answer is being made.
        assert now['peak'] - before < 3 * UNSENT, f'{(now["peak"] - before) / 1e6:.0f} MB'
        while (long := http.post('/', json=rpc('GetTask', id=task_id))).status_code == 503:
            assert long.headers['Retry-After'] == '1'
        assert len(long.content) > LONG
        while 'A slow client was disconnected to free memory for other answers (correlation id' not in server.output:
            assert time.monotonic() < until, server.output
            stack.enter_context(closing(send_without_reading(server.url, rpc(method, id=task_id))))
            assert memory(http)['unsent'] <= UNSENT
    assert 'Traceback' not in server.output
    assert 'without completing response' not in server.output


@pytest.mark.long
@pytest.mark.parametrize('method', ['GetTask', *short_or_long([], ['ListTasks', 'SubscribeToTask'])])
async def test_long_grpc_answers_stay_within_memory_limit(method: str) -> None:
    serve = ('serve', '--app-dir', str(ROOT), 'tests.e2e.long_apps:app', '--port', '0', '--grpc-port', '0')
    with process('-m', 'pydantic_ai_a2a', *serve, fork=False) as server, client_of(server) as http:
        address = server.wait_for(r'gRPC running on (\S+)')[1]
        task_id = send(http, TEXTS.get(method, TEXTS['GetTask']))
        others = {'ListTasks': ListTasksRequest(), 'SubscribeToTask': SubscribeToTaskRequest(id=task_id)}
        request = others.get(method, GetTaskRequest(id=task_id)).SerializeToString()
        assert len(request) <= 60
        before = memory(http)['peak']
        async with grpc.aio.insecure_channel(address, options=WIDE) as channel, asyncio.timeout(LIMIT):
            ends = await asyncio.gather(*(_end(channel, method, request) for _ in range(150)))
        now = memory(http)
        # Beside a load, each answer may be read before the next is written: then no call is refused.
        assert {'OK'} <= {*ends} <= {'OK', 'UNAVAILABLE'}
        assert now['peak'] - before < 4 * UNSENT, f'{(now["peak"] - before) / 1e6:.0f} MB'
    assert 'Traceback' not in server.output


async def _end(channel: Any, method: str, request: bytes) -> str:
    """Make a call and read the first answer, which is not kept; how the call has ended."""
    call = channel.unary_stream(f'/{SERVICE}/{method}')(request, timeout=LIMIT)
    try:
        assert len(await call.read()) > LONG
    except grpc.aio.AioRpcError as error:
        return error.code().name
    call.cancel()  # the stream of a task that waits has no end
    return 'OK'


@SERVERS
def test_client_never_reading_is_disconnected(options: tuple[str, ...]) -> None:
    with uvicorn('tests.e2e.long_apps:hasty', *options) as server, client_of(server) as http:
        request = rpc('GetTask', id=send(http, 'x' * LONG))
        connection = send_without_reading(server.url, request)
        poll = select.poll()
        poll.register(connection, 0)  # tells of the connection's end only
        assert poll.poll(LIMIT * 1000), server.output
        connection.close()
    assert 'A client did not read its answer in time (correlation id' in server.output
    assert 'without completing response' not in server.output
