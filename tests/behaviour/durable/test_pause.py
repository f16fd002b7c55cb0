"""An operator pauses the queue: tasks are accepted and wait, and the servers say so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from pydantic_ai import Agent

from pydantic_ai_a2a import Workers, to_a2a
from pydantic_ai_a2a.app.stores import open_store

from ...client import LIMIT, Client, lifespan, message, state_of

TEXTS = ['The queue is paused: tasks wait until the command `queue resume`.', 'The queue is no longer paused.']


@pytest.fixture(params=['sqlite', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f'sqlite:///{tmp_path}/agent.db' if request.param == 'sqlite' else request.getfixturevalue('postgres_url')


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT):
        while not await look():
            pass


async def test_a_paused_server_accepts_messages_is_ready_and_goes_on_later(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = to_a2a(Agent('test', name='joker'), backend=url, workers=Workers(lease=0.3))
    operator = open_store(url, 'joker')
    async with lifespan(app):
        client = Client(app)
        await operator.queued()

        async def worker() -> str:
            answer = await client.get('/health/ready')
            assert answer.status == 200
            return answer.json['components']['worker']

        async def paused() -> bool:
            return await worker() == 'paused'

        async def ok() -> bool:
            return await worker() == 'ok'

        assert await ok()
        await operator.housekeeping.pause(operator.now())
        sending = asyncio.create_task(client.send(message()))
        queued = await client.send(message(), returnImmediately=True)
        await until(paused)
        assert (state_of(queued), sending.done()) == ('SUBMITTED', False)
        await operator.housekeeping.pause(None)
        async with asyncio.timeout(LIMIT):
            assert state_of(await sending) == 'COMPLETED'
        await until(ok)
    operator.close()
    assert [record.message for record in caplog.records if 'paused' in record.message] == TEXTS
