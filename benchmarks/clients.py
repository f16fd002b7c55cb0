"""CPU time of clients: `A2AClient` beside the official client, in rounds in which the clients take turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import httpx
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_text_message
from a2a.types import Role, SendMessageRequest, TaskState

from pydantic_ai_a2a import A2AClient

from .load import LIMIT
from .ratios import ours
from .report import Row
from .servers import Databases
from .sizes import Size

Call = Callable[[], Awaitable[None]]
_WORDS = 'Hello, agent!'


async def clients(size: Size, databases: Databases) -> list[Row]:
    """A blocking call, and a streamed answer with an event for each of 50 deltas."""
    with ExitStack() as stack:
        url = f'http://127.0.0.1:{ours(stack, databases, "deltas", "memory").port}/'
        async with httpx.AsyncClient(timeout=LIMIT) as http, A2AClient(url, timeout=LIMIT) as client:
            send, stream = [await _official(url, http, streaming=streaming) for streaming in (False, True)]
            return [
                Row.of('blocking call of A2AClient', await _ratios(size, _send(client), send)),
                Row.of('streamed answer of A2AClient', await _ratios(size, _stream(client), stream)),
            ]


async def _ratios(size: Size, call: Call, official: Call) -> list[float]:
    rounds = [
        (await _cpu_of_call(call, size.seconds), await _cpu_of_call(official, size.seconds))
        for _ in range(size.rounds + 1)
    ]
    return [own / base for own, base in rounds[1:]]  # after a warm-up


async def _cpu_of_call(call: Call, seconds: float) -> float:
    calls, end, before = 0, time.monotonic() + seconds, time.process_time()
    async with asyncio.timeout(LIMIT):
        while not calls or time.monotonic() < end:
            await call()
            calls += 1
    return (time.process_time() - before) / calls


def _send(client: A2AClient) -> Call:
    async def call() -> None:
        task = (await client.send(_WORDS)).outcome
        assert 'status' in task
        assert task['status']['state'] == 'completed'

    return call


def _stream(client: A2AClient) -> Call:
    async def call() -> None:
        state = ''
        async for _, task in client.stream(_WORDS):
            assert task is not None
            state = task['status']['state']
        assert state == 'completed'

    return call


async def _official(url: str, http: httpx.AsyncClient, *, streaming: bool) -> Call:
    client = await create_client(url, ClientConfig(httpx_client=http, streaming=streaming))

    async def call() -> None:
        state = 0
        async for answer in client.send_message(
            SendMessageRequest(message=new_text_message(_WORDS, role=Role.ROLE_USER))
        ):
            if answer.HasField('task'):
                state = answer.task.status.state
            elif answer.HasField('status_update'):
                state = answer.status_update.status.state
        assert state == TaskState.TASK_STATE_COMPLETED

    return call
