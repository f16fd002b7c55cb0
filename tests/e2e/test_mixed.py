"""Load of all kinds at once: at its end, a server holds the tasks, files, sockets and objects that it began with.

`make stress ROUNDS=12000 ARGS='-k mixed_load'` goes on for about an hour.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from os import environ
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import grpc
import httpx
import pytest
from a2a.types import GetTaskRequest

from ..bounds import LIMIT
from ..server.grpc.grpc_client import GrpcAgent as GrpcClient
from ..server.grpc.grpc_client import send_request
from ..sizes import short_or_long
from ..watchdog import WATCHDOG
from ..webhooks import webhook
from .server import ROOT, process, rpc

ROUNDS = int(environ.get('MIXED_ROUNDS') or short_or_long(10, 100))
WARM_UP = 5
"""Rounds after which all that a server keeps for good is there, such as its threads and connections to the store."""
AT_ONCE = 8
"""Rounds at a time."""
Json = dict[str, Any]


class Load:
    """Clients of one server, over HTTP and gRPC.

    Args:
        http: A client of the server.
        grpc: Another one, over gRPC.
        hook: The URL of a webhook.
    """

    def __init__(self, http: httpx.AsyncClient, grpc: GrpcClient, hook: str) -> None:
        self._http = http
        self._grpc = grpc
        self._hook = hook
        self._chance = Random(1)
        self._kinds: list[Callable[[], Awaitable[object]]] = [
            self.says,
            self.streams,
            self.leaves_a_stream,
            self.leaves_a_send,
            self.cancels_at_once,
            self.cancels_a_stream,
            self.approves,
            self.denies,
            self.cancels_an_approval,
            self.subscribes_and_leaves,
            self.is_told_by_a_webhook,
            self.sends_to_a_working_task,
            self.is_refused,
            self.calls_over_grpc,
            self.leaves_grpc,
        ]

    async def round(self) -> None:
        """Make one call of each kind, all at once, in another order each time."""
        kinds = [*self._kinds]
        self._chance.shuffle(kinds)
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._some(kind))

    async def _some(self, kind: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(self._chance.random() / 50)
        await kind()

    async def says(self) -> None:
        first = await self.send('say')
        again = await self.send('say', contextId=first['contextId'])
        assert _state(first) == _state(again) == 'COMPLETED'

    async def streams(self) -> None:
        async with self.open('SendStreamingMessage', message=_message('say')) as events:
            *_, last = [event async for event in events]
        assert last['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'

    async def leaves_a_stream(self) -> None:
        async with self.open('SendStreamingMessage', message=_message('say')) as events:
            for _ in range(self._chance.randrange(4)):
                await anext(events)

    async def leaves_a_send(self) -> None:
        message = _message('wait')
        sending = asyncio.ensure_future(self.call('SendMessage', message=message))
        await asyncio.sleep(self._chance.random() / 20)
        sending.cancel()
        await asyncio.wait([sending])
        # A repeated message finds the task, or makes the task if the first one was not stored.
        await self.cancel((await self.send_again(message))['id'])

    async def cancels_at_once(self) -> None:
        task = await self.send(self._chance.choice(['say', 'wait', 'delete']), wait=False)
        await self.cancel(task['id'])

    async def cancels_a_stream(self) -> None:
        async with self.open('SendStreamingMessage', message=_message('wait')) as events:
            task = (await anext(events))['task']
            await asyncio.sleep(self._chance.random() / 50)
            assert await self.cancel(task['id'])
            *_, last = [event async for event in events]
        assert last['statusUpdate']['status']['state'] == 'TASK_STATE_CANCELED'

    async def approves(self) -> None:
        assert _state(await self._answered('approve')) == 'COMPLETED'

    async def denies(self) -> None:
        assert _state(await self._answered('deny')) == 'COMPLETED'

    async def _answered(self, decision: str) -> Json:
        task = await self.send('delete')
        [pending] = [part['data'] for part in task['status']['message']['parts'] if 'data' in part]
        answer = {'id': pending['pending'][0]['id'], 'decision': decision}
        return await self.send(parts=[{'data': {'callAnswers': [answer]}}], taskId=task['id'])

    async def cancels_an_approval(self) -> None:
        task = await self.send('delete')
        assert _state(task) == 'INPUT_REQUIRED'
        await self.cancel(task['id'])

    async def subscribes_and_leaves(self) -> None:
        task = await self.send('wait', wait=False)
        for _ in range(2):
            async with self.open('SubscribeToTask', id=task['id']) as events:
                assert 'task' in await anext(events)
        await self.cancel(task['id'])

    async def is_told_by_a_webhook(self) -> None:
        assert _state(await self.send('say', hook=self._hook)) == 'COMPLETED'

    async def sends_to_a_working_task(self) -> None:
        task = await self.send('wait', wait=False)
        await self.send('say', wait=False, taskId=task['id'])
        await self.cancel(task['id'])

    async def is_refused(self) -> None:
        for body in (rpc('GetTask', id='unknown'), rpc('SendMessage', message={}), rpc('Nothing')):
            assert 'error' in await self.post(body)

    async def calls_over_grpc(self) -> None:
        task = (await self._grpc.call('SendMessage', send_request('say'))).task
        assert (await self._grpc.call('GetTask', GetTaskRequest(id=task.id))).id == task.id
        assert await self._grpc.stream('SendStreamingMessage', send_request('say')).rest()

    async def leaves_grpc(self) -> None:
        stream = self._grpc.stream('SendStreamingMessage', send_request('wait'))
        task = (await stream.next()).task
        stream.call.cancel()
        sending = self._grpc.start('SendMessage', send_request('say'))
        await asyncio.sleep(self._chance.random() / 50)
        sending.cancel()
        await self.cancel(task.id)

    async def send(
        self, text: str = '', *, wait: bool = True, configuration: Json | None = None, **fields: Any
    ) -> Json:
        configuration = {'returnImmediately': not wait, **(configuration or {})}
        return (await self.call('SendMessage', message=_message(text, **fields), configuration=configuration))['task']

    async def send_again(self, message: Json) -> Json:
        return (await self.call('SendMessage', message=message, configuration={'returnImmediately': True}))['task']

    async def cancel(self, task_id: str) -> bool:
        """Cancel a task; False if it has ended."""
        return 'result' in await self.post(rpc('CancelTask', id=task_id))

    async def call(self, method: str, **params: Any) -> Any:
        answer = await self.post(rpc(method, **params))
        assert 'result' in answer, answer
        return answer['result']

    async def post(self, body: Json) -> Json:
        return (await self._http.post('/', json=body)).json()

    @asynccontextmanager
    async def open(self, method: str, **params: Any) -> AsyncGenerator[AsyncIterator[Json]]:
        """The results of a stream. The end of the block leaves it."""
        async with self._http.stream('POST', '/', json=rpc(method, **params)) as response:
            yield _results(response)


async def _results(response: httpx.Response) -> AsyncIterator[Json]:
    async for line in response.aiter_lines():
        if line.startswith('data: '):
            yield json.loads(line[6:])['result']


def _message(text: str, **fields: Any) -> Json:
    return {'messageId': uuid4().hex, 'role': 'ROLE_USER', 'parts': [{'text': text}], **fields}


def _state(task: Json) -> str:
    return task['status']['state'].removeprefix('TASK_STATE_')


async def load(url: str, address: str, hook: str, rounds: int) -> None:
    """Make so many rounds of load, and close all connections."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    async with (
        httpx.AsyncClient(base_url=url, headers={'A2A-Version': '1.0'}, timeout=LIMIT, limits=limits) as http,
        grpc.aio.insecure_channel(address) as channel,
    ):
        clients, left = Load(http, GrpcClient(channel), hook), iter(range(rounds))

        async def go_on() -> None:
            for _ in left:
                WATCHDOG.restart()  # a round is bounded, and not all of them
                await clients.round()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(go_on())


