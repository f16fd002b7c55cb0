"""Clients that get their answers whatever happens: they send again, and come back to their streams."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import httpx

from ..bounds import LIMIT
from ..e2e.server import rpc
from .facts import ENDED, Event, ObservedState, ReaderConnection, SentMessage
from .ledger import Ledger
from .plan import Turn
from .processes import Fleet

__all__ = ('Client', 'Conversation', 'Reader', 'Refused', 'state_of')

_PAUSE = 0.05
"""Seconds until a client tries again."""
_PATIENCE = httpx.Timeout(10.0)
"""What a client waits for an answer, or for the next piece of one."""
_AGAIN = (-32603, -32000)
"""Errors of the server, not of the client."""


class Refused(Exception):
    """An error that is the client's."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f'{error["code"]} {error["message"]}')
        self.code: int = error['code']


class _Trouble(Exception):
    """No answer; to be asked for again."""


def state_of(task: dict[str, Any]) -> str:
    return task['status']['state'].removeprefix('TASK_STATE_')


class Client:
    """Asks any of the servers, until one answers."""

    def __init__(self, fleet: Fleet, http: httpx.AsyncClient, random: Random, sightings: list[ObservedState]) -> None:
        self._fleet = fleet
        self._http = http
        self._sightings = sightings
        self.random = random
        self.troubles = Counter[str]()
        """Why it had to ask again."""

    async def call(self, method: str, **params: Any) -> Any:
        """The result of an operation.

        Raises:
            Refused: It is the client's fault.
        """
        while True:
            try:
                return await self._call_once(method, params)
            except (httpx.TransportError, _Trouble) as trouble:
                await self._again(trouble)

    async def _again(self, trouble: Exception) -> None:
        self.troubles[str(trouble) if isinstance(trouble, _Trouble) else type(trouble).__name__] += 1
        await asyncio.sleep(_PAUSE)

    async def _call_once(self, method: str, params: dict[str, Any]) -> Any:
        headers = {'A2A-Version': '1.0'}
        url = self._fleet.url(self.random)
        return _result(await self._http.post(url, json=rpc(method, **params), headers=headers, timeout=_PATIENCE))

    async def task(self, method: str, **params: Any) -> dict[str, Any]:
        """The task that an operation answers with."""
        result = await self.call(method, **params)
        return self.see(result.get('task', result))

    def see(self, task: dict[str, Any]) -> dict[str, Any]:
        """Remember in which state a task was."""
        self._sightings.append(ObservedState(task['id'], state_of(task)))
        return task

    async def read(self, reader: Reader, budget: int, method: str, **params: Any) -> None:
        """Open a stream and read so many events of it, or all there are; troubles end it."""
        reading = ReaderConnection(after=reader.last)
        reader.readings.append(reading)
        try:
            async with self._open(method, params, reading) as response:
                await reader.take(self, reading, response, budget)
        except (httpx.TransportError, _Trouble) as trouble:
            await self._again(trouble)
        except TimeoutError:
            reader.done = True

    @asynccontextmanager
    async def _open(self, method: str, params: Any, reading: ReaderConnection) -> AsyncGenerator[httpx.Response]:
        headers = {'A2A-Version': '1.0'}
        if reading.after is not None:
            headers['Last-Event-ID'] = str(reading.after)
        url, body = self._fleet.url(self.random), rpc(method, **params)
        async with self._http.stream('POST', url, json=body, headers=headers, timeout=_PATIENCE) as response:
            if not response.headers['content-type'].startswith('text/event-stream'):
                await response.aread()
                _result(response)
            yield response


