"""Event streams over real sockets: resumed by `Last-Event-ID`, left unread, and silent."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import h11
import httpx
import pytest
from a2a.client import ClientCallContext
from a2a.types import SubscribeToTaskRequest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Limits, serve, to_a2a

from ..behaviour.promised_behaviours import covers
from ..constants import with_constants
from .apps import CHUNK
from .official import OFFICIAL, collect, event_summary, official_client, task_of, text_of, text_request
from .server import LIMIT, Gates, Process, rpc, send_streaming, send_without_reading, uvicorn
from .venvs import REQUIREMENT, python_with_a2a_sdk_0_3

CHUNKS = 14_000_000 // CHUNK


@pytest.fixture(scope='module')
def server() -> Generator[Process]:
    with uvicorn('tests.e2e.apps:app') as running:
        yield running


class Event(NamedTuple):
    id: int
    result: dict[str, Any]


def parse(frame: str) -> Event | None:
    """An event, with the id that the official client does not tell; None for a comment."""
    fields = dict(line.split(': ', 1) for line in frame.splitlines() if not line.startswith(':'))
    return Event(int(fields['id']), json.loads(fields['data'])['result']) if fields else None


async def events_in(lines: AsyncIterator[str]) -> AsyncGenerator[Event]:
    frame = ''
    async for line in lines:
        if line:
            frame += f'{line}\n'
            continue
        if event := parse(frame):
            yield event
        frame = ''


@asynccontextmanager
async def stream(url: str, body: dict[str, Any], **headers: str) -> AsyncGenerator[AsyncGenerator[Event]]:
    given = {'A2A-Version': '1.0', **{name.replace('_', '-'): value for name, value in headers.items()}}
    async with httpx.AsyncClient(timeout=LIMIT) as http, http.stream('POST', url, json=body, headers=given) as response:
        assert response.headers['content-type'] == 'text/event-stream'
        yield events_in(response.aiter_lines())


@covers('resubscribe in mid-run')
async def test_broken_stream_resumes_after_last_received_event(server: Process) -> None:
    async with stream(server.url, send_streaming('wait resume')) as events:
        seen = [await anext(events) for _ in range(3)]
    task_id = seen[0].result['task']['id']
    again = rpc('SubscribeToTask', id=task_id)
    async with stream(server.url, again, Last_Event_ID=str(seen[1].id)) as events:
        assert await anext(events) == seen[2]
        await Gates(server.url).open('resume')
        rest = [event async for event in events]
    assert [event.id for event in (*seen, *rest)] == list(range(seen[0].id, rest[-1].id + 1))
    assert rest[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
    async with stream(server.url, again, Last_Event_ID=str(seen[2].id)) as events:
        assert [event async for event in events] == rest
    async with stream(server.url, again, Last_Event_ID=str(rest[-1].id)) as events:
        assert [event async for event in events] == []


@covers(OFFICIAL)
async def test_official_client_resumes_by_last_event_id(server: Process) -> None:
    async with official_client(server.url) as client:
        events = await collect(client.send_message(text_request('say one two')))
        request = SubscribeToTaskRequest(id=events[0].task.id)
        context = ClientCallContext(service_parameters={'Last-Event-ID': '2'})
        rest = await collect(client.subscribe(request, context=context))
    assert rest == events[3:], event_summary(rest)


def read_all(connection: socket.socket) -> list[Event]:
    """The events that have arrived whole, when the server has closed the connection."""
    answer = h11.Connection(h11.CLIENT)
    answer.send(h11.Request(method='POST', target='/', headers=[('Host', 'server')]))
    while data := connection.recv(1 << 20):
        answer.receive_data(data)
    body = bytearray()
    while (part := answer.next_event()) is not h11.NEED_DATA:
        assert not isinstance(part, h11.EndOfMessage)
        body += part.data if isinstance(part, h11.Data) else b''
    *frames, _broken = body.decode().split('\n\n')
    return [event for event in map(parse, frames) if event]


def chunks(events: list[Event]) -> list[int]:
    """The numbers of the chunks of text in the events."""
    artifacts = [event.result['artifactUpdate']['artifact'] for event in events if 'artifactUpdate' in event.result]
    return [int(artifact['parts'][0]['text'][:8]) for artifact in artifacts if artifact['parts'][0]['text']]


@covers('reader that stops reading')
async def test_stalled_reader_is_disconnected_and_can_resume(server: Process) -> None:
    gates = Gates(server.url)
    with closing(send_without_reading(server.url, send_streaming(f'flood {CHUNKS}'))) as connection:
        await gates.reached('flood')
        async with official_client(server.url, streaming=False) as other:
            assert text_of(await task_of(other.send_message(text_request('say hello')))) == 'hello '
        server.wait_for('A subscriber read its events too slowly and was disconnected')
        await gates.open('flood')
        received = await asyncio.to_thread(read_all, connection)
    assert len(received) < CHUNKS / 2  # the rest was never put into anybody's buffer
    task_id = received[0].result['task']['id']
    async with stream(server.url, rpc('SubscribeToTask', id=task_id), Last_Event_ID=str(received[-1].id)) as events:
        received += [event async for event in events]
    assert [event.id for event in received] == list(range(received[0].id, received[-1].id + 1))
    assert chunks(received) == list(range(CHUNKS))
    assert received[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


# --- silent streams, read by the oldest and the newest official client of each minor of A2A 0.2 and 0.3

SCRIPT = Path(__file__).with_name('client_of_releases.py')
RELEASES = {
    'oldest 0.2': 'a2a-sdk==0.2.5',
    'newest 0.2': 'a2a-sdk==0.2.16',
    'oldest 0.3': 'a2a-sdk==0.3.0',
    'newest 0.3': REQUIREMENT,
}


class Silent:
    """An app whose agent answers once its stream has had some keep-alive comments, and nothing else, in a row."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()
        self._comments = 0
        self.app = to_a2a(Agent(FunctionModel(self._answer)), limits=with_constants(Limits, keep_alive=0.02))

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        await self._heard.wait()
        return ModelResponse(parts=[TextPart('done')])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            await send(message)
            self._comments += message.get('body', b'').startswith(b':')
            if self._comments == 5:
                self._heard.set()

        await self.app(scope, receive, counted)


@pytest.mark.parametrize('requirement', RELEASES.values(), ids=RELEASES)
def test_official_client_reads_silent_stream(requirement: str) -> None:
    python = python_with_a2a_sdk_0_3(requirement)
    with serve(Silent()) as server:
        done = subprocess.run(
            [str(python), str(SCRIPT), server.url], capture_output=True, text=True, timeout=LIMIT, check=False
        )
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ['completed']), done.stderr
