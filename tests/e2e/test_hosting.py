"""The ways to serve an app: uvicorn with either loop, a script, a part of a larger application. And how servers end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from a2a.client.errors import A2AClientError
from a2a.helpers import get_data_parts
from a2a.types import CancelTaskRequest, GetExtendedAgentCardRequest, SubscribeToTaskRequest

from ..behaviour.promised_behaviours import covers
from .official import OFFICIAL, collect, event_summary, official_client, state_of, task_of, text_of, text_request
from .server import (
    ASYNCIO,
    LIMIT,
    ROOT,
    SERVERS,
    UVLOOP,
    Gates,
    process,
    send_streaming,
    send_without_reading,
    uvicorn,
)


@SERVERS
@covers(OFFICIAL)
async def test_uvicorn_serves_app_with_asyncio_and_uvloop(options: tuple[str, ...]) -> None:
    with uvicorn('tests.e2e.apps:app', *options) as server:
        async with official_client(server.url) as client, official_client(server.url, streaming=False) as plain:
            task = await task_of(plain.send_message(text_request('say one')))
            events = await collect(client.send_message(text_request('recall', context_id=task.context_id)))
            running = client.send_message(text_request('use never'))
            started = (await anext(running)).task
            await Gates(server.url).reached('never')
            canceled = await client.cancel_task(CancelTaskRequest(id=started.id))
            rest = await collect(running)
    assert event_summary(events)[2] == "'Before, you said: say one.'"
    assert state_of(canceled) == 'TASK_STATE_CANCELED'
    assert event_summary(rest)[-1] == 'CANCELED'


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
async def test_run_in_script_serves_until_signal(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / 'script.py'
    script.write_text(
        'from pydantic_ai import Agent\n'
        'from pydantic_ai_a2a import run, to_a2a\n'
        "run(to_a2a(Agent('test')), port=0)\n"
        "print('and ends')\n"
    )
    with process(str(script), cwd=tmp_path) as server:
        async with official_client(server.url, streaming=False) as client:
            task = await task_of(client.send_message(text_request('hello')))
        server.signal(number)
        exit_code = await server.ended()
    assert text_of(task) == 'success (no tool calls)'
    assert (exit_code, 'and ends' in server.output) == ((0, True) if number == signal.SIGINT else (-number, False))
    assert 'Traceback' not in server.output, server.output


@covers(OFFICIAL, 'mounted under FastAPI / Starlette', 'card behind a proxy or mount')
async def test_two_agents_are_mounted_in_fastapi() -> None:
    with uvicorn('mounted:app', '--app-dir', str(ROOT / 'examples')) as server:
        async with (
            official_client(f'{server.url}weather', streaming=False) as weather,
            official_client(f'{server.url}parrot/') as parrot,
            httpx.AsyncClient(timeout=LIMIT) as http,
        ):
            card = await weather.get_extended_agent_card(GetExtendedAgentCardRequest())
            report = await task_of(weather.send_message(text_request('How is the weather in Rome?')))
            squawk = await collect(parrot.send_message(text_request('Hello')))
            own = await http.get(f'{server.url}agents')
    assert {interface.url for interface in card.supported_interfaces} == {f'{server.url}weather/'}
    assert get_data_parts(report.artifacts[0].parts) == [
        {'result': {'city': 'Rome', 'temperature': 27.5, 'sky': 'sunny'}}
    ]
    assert event_summary(squawk)[-1] == 'COMPLETED'
    assert own.json() == ['/weather', '/parrot']


@covers('POST to the mount without trailing slash', 'mounted under FastAPI / Starlette')
async def test_mounted_agent_answers_without_trailing_slash() -> None:
    with uvicorn('tests.e2e.apps:parent') as server:
        async with httpx.AsyncClient(timeout=LIMIT, headers={'A2A-Version': '1.0'}) as http:
            answers = [
                await http.post(f'{server.url}{path}', json=send_streaming('say it')) for path in ('puppet', 'puppet/')
            ]
    assert [(answer.status_code, answer.text.count('data: ')) for answer in answers] == [(200, 4), (200, 4)]


# --- shutdown: everybody is answered, and the process ends as uvicorn does

SHUTDOWN = "FAILED 'The server shut down before the task was done.'"


@pytest.mark.parametrize(
    ('options', 'number'),
    [(UVLOOP, signal.SIGTERM), (ASYNCIO, signal.SIGINT)],
    ids=['SIGTERM with uvloop', 'SIGINT with asyncio'],
)
@covers('SIGTERM')
async def test_waiting_clients_get_failed_task_at_shutdown(options: tuple[str, ...], number: signal.Signals) -> None:
    with uvicorn('tests.e2e.apps:hasty', *options) as server:
        gates = Gates(server.url)
        async with official_client(server.url) as client, official_client(server.url, streaming=False) as plain:
            streaming = client.send_message(text_request('use never'))
            task = (await anext(streaming)).task
            await gates.reached('never')
            queued = client.send_message(text_request('say next', context_id=task.context_id))
            assert event_summary([await anext(queued)]) == ['task SUBMITTED']
            idle = client.subscribe(SubscribeToTaskRequest(id=task.id))
            assert (await anext(idle)).task.id == task.id
            async with asyncio.TaskGroup() as waiting:
                streams = [waiting.create_task(collect(stream)) for stream in (streaming, idle, queued)]
                blocking = waiting.create_task(task_of(plain.send_message(text_request('wait ever'))))
                await gates.reached('ever')
                server.signal(number)
        assert await server.ended() == (0 if number == signal.SIGINT else -number)
    assert [event_summary(stream.result())[-1] for stream in streams] == [SHUTDOWN] * 3
    assert state_of(blocking.result()) == 'TASK_STATE_FAILED'
    assert 'Traceback' not in server.output, server.output


@contextmanager
def pending_gate_request(url: str, gate: str) -> Generator[socket.socket]:
    """A request to open a gate that the server waits for: one more byte completes it, also in a shutdown."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=LIMIT) as connection:
        connection.sendall(
            b'POST /gates/%s/open HTTP/1.1\r\nHost: %s\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n'
            % (gate.encode(), parts.netloc.encode())
        )
        assert connection.recv(1000).startswith(b'HTTP/1.1 100')
        yield connection


