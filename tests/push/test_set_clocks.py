"""Processes that share a file deliver each event once and on time, whatever happens to their wall clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pydantic_ai_a2a import Push
from pydantic_ai_a2a.clock import Clock
from pydantic_ai_a2a.push.registration import Cipher
from pydantic_ai_a2a.push.sender import Sender
from pydantic_ai_a2a.store.ports import Leased, PushConfig
from pydantic_ai_a2a.store.sql.ports import Due, SqlOutbox
from pydantic_ai_a2a.store.sqlite.backend import SqliteFile, SqliteFileBackend
from pydantic_ai_a2a.types import PushTarget

from ..client import LIMIT
from ..clocks import HOUR, SetClock
from ..fixed import fixed
from ..suites.push import configs_of, lease, outbox_of
from ..suites.values import AT, OVER, OWNER, READER_LAG, message, submit
from ..webhooks import HANGS, Webhook, webhook

pytestmark = pytest.mark.anyio
LOCAL = fixed(Push, private_hosts=['127.0.0.1'], timeout=LIMIT)
SEAL = Cipher([])
Open = Callable[[Clock], SqliteFileBackend]


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Open]:
    """Opens the file once more, as another process would."""
    opened: list[SqliteFileBackend] = []

    def make(clock: Clock) -> SqliteFileBackend:
        file = SqliteFile(path=tmp_path / 'agent.db', synchronous='normal')
        opened.append(SqliteFileBackend(file, 'agent', reader_lag=READER_LAG, clock=clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@asynccontextmanager
async def sending(backend: SqliteFileBackend) -> AsyncGenerator[None]:
    sender = Sender(outbox_of(backend), backend.reader, LOCAL, SEAL, now=backend.now)
    async with asyncio.timeout(LIMIT):
        try:
            yield
        finally:
            await sender.aclose()


async def canceled(backend: SqliteFileBackend, hook: Webhook) -> None:
    """A canceled task, whose webhook has not been called."""
    await submit(backend, message(new='t'))
    body = SEAL.dump(PushTarget(id='c', url=hook.url))
    config = PushConfig(id='c', version='1.0', takes='artifacts', body=body)
    await configs_of(backend).create('t', OWNER, config, limit=1)
    await backend.queue.cancel('t', OWNER, at=AT)


class Looked(SqlOutbox):
    """Tells when a sender has asked it for deliveries."""

    def __init__(self, backend: SqliteFileBackend) -> None:
        super().__init__(backend, Due())
        self.looked = asyncio.Event()

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        leased = await super().lease(lease=lease, limit=limit, held=held)
        self.looked.set()
        return leased


async def test_a_process_whose_wall_clock_is_ahead_does_not_send_what_another_process_sends(another: Open) -> None:
    here, ahead = another(SetClock()), SetClock()
    there = another(ahead)
    ahead.wall = HOUR
    outbox = there.outbox = Looked(there)
    async with webhook(HANGS) as hook:
        async with sending(here):
            await canceled(here, hook)
            await hook.got(1)
            async with sending(there):
                await outbox.looked.wait()
        assert len(hook.received) == 1


async def test_what_a_dead_process_was_sending_is_sent_although_the_wall_clock_is_set_back(another: Open) -> None:
    clock = SetClock()
    backend = another(clock)
    async with webhook() as hook:
        await canceled(backend, hook)
        assert len(await lease(backend, lease=OVER)) == 1
        clock.wall = -HOUR
        async with sending(backend):
            await hook.got(1)


async def test_a_pause_after_a_failure_ends_although_the_wall_clock_is_set_back(another: Open) -> None:
    clock = SetClock()
    backend = another(clock)
    async with webhook() as hook:
        await canceled(backend, hook)
        [delivery] = await lease(backend)
        await outbox_of(backend).failed(delivery, at=backend.now(), pause=HOUR, error='HTTP 500')
        clock.wall = -HOUR
        assert await lease(backend) == []
        with clock.later():
            async with sending(backend):
                await hook.got(1)
