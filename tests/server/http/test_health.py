"""Health: what it says of each component, that it starts nothing, and that it tells nobody why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat
from typing import Any, get_args

import pytest
from fasta2a.storage import InMemoryStorage
from fastapi import FastAPI
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models.test import TestModel
from starlette.applications import Starlette

from pydantic_ai_a2a import A2AApp, Workers, mount, to_a2a
from pydantic_ai_a2a.server.http import health
from pydantic_ai_a2a.server.runs.loop_host import ComponentState

from ...agents import GatedAgent
from ...app_client import LIMIT, Client, lifespan
from ...docs.blocks import ROOT, table

ALL_IDLE = {'server': 'idle', 'agent': 'idle', 'worker': 'idle', 'backend': 'idle'}
ALL_OK = {'server': 'ok', 'agent': 'ok', 'worker': 'ok', 'backend': 'ok'}


class GatedToolset(FunctionToolset[object]):
    """Is entered when the test says so, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.broken: Exception | None = None

    async def __aenter__(self) -> GatedToolset:
        self.reached.set()
        await self.opened.wait()
        if self.broken is not None:
            raise self.broken
        return self

    async def __aexit__(self, *args: object) -> None:
        pass


async def ready(client: Client, path: str = '') -> tuple[int, dict[str, str]]:
    """The status of the answer, and the components in it."""
    answer = await client.get(f'{path}/health/ready')
    assert answer.json['ready'] == (answer.status == 200)
    assert answer.headers['cache-control'] == 'no-store'
    return answer.status, answer.json['components']


@asynccontextmanager
async def running_client(app: A2AApp) -> AsyncGenerator[Client]:
    async with asyncio.timeout(LIMIT), lifespan(app):
        yield Client(app)


async def test_health_check_does_not_start_idle_app() -> None:
    door = GatedToolset()
    client = Client(to_a2a(Agent('openai:gpt-5.2', toolsets=[door], defer_model_check=True)))
    live = await client.get('/health/live')
    assert (live.status, live.json) == (200, {'live': True})
    assert await ready(client) == (200, ALL_IDLE)
    assert not door.reached.is_set()


async def test_readiness_probe_of_started_app_succeeds() -> None:
    async with running_client(to_a2a(Agent(TestModel()))) as client:
        assert await ready(client) == (200, ALL_OK)


@pytest.mark.parametrize('parent', [Starlette, FastAPI])
async def test_mounted_apps_report_their_own_health(parent: type[Starlette]) -> None:
    app = parent()
    mount(app, '/ann', to_a2a(Agent(TestModel()), name='ann'))
    app.mount('/bob', to_a2a(Agent(TestModel()), name='bob'))
    async with lifespan(app):
        client = Client(app)
        assert (await client.get('/bob/health/live')).status == 200
        assert [await ready(client, '/ann'), await ready(client, '/bob')] == [(200, ALL_OK), (200, ALL_IDLE)]
        await Client(app, path='/bob/').send()
        assert await ready(client, '/bob') == (200, ALL_OK)


@pytest.mark.parametrize('path', ['/health/live', '/health/ready'])
async def test_health_answers_head_and_refuses_post(path: str) -> None:
    client = Client(to_a2a(Agent(TestModel())))
    head = await client.get(path, method='HEAD')
    assert (head.status, head.body) == (200, b'')
    assert (await client.get(path, method='POST')).status == 405


async def test_health_needs_no_credentials() -> None:
    async with running_client(to_a2a(Agent(TestModel()), auth=lambda request: None)) as client:
        assert await ready(client) == (200, ALL_OK)


async def test_app_is_not_ready_while_its_agent_is_starting() -> None:
    door = GatedToolset()
    app = to_a2a(Agent(TestModel(call_tools=[]), toolsets=[door]))
    client = Client(app)
    sending = asyncio.ensure_future(client.send())
    await door.reached.wait()
    assert await ready(client) == (503, {**ALL_OK, 'agent': 'starting', 'worker': 'starting'})
    door.opened.set()
    async with asyncio.timeout(LIMIT):
        await sending
    assert await ready(client) == (200, ALL_OK)
    await app.hosting.stop()


async def test_failed_agent_becomes_ready_after_successful_request() -> None:
    door = GatedToolset()
    door.opened.set()
    door.broken = RuntimeError('the password is 1234')
    app = to_a2a(Agent(TestModel(call_tools=[]), toolsets=[door]))
    app.hosting.pauses = partial(repeat, 3600.0)
    async with running_client(app) as client:
        assert await ready(client) == (503, {**ALL_OK, 'agent': 'failed', 'worker': 'stopped'})
        assert (await client.get('/health/live')).status == 200
        door.broken = None
        await client.send()
        assert await ready(client) == (200, ALL_OK)


async def test_app_with_lost_agent_context_is_ready_but_degraded() -> None:
    class Dying(FunctionToolset[object]):
        held: asyncio.Task[Any] | None = None

        async def __aenter__(self) -> Dying:
            self.held = self.held or asyncio.current_task()
            return self

        async def __aexit__(self, *args: object) -> None:
            pass

    toolset = Dying()
    async with running_client(to_a2a(Agent(TestModel(call_tools=[]), toolsets=[toolset]))) as client:
        assert toolset.held is not None
        toolset.held.cancel()
        await asyncio.wait([toolset.held])
        assert await ready(client) == (200, {**ALL_OK, 'agent': 'degraded'})


async def test_draining_app_is_not_ready() -> None:
    gates = GatedAgent()
    app = to_a2a(gates.agent)
    async with running_client(app) as client:
        await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        app.hosting.drain(asyncio.get_running_loop())
        assert await ready(client) == (503, {**ALL_OK, 'server': 'draining'})
        gates.open('hi')


async def test_app_without_own_worker_is_ready() -> None:
    door = GatedToolset()
    app = to_a2a(Agent(TestModel(), toolsets=[door]))
    app.hosting.runs_tasks = False
    assert await ready(Client(app)) == (200, {**ALL_IDLE, 'agent': 'off', 'worker': 'off'})
    async with running_client(app) as client:
        assert await ready(client) == (200, {**ALL_OK, 'agent': 'off', 'worker': 'off'})
    assert not door.reached.is_set()


class Storage(InMemoryStorage[Any]):
    """A storage of a user's own whose database has gone, or does not answer."""

    gone = False

    async def load_task(self, task_id: str, history_length: int | None = None) -> Any:
        if self.gone:
            raise OSError('no route to db.internal')
        await asyncio.Event().wait()


@pytest.mark.parametrize('gone', [True, False], ids=['fails', 'does not answer'])
async def test_app_is_not_ready_if_backend_is_unreadable(
    gone: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, 'PATIENCE', LIMIT if gone else 0.01)
    storage = Storage()
    storage.gone = gone
    async with running_client(to_a2a(Agent(TestModel()), storage=storage)) as client:
        assert await ready(client) == (503, {**ALL_OK, 'backend': 'failed'})
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert 'The backend cannot be read' in record.message
    assert ('db.internal' in caplog.text) == gone


def test_negative_drain_delay_is_refused() -> None:
    with pytest.raises(ValueError, match=r'Workers\.drain_delay must be 0 or more, not -1\.0\.'):
        Workers(drain_delay=-1)


def test_observe_page_documents_every_health_state() -> None:
    rows = [(names, word) for names, word, _ in table(ROOT / 'docs' / 'observe.md', 'Component')]
    assert {word for _, word in rows} == set(get_args(ComponentState))
    assert {name for names, _ in rows for name in names.split(', ')} == {'any', *ALL_OK}
