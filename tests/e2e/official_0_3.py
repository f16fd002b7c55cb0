"""The official client of A2A 0.3, in a process of its own, and its objects in short."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from .server import LIMIT

OFFICIAL_0_3 = 'official `a2a-sdk` 0.3.x client'
"""The behaviour that these tests show, by its name."""

SCRIPT = Path(__file__).with_name('client_0_3.py')


class ClientError(Exception):
    """What the client raised."""

    def __init__(self, type: str, text: str, code: int | None = None) -> None:
        self.type = type
        self.code = code
        """JSON-RPC's, if the server sent one."""
        super().__init__(f'{type}: {text}')


class Client03:
    """Tells the client what to do; its objects come as the JSON that it writes of them."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ids = count(1)
        self._answers: dict[int, asyncio.Queue[dict[str, Any]]] = {}

    async def listen(self) -> str:
        """Pass on what the client says until it has ended; its complaints."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async for line in self._process.stdout:
            answer = json.loads(line)
            self._answers[answer['id']].put_nowait(answer)
        complaints = (await self._process.stderr.read()).decode()
        for answers in self._answers.values():
            answers.put_nowait({'end': {'type': 'the client has ended', 'text': complaints}})
        return complaints

    async def _call(self, call: str, **params: Any) -> AsyncIterator[Any]:
        id = next(self._ids)
        answers = self._answers[id] = asyncio.Queue()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({'id': id, 'call': call, 'params': params}).encode() + b'\n')
        while 'item' in (answer := await asyncio.wait_for(answers.get(), LIMIT)):
            yield answer['item']
        if answer['end'] is not None:
            raise ClientError(**answer['end'])

    async def _one(self, call: str, **params: Any) -> Any:
        (item,) = [item async for item in self._call(call, **params)]
        return item

    async def card(self) -> Any:
        return await self._one('card')

    def send(self, text: str | None = None, **options: Any) -> AsyncIterator[Any]:
        """Send a message; each answer is the task as the client knows it, and the update that told it."""
        return self._call('send', text=text, **options)

    async def task_of(self, text: str | None = None, **options: Any) -> Any:
        """Send a message; the one task that a client without streaming gets."""
        return (await self._one('send', text=text, **options))['task']

    def resubscribe(self, task_id: str) -> AsyncIterator[Any]:
        return self._call('resubscribe', id=task_id)

    async def get(self, task_id: str, **params: Any) -> Any:
        return await self._one('get', id=task_id, **params)

    async def cancel(self, task_id: str) -> Any:
        return await self._one('cancel', id=task_id)

    async def push(self, task_id: str, url: str = 'https://example.com/') -> Any:
        return await self._one('push', id=task_id, url=url)

    async def pushed(self, task_id: str) -> Any:
        """The webhook of a task."""
        return await self._one('pushed', id=task_id)


@asynccontextmanager
async def client_0_3(python: Path, url: str, **config: Any) -> AsyncGenerator[Client03]:
    """The official client, with the card that is at the URL; a warning or an error in its log is an error."""
    process = await asyncio.create_subprocess_exec(
        python, '-I', '-W', 'error', SCRIPT, url, json.dumps(config), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert process.stdin is not None
    client = Client03(process)
    listening = asyncio.create_task(client.listen())
    try:
        yield client
        process.stdin.close()
        complaints = await asyncio.wait_for(listening, LIMIT)
        assert (await process.wait(), complaints) == (0, ''), complaints
    finally:
        if process.returncode is None:
            process.kill()
        await listening
        await process.wait()


async def collect(answers: AsyncIterator[Any]) -> list[Any]:
    return [answer async for answer in answers]


def text_of(task: Any) -> str:
    (artifact,) = task['artifacts']
    return ''.join(part['text'] for part in artifact['parts'])


def outline(events: Sequence[Any]) -> list[str]:
    """What each event says, in short."""
    return [_outline(event['task'], event['update']) for event in events]


def _outline(task: Any, update: Any) -> str:
    if update is None:
        return f'task {task["status"]["state"]}'
    if update['kind'] == 'status-update':
        said = ''.join(part['text'] for part in update['status'].get('message', {}).get('parts', ()))
        marks = ['final'] if update['final'] else []
        return ' '.join([update['status']['state'], *([repr(said)] if said else []), *marks])
    marks = [name for name in ('append', 'lastChunk') if update.get(name)]
    return ' '.join([repr(''.join(part['text'] for part in update['artifact']['parts'])), *marks])