async def server_resources(url: str) -> Json:
    """What a server holds."""
    async with httpx.AsyncClient(timeout=LIMIT) as http:
        return (await http.get(f'{url}held')).raise_for_status().json()


async def settled(url: str) -> Json:
    """What a server holds once its runs and calls are over."""
    async with asyncio.timeout(LIMIT):
        while {'AgentRun', 'Claim', 'GrpcCall'} & (now := await server_resources(url))['objects'].keys():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return now


def grown(before: Json, now: Json) -> Json:
    """What a server holds more of than before."""
    more: Json = {kind: Counter[str](now[kind]) - Counter[str](before[kind]) for kind in now}
    return {kind: more[kind] for kind in more if more[kind]}


@pytest.mark.long
@pytest.mark.parametrize('store', ['memory', *short_or_long([], ['file', 'postgres'])])
async def test_mixed_load_leaks_no_server_resources(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    backend = {'memory': 'memory', 'file': f'sqlite:///{tmp_path}/agent.db'}.get(store)
    backend = backend or request.getfixturevalue('postgres_url')
    serve = ('serve', '--app-dir', str(ROOT), 'tests.e2e.mixed_app:app', '--port', '0', '--grpc-port', '0')
    with process('-m', 'pydantic_ai_a2a', *serve, env={'MIXED_BACKEND': backend}, fork=False) as server:
        address = server.wait_for(r'gRPC running on (\S+)')[1]
        async with webhook(200, 503, 200) as hook:
            await load(server.url, address, hook.url, WARM_UP)
            before = await settled(server.url)
            await load(server.url, address, hook.url, ROUNDS)
            more, end = grown(before, await settled(server.url)), time.monotonic() + LIMIT
            while more and time.monotonic() < end:  # deliveries to the webhook may still go on
                await asyncio.sleep(0.1)
                more = grown(before, await server_resources(server.url))
    assert more == {}
    assert 'Traceback' not in server.output