class Reader:
    """Reads the events of one task, with many connections, until it has seen the end."""

    def __init__(self, task: str | None = None) -> None:
        self.task = task
        self.readings: list[ReaderConnection] = []
        self.over = False
        """Whether it has seen the end."""
        self.done = False
        """Whether its stream has ended after that, or goes on and on."""
        self.known = asyncio.Event()
        """Set once it knows its task."""

    @property
    def last(self) -> int | None:
        return next((reading.last for reading in reversed(self.readings) if reading.last is not None), None)

    async def take(self, client: Client, reading: ReaderConnection, response: httpx.Response, budget: int) -> None:
        """Read from a connection. TimeoutError if it is not closed after the end."""
        async with asyncio.timeout(None) as closing:
            await self._take(client, reading, response, budget, closing)

    async def _take(
        self, client: Client, reading: ReaderConnection, response: httpx.Response, budget: int, closing: asyncio.Timeout
    ) -> None:
        async for n, result in _events(response):
            if 'task' in result:
                self.task = client.see(result['task'])['id']
                self.known.set()
                reading.snapshot = n, state_of(result['task'])
                self.over = reading.snapshot[1] in ENDED
            else:
                reading.events.append(Event(n, result))
                self.over = reading.events[-1].state in ENDED
            budget -= 1
            if self.over:
                closing.reschedule(asyncio.get_running_loop().time() + LIMIT)
            elif budget <= 0:
                return
        reading.closed = True
        self.done = self.over

    async def follow(self, client: Client) -> None:
        """Read to the end, with another connection after every few events, and until the server closes it."""
        while not self.done:
            try:
                await client.read(self, client.random.randint(1, 5), 'SubscribeToTask', id=self.task)
            except Refused as refused:
                if refused.code != -32004 or self.last is not None:
                    raise
                self.readings.append(ReaderConnection(after=0))  # it has ended: read its log from the beginning


def _result(response: httpx.Response) -> Any:
    try:
        return _outcome(response.json())
    except ValueError:
        raise _Trouble(f'HTTP {response.status_code}') from None


def _outcome(answer: dict[str, Any]) -> Any:
    if 'result' in answer:
        return answer['result']
    error = answer['error']
    if error['code'] in _AGAIN:
        raise _Trouble(f'{error["code"]} {error["message"]}')
    raise Refused(error)


async def _events(response: httpx.Response) -> AsyncIterator[tuple[int, Any]]:
    """Numbers and contents."""
    number = 0
    async for line in response.aiter_lines():
        if line.startswith('id: '):
            number = int(line[4:])
        elif line.startswith('data: '):
            yield number, _outcome(json.loads(line[6:]))


# --- a client of one context: sends its messages one after the other, reads all their tasks, and cancels some

_NOT_CANCELABLE = -32002


class Conversation:
    """All messages of one context.

    Args:
        client: Asks the servers.
        ledger: Tells when a task has begun.
        prefix: Makes the ids of messages those of this run.
    """

    def __init__(self, client: Client, ledger: Ledger, prefix: str) -> None:
        self.client = client
        self._ledger = ledger
        self._prefix = prefix
        self.sent: list[SentMessage] = []
        self.readers: list[Reader] = []
        self.refusals: list[tuple[str, str]] = []

    async def send(self, *turns: Turn) -> None:
        """Send each message until it is accepted, and then the next one; returns when all tasks have been read."""
        async with asyncio.TaskGroup() as reading:
            for turn in turns:
                message = f'chaos-{self._prefix}-message-{turn.name}'
                tasks: list[str] = []
                self.sent.append(
                    SentMessage(message, turn.context, turn.number, turn.steps, turn.cancel is not None, tasks)
                )
                async with asyncio.TaskGroup() as sending:
                    for _ in range(1 + turn.twice):
                        sending.create_task(self._try(message, self._send(turn, message, tasks, reading)))

    async def _try(self, message: str, work: Any) -> None:
        try:
            await work
        except Refused as refused:
            self.refusals.append((message, str(refused)))

    async def _send(self, turn: Turn, message_id: str, tasks: list[str], reading: asyncio.TaskGroup) -> None:
        """Send a message until it is accepted; go on reading its task in the group."""
        message = {
            'messageId': message_id,
            'contextId': turn.context,
            'role': 'ROLE_USER',
            'parts': [{'text': f'{turn.name} {turn.steps}'}],
        }
        reader = Reader()
        self.readers.append(reader)
        if turn.mode == 'streaming':
            while reader.task is None:
                await self.client.read(reader, 2, 'SendStreamingMessage', message=message)
        else:
            configuration = {'returnImmediately': turn.mode == 'at once'}
            task = await self.client.task('SendMessage', message=message, configuration=configuration)
            reader.task = task['id']
        assert reader.task is not None
        tasks.append(reader.task)
        following = reading.create_task(self._try(message_id, reader.follow(self.client)))
        if turn.cancel is not None:
            reading.create_task(self._try(message_id, self._cancel(turn, reader.task, following)))

    async def _cancel(self, turn: Turn, task: str, following: asyncio.Task[None]) -> None:
        if turn.cancel == 'running':
            begun = asyncio.create_task(self._ledger.find(lambda row: row.task == task))
            await asyncio.wait([begun, following], return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
        try:
            await self.client.task('CancelTask', id=task)
        except Refused as refused:
            if refused.code != _NOT_CANCELABLE:  # it was too late, or an answer was lost
                raise
