"""Clients that do not read their answers: these are given up after a time, and take no memory meanwhile."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator
from math import inf
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.types import Message

from pydantic_ai_a2a import Limits, serve, to_a2a
from pydantic_ai_a2a.server.service import unsent_answers
from pydantic_ai_a2a.server.service.unsent_answers import CHUNK

from ...agents import GatedAgent
from ...app_client import LIMIT, Client, Exchange, message, rpc, texts
from ...constants import with_constants
from ...dialects import Call
from ...serving import serving, wait_until_ended

LONG = 900_000
SHORT_ANSWER_TIME = with_constants(Limits, answer_time=0.01)
LATE_READER_LOG = 'A client did not read its answer in time'


class StalledRead(Exchange):
    """A request whose answer is not read for now."""

    bodies = 0
    """Pieces of the answer that were sent."""
    waiting: asyncio.Event
    """Set once the body is to be sent."""

    async def _send(self, message: Message) -> None:
        if message['type'] == 'http.response.body':  # no server waits for what comes before it
            self.waiting.set()
            await self.reading.wait()
            self.bodies += 1


def unread_request(client: Client, method: str, params: dict[str, Any]) -> StalledRead:
    """A request that is not read for now."""
    call = rpc(method, params)
    assert isinstance(call, Call)
    declared = {'Content-Type': 'application/json'} if call.verb == 'POST' else {}
    asked = StalledRead(client.app, call.verb, call.path or '/', {**client.headers, **declared}, call)
    asked.reading.clear()
    asked.waiting = asyncio.Event()
    return asked


@pytest.mark.parametrize('method', ['GetTask', 'ListTasks', 'SubscribeToTask'])
async def test_unread_response_is_abandoned_after_time_limit(method: str, caplog: pytest.LogCaptureFixture) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, limits=SHORT_ANSWER_TIME) as client:
        sent = message('x' * LONG)
        task = await client.send(sent, returnImmediately=True)
        asked = unread_request(client, method, {} if method == 'ListTasks' else {'id': task['id']})
        async with asyncio.timeout(LIMIT):
            await asked.task
        assert asked.bodies == 0
        gates.open('x' * LONG)
    assert [
        record.getMessage()[: len(LATE_READER_LOG)] for record in caplog.records if record.name == 'pydantic_ai_a2a'
    ] == [LATE_READER_LOG]


class PartialRead(StalledRead):
    """A request whose reader stalls in the middle of the answer."""

    until: int
    """The pieces that are read."""
    stalled: asyncio.Event
    """Set once they were read."""

    async def _send(self, message: Message) -> None:
        if message['type'] == 'http.response.body' and self.bodies == self.until:
            self.reading.clear()
            self.stalled.set()
        await super()._send(message)


async def test_memory_of_read_response_chunks_is_freed() -> None:
    async with serving(Agent('test')) as client:
        for _ in range(10):
            await client.send(message('x' * LONG))
        tracemalloc.start()
        try:
            call = rpc('ListTasks', {'pageSize': 10})
            assert isinstance(call, Call)
            asked = PartialRead(client.app, 'POST', '/', {**client.headers, 'Content-Type': 'application/json'}, call)
            asked.until = 9 * LONG // CHUNK
            asked.waiting = asyncio.Event()
            asked.stalled = asyncio.Event()
            async with asyncio.timeout(LIMIT):
                await asked.stalled.wait()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        asked.reading.set()
        asked.until = -1
        await asked.task
    assert held < 4 * LONG


async def test_long_response_arrives_whole() -> None:
    async with serving(Agent('test')) as client:
        task = await client.send(message('x' * LONG))
        assert task['history'][0]['parts'] == [{'text': 'x' * LONG}]
        async with client.send_streaming('x' * LONG) as stream:
            [first, *_] = await stream.rest()
    assert first.result['task']['history'][0]['parts'] == [{'text': 'x' * LONG}]


async def test_open_stream_frees_its_initial_snapshot() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        text = 'x' * LONG
        task = await client.send(message(text), returnImmediately=True)
        await gates.reached(text)
        tracemalloc.start()
        try:
            streams = [client.subscribe(task['id']) for _ in range(10)]
            for each in streams:
                stream = await each.__aenter__()
                await anext(stream)
                del stream
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        gates.open(text)
        for each in streams:
            await each.__aexit__(None, None, None)
    assert held < 3 * LONG


class LogListener(logging.Handler):
    """Waits for a record."""

    def __init__(self, beginning: str) -> None:
        super().__init__()
        self._beginning = beginning
        self.come = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self._beginning):
            self.come.set()


def until_reset(connection: socket.socket) -> int:
    """How many bytes can be read until the server has reset the connection."""
    read = 0
    while True:
        try:
            piece = connection.recv(1_000_000)
        except ConnectionResetError:
            return read
        assert piece, 'the server ended the connection, but did not reset it'
        read += len(piece)


def test_server_resets_connection_of_stalled_reader() -> None:
    heard, logger = LogListener(LATE_READER_LOG), logging.getLogger('pydantic_ai_a2a')
    logger.addHandler(heard)
    app = to_a2a(Agent('test'), limits=with_constants(Limits, answer_time=0.05, part=9_000_000))
    try:
        with serve(app) as server, socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(LIMIT)
            host, port = server.url.removeprefix('http://').rstrip('/').split(':')
            connection.connect((host, int(port)))
            params = {'message': message('x' * 9_000_000)}
            body = rpc('SendMessage', params)
            head = 'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n'
            connection.sendall(f'{head}Content-Length: {len(body)}\r\n\r\n'.encode() + body)
            assert heard.come.wait(LIMIT)
            read = until_reset(connection)
    finally:
        logger.removeHandler(heard)
    assert 0 < read < 9_000_000


@pytest.fixture
def stall_seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say after how many seconds a client that takes nothing is a slow reader."""
    monkeypatch.setattr(unsent_answers, 'STALL', request.param)