@SERVERS
@covers('SIGTERM')
async def test_task_ending_in_time_completes_during_shutdown(options: tuple[str, ...]) -> None:
    with uvicorn('tests.e2e.apps:patient', *options) as server:
        async with (
            official_client(server.url) as client,
            official_client(server.url, streaming=False) as plain,
            asyncio.TaskGroup() as waiting,
        ):
            streaming = waiting.create_task(collect(client.send_message(text_request('wait one'))))
            blocking = waiting.create_task(task_of(plain.send_message(text_request('use two'))))
            for gate in ('one', 'two'):
                await Gates(server.url).reached(gate)
            with pending_gate_request(server.url, 'one') as one, pending_gate_request(server.url, 'two') as two:
                server.signal(signal.SIGTERM)
                await asyncio.to_thread(server.wait_for, 'Shutting down')
                for request in (one, two):
                    request.sendall(b'.')
        assert await server.ended() == -signal.SIGTERM
    assert event_summary(streaming.result())[-3:] == ["'and after.' append", "'' append last_chunk", 'COMPLETED']
    assert text_of(blocking.result()) == 'The tool is done.'


@pytest.mark.parametrize(
    ('options', 'second'),
    [(UVLOOP, signal.SIGINT), (ASYNCIO, signal.SIGTERM)],
    ids=['SIGINT with uvloop', 'SIGTERM with asyncio'],
)
async def test_second_signal_ends_open_stream(options: tuple[str, ...], second: signal.Signals) -> None:
    with uvicorn('tests.e2e.apps:patient', *options) as server:
        async with official_client(server.url) as client:
            stream = asyncio.create_task(collect(client.send_message(text_request('wait never'))))
            await Gates(server.url).reached('never')
            server.signal(signal.SIGINT)
            await asyncio.to_thread(server.wait_for, 'Waiting for connections to close')
            server.signal(second)
            await asyncio.wait([stream], timeout=LIMIT)
        assert await server.ended() in (0, -signal.SIGTERM)
    # uvicorn waits for no stream after a second SIGINT: then it may be cut before its last event.
    if second == signal.SIGTERM or not isinstance(stream.exception(), A2AClientError):
        assert event_summary(stream.result())[-1] == SHUTDOWN


@covers('SIGTERM', 'mounted under FastAPI / Starlette')
async def test_mounted_streams_without_lifespan_end_at_shutdown() -> None:
    with uvicorn('tests.e2e.apps:unforwarded') as server:
        url = f'{server.url}puppet/'
        async with official_client(url) as client, asyncio.TaskGroup() as waiting:
            stream = waiting.create_task(collect(client.send_message(text_request('wait never'))))
            await Gates(url).reached('never')
            server.signal(signal.SIGTERM)
        assert await server.ended() == -signal.SIGTERM
    assert event_summary(stream.result())[-1] == SHUTDOWN


@covers('SIGTERM', 'reader that stops reading')
async def test_stalled_reader_does_not_block_shutdown() -> None:
    script = 'from pydantic_ai_a2a import run; from tests.e2e.apps import hasty; run(hasty, port=0)'
    with process('-c', script) as server, closing(send_without_reading(server.url, send_streaming('flood 200'))):
        await asyncio.to_thread(server.wait_for, 'A subscriber read its events too slowly and was disconnected')
        server.signal(signal.SIGTERM)
        assert await server.ended() == -signal.SIGTERM
