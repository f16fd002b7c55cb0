"""A client that calls an ASGI app in process: no sockets, real streaming, and readers that stall or leave on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import unquote

from pydantic_ai.messages import ModelMessage
from starlette.types import ASGIApp, Message

from pydantic_ai_a2a import A2AApp
from pydantic_ai_a2a.wire.extensions.own_extensions import LIVE_TEXT_URI

from .bounds import LIMIT
from .dialects import Call, Dialect, current_dialect

_ids = count(1)


def message(text: str = 'hello', **fields: Any) -> dict[str, Any]:
    """A user message of A2A 1.0 with an id of its own."""
    return {'messageId': f'message-{next(_ids):012d}', 'role': 'ROLE_USER', 'parts': [{'text': text}], **fields}


def rpc(method: Any, params: Any = None, dialect: Dialect | None = None, **fields: Any) -> Call:
    """A request, of 1.0's method and params, as the dialect or the test's writes it."""
    return (dialect or current_dialect()).call(method, params, **fields)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body.removeprefix(b'data: '))  # the one event of a refused stream, perhaps


class Event(NamedTuple):
    """One server-sent event."""

    id: int
    data: Any

    @property
    def result(self) -> Any:
        return self.data['result']


class RpcError(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        self.code: int = error['code']
        self.message: str = error['message']
        self.data: list[dict[str, Any]] = error.get('data', [])
        super().__init__(f'{self.code} {self.message}')

    @property
    def fields(self) -> list[str]:
        """The fields that the server complains about."""
        return [each['field'] for detail in self.data for each in detail.get('fieldViolations', ())]

    @property
    def reason(self) -> str:
        return self.data[0]['reason']


class Exchange:
    """One HTTP request to the app, in a task of its own."""

    def __init__(self, app: ASGIApp, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        path, _, query = path.partition('?')
        self.scope: dict[str, Any] = {
            'type': 'http',
            'asgi': {'version': '3.0', 'spec_version': '2.3'},
            'http_version': '1.1',
            'method': method,
            'path': unquote(path),
            'raw_path': path.encode(),
            'query_string': query.encode(),
            'root_path': '',
            'scheme': 'http',
            'headers': [
                (b'host', b'testserver'),
                *((name.lower().encode(), value.encode('latin-1')) for name, value in headers.items()),
            ],
            'server': ('testserver', 80),
            'client': ('testclient', 1),
            'state': {},
        }
        self._body = body
        self._given = False
        self.gone = asyncio.Event()
        """Set it to disconnect."""
        self.reading = asyncio.Event()
        """Clear it to stop reading: the app's sends then wait, like those of a server with a full buffer."""
        self.reading.set()
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self.task: asyncio.Task[None] = asyncio.create_task(self._run(app))

    async def _run(self, app: ASGIApp) -> None:
        await app(self.scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._given:
            self._given = True
            return {'type': 'http.request', 'body': self._body, 'more_body': False}
        await self.gone.wait()
        return {'type': 'http.disconnect'}

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        self._sent.put_nowait(message)

    async def next(self) -> Message:
        """The app's next message; raises what the app raised instead of sending one."""
        getting = asyncio.create_task(self._sent.get())
        async with asyncio.timeout(LIMIT):
            await asyncio.wait([getting, self.task], return_when=asyncio.FIRST_COMPLETED)
        if not getting.done() and self._sent.empty():
            getting.cancel()
            await self.task
            raise AssertionError('the app returned without finishing its answer')
        return await getting

    async def answer(self) -> Answer:
        """The whole answer."""
        start = await self.next()
        headers = {name.decode(): value.decode('latin-1') for name, value in start['headers']}
        body = b''
        while True:
            part = await self.next()
            body += part.get('body', b'')
            if not part.get('more_body'):
                break
        async with asyncio.timeout(LIMIT):
            await self.task
        return Answer(start['status'], headers, body)


class Stream:
    """An open event stream."""

    def __init__(self, exchange: Exchange, headers: dict[str, str], dialect: Dialect, ends: Collection[str]) -> None:
        self.exchange = exchange
        self.headers = headers
        self._dialect = dialect
        self._ends = ends
        self._buffer = b''
        self._over = False
        self._final = False

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event; the stream's end ends the iteration."""
        while True:
            frame, separator, rest = self._buffer.partition(b'\n\n')
            if separator:
                self._buffer = rest
                return self._event([line for line in frame.split(b'\n') if not line.startswith(b':')])
            if self._over:
                raise StopAsyncIteration
            part = await self.exchange.next()
            self._buffer += part.get('body', b'')
            self._over = not part.get('more_body')

    def _event(self, lines: list[bytes]) -> Event:
        fields = dict(line.split(b': ', 1) for line in lines)
        wire = json.loads(fields[b'data'])
        event = Event(int(fields[b'id']), {**wire, 'result': self._dialect.event(wire)})
        assert not self._final, 'an event came after the one that said it was the last'
        final = self._dialect.final(wire)
        if final is not None:
            assert final == (event.result['statusUpdate']['status']['state'] in self._ends)
            self._final = final
        return event

    async def rest(self) -> list[Event]:
        """All events until the stream ends."""
        return [event async for event in self]

    async def until(self, state: str) -> list[Event]:
        """Events up to the first status update with this state, that one included."""
        events: list[Event] = []
        async for event in self:
            events.append(event)
            if event.result.get('statusUpdate', {}).get('status', {}).get('state') == state:
                return events
        raise AssertionError(f'the stream ended without {state}')


LIVE = {'A2A-Extensions': LIVE_TEXT_URI, 'X-A2A-Extensions': LIVE_TEXT_URI}
"""Headers of a client that asks for live text, in all versions."""


class Client:
    """Speaks A2A to an app in process: 1.0's vocabulary on this side, the test's version and binding on the wire."""

    def __init__(self, app: ASGIApp, *, path: str = '/', headers: Mapping[str, str] | None = None) -> None:
        self.app = app
        self.path = path
        self.dialect = current_dialect()
        self.headers = {'A2A-Version': self.dialect.version, **(headers or {})}

    @property
    def a2a_app(self) -> A2AApp:
        """The app, which no other app wraps."""
        assert isinstance(self.app, A2AApp)
        return self.app

    @property
    def live(self) -> Client:
        """The same client, which asks for live text."""
        return Client(self.app, path=self.path, headers={**self.headers, **LIVE})

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None, *, path: str | None = None) -> Answer:
        """Send a request; POST raw bytes as JSON, unless the headers say otherwise."""
        return await self._exchange(body, {**self.headers, **(headers or {})}, path or self.path).answer()

    def _exchange(self, body: bytes, headers: dict[str, str], path: str) -> Exchange:
        call = body if isinstance(body, Call) else Call(body)
        base, mark, query = path.partition('?')
        if call.path:
            joined = '&' if mark and '?' in call.path else mark
            path = base.rstrip('/') + call.path + joined + query
        declared = {'Content-Type': 'application/json'} if call.verb == 'POST' else {}
        return Exchange(self.app, call.verb, path, declared | headers, call)

    async def get(self, path: str, headers: Mapping[str, str] | None = None, *, method: str = 'GET') -> Answer:
        return await Exchange(self.app, method, path, headers or {}, b'').answer()

    async def call(self, method: str, params: Any = None, **headers: str) -> Any:
        """The result of an operation; an error raises RpcError. Header names are given with `_` for `-`."""
        body = self._request(method, params)
        answer = await self.post(body, {name.replace('_', '-'): value for name, value in headers.items()})
        if 'error' in answer.json:
            raise RpcError(self.dialect.error(answer.json))
        return self.dialect.result(method, answer.json)

    def _request(self, method: str, params: Any) -> Call:
        self.dialect.check(method, params)
        return rpc(method, params, self.dialect, id=1)

    async def send(self, text: str | dict[str, Any] = 'hello', **configuration: Any) -> dict[str, Any]:
        """SendMessage; the task."""
        sent = message(text) if isinstance(text, str) else text
        return (await self.call('SendMessage', {'message': sent, 'configuration': configuration}))['task']

    @asynccontextmanager
    async def stream(self, method: str, params: Any, **headers: str) -> AsyncGenerator[Stream]:
        """An event stream; an error instead of one raises RpcError. Leaving the block disconnects."""
        merged = self.headers | {name.replace('_', '-'): value for name, value in headers.items()}
        exchange = self._exchange(self._request(method, params), merged, self.path)
        try:
            start = await exchange.next()
            given = {name.decode(): value.decode('latin-1') for name, value in start['headers']}
            if 'content-length' in given:  # what refuses a stream is whole: plain JSON, or the one event
                refusal = (await exchange.next())['body'].removeprefix(b'data: ')
                raise RpcError(self.dialect.error(json.loads(refusal)))
            subscribes = method == 'SubscribeToTask'
            ends = self.dialect.ends_subscription if subscribes else self.dialect.ends_send
            yield Stream(exchange, given, self.dialect, ends)
        finally:
            exchange.gone.set()
            exchange.reading.set()
            async with asyncio.timeout(LIMIT):
                await asyncio.wait([exchange.task])

    def send_streaming(self, text: str | dict[str, Any] = 'hello', **configuration: Any) -> Any:
        """SendStreamingMessage, as a context manager."""
        sent = message(text) if isinstance(text, str) else text
        return self.stream('SendStreamingMessage', {'message': sent, 'configuration': configuration})

    def subscribe(self, task_id: str, **headers: str) -> Any:
        """SubscribeToTask, as a context manager."""
        return self.stream('SubscribeToTask', {'id': task_id}, **headers)

    async def messages_of(self, context_id: str) -> list[ModelMessage]:
        """The stored messages of a conversation."""
        conversation = await self.a2a_app.conversations().load(context_id)
        assert conversation is not None
        return conversation.messages

    async def get_task(self, task_id: str, **params: Any) -> dict[str, Any]:
        return await self.call('GetTask', {'id': task_id, **params})


@asynccontextmanager
async def lifespan(app: ASGIApp) -> AsyncGenerator[None]:
    """Run an app's lifespan around a block."""
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()

    async def run() -> None:
        await app({'type': 'lifespan', 'asgi': {'version': '3.0'}, 'state': {}}, to_app.get, from_app.put)

    async def expect(kind: str) -> None:
        async with asyncio.timeout(LIMIT):
            got = await from_app.get()
        assert got['type'] == kind, got

    task = asyncio.create_task(run())
    to_app.put_nowait({'type': 'lifespan.startup'})
    await expect('lifespan.startup.complete')
    try:
        yield
    finally:
        to_app.put_nowait({'type': 'lifespan.shutdown'})
        await expect('lifespan.shutdown.complete')
        async with asyncio.timeout(LIMIT):
            await task


def state_of(task: dict[str, Any]) -> str:
    return task['status']['state'].removeprefix('TASK_STATE_')


def texts(task: dict[str, Any]) -> list[str]:
    """The texts of a task's artifacts."""
    return [part['text'] for part in _parts(task) if 'text' in part]


def _parts(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for artifact in task.get('artifacts', ()):
        yield from artifact['parts']