NEVER_SLOW = pytest.mark.parametrize('stall_seconds', [inf], indirect=True)
ALWAYS_SLOW = pytest.mark.parametrize('stall_seconds', [0.0], indirect=True)
UNSENT_LIMIT = Limits(unsent=LONG + LONG // 2)


@NEVER_SLOW
@pytest.mark.usefixtures('stall_seconds')
async def test_response_beyond_unsent_limit_is_503() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, limits=UNSENT_LIMIT) as client:
        task = await client.send(message('x' * LONG), returnImmediately=True)
        asked = unread_request(client, 'GetTask', {'id': task['id']})
        await asked.waiting.wait()
        for method in ('GetTask', 'SubscribeToTask'):
            refused = await client.post(rpc(method, {'id': task['id']}))
            assert (refused.status, refused.headers['retry-after']) == (503, '1')
        asked.reading.set()
        async with asyncio.timeout(LIMIT):
            await asked.task
        assert (await client.get_task(task['id']))['id'] == task['id']
        gates.open('x' * LONG)


@ALWAYS_SLOW
@pytest.mark.usefixtures('stall_seconds')
async def test_stalled_reader_is_disconnected_for_new_response(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), limits=UNSENT_LIMIT) as client:
        task = await client.send(message('x' * LONG))
        asked = unread_request(client, 'GetTask', {'id': task['id']})
        await asked.waiting.wait()
        assert await client.get_task(task['id']) == task
        async with asyncio.timeout(LIMIT):
            await asked.task
    assert asked.bodies == 0
    [record] = [record for record in caplog.records if record.name == 'pydantic_ai_a2a']
    assert record.getMessage().startswith(
        'A slow client was disconnected to free memory for other answers (correlation id '
    )


@NEVER_SLOW
@pytest.mark.usefixtures('stall_seconds')
async def test_stream_beyond_unsent_limit_closes_but_task_completes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        await gate.wait()
        yield 'y' * LONG

    async with serving(Agent(FunctionModel(stream_function=answer)), limits=UNSENT_LIMIT) as client:
        async with client.live.send_streaming() as stream:
            first = await anext(stream)
            other = await client.send(message('x' * LONG), returnImmediately=True)
            asked = unread_request(client, 'GetTask', {'id': other['id']})
            await asked.waiting.wait()
            gate.set()
            with pytest.raises(AssertionError, match='without finishing'):
                await stream.rest()
        asked.reading.set()
        task = await wait_until_ended(client, first.result['task']['id'])
        assert texts(task) == ['y' * LONG]
        await wait_until_ended(client, other['id'])
    assert (
        'A stream was closed, because the process holds too many unread bytes of answers (correlation id' in caplog.text
    )
