"""One PostgreSQL database and several backends, as several processes have them; and a database that goes away."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Postgres, to_a2a
from pydantic_ai_a2a.errors import BackendUnusable, InvalidParamsError, StoreUnavailable
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.sql.transaction import LockTasks, Transaction

from ....postgres import PASSWORD_USER, postgres_server
from ....postgres import Postgres as Server
from ....postgres_proxy import proxied
from ....suites import READER_LAG
from ....suites.values import (
    LEASE,
    OWNER,
    WAIT_LIMIT,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    finish_of,
    ignore,
    message,
    state_of,
    submit,
)
from ..blocking_session import database
from .conftest import Open


async def test_connection_is_opened_on_first_use(open_backend: Open) -> None:
    before = {*threading.enumerate()}
    backend = open_backend()
    assert {*threading.enumerate()} - before == set()
    await submit(backend, message(new='t'))
    [thread] = {*threading.enumerate()} - before
    backend.close()
    assert not thread.is_alive()


@pytest.mark.parametrize('used', [True, False])
async def test_connection_thread_uses_uvloop_if_loaded(
    open_backend: Open, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        loops.append(asyncio.new_event_loop())
        return loops[-1]

    monkeypatch.setitem(sys.modules, 'uvloop', SimpleNamespace(new_event_loop=new_event_loop) if used else None)
    await submit(open_backend(), message(new='t'))
    assert len(loops) == used


async def test_unreferenced_backend_closes_connections(postgres: Server, postgres_url: str) -> None:
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    await submit(backend, message(new='t'))
    connected = f"SELECT COUNT(*) FROM pg_stat_activity WHERE datname = '{database(postgres_url)}'"
    assert postgres.run(connected) == ['1']
    del backend
    gc.collect()
    async with asyncio.timeout(WAIT_LIMIT):
        while await asyncio.to_thread(postgres.run, connected) != ['0']:  # its server may be about to end it
            pass


@pytest.mark.parametrize('options', [{'listen': False}, {'statement_cache_size': 0}], ids=['deaf', 'pooled'])
async def test_processes_share_queued_tasks_and_events(open_backend: Open, options: dict[str, Any]) -> None:
    here, there = open_backend(**options), open_backend(**options)
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    stop = here.listen(ready.put_nowait, ignore)
    async with asyncio.timeout(WAIT_LIMIT):
        await submit(there, message(new='t'))
        assert await ready.get() is None
        reader = here.events.subscribe('t', ignore)
        reader.start(0)
        while not (claims := await claim_all(there)):
            pass
        assert [event.n for event in await reader.next()] == [1]
        [claimed] = claims
        await there.queue.emit(claimed, [artifact_chunk(2, 'a'), artifact_chunk(3, 'b')])
        assert [event.n for event in await reader.next()] == [2, 3]
    reader.close()
    stop()


async def test_subscriber_gets_events_after_lost_listen_connection(open_backend: Open, postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy, asyncio.timeout(WAIT_LIMIT):
        here, there = open_backend(listen_dsn=proxy.url), open_backend()
        await submit(there, message(new='t'))
        claimed = await claim_task(there, 't')
        reader = here.events.subscribe('t', ignore)
        reader.start(0)
        assert [event.n for event in await reader.next()] == [1]
        for n in range(2, 6):
            await proxy.connected.get()
            proxy.cut()
            await there.queue.emit(claimed, [artifact_chunk(n, 'a')])
            assert [event.n for event in await reader.next()] == [n]
        reader.close()
        await asyncio.to_thread(here.close)


async def test_backend_without_notifications_polls_and_logs_once(
    open_backend: Open, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = open_backend(listen_dsn='postgresql://nobody@localhost:1/away'), open_backend()
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    stop = here.listen(ready.put_nowait, ignore)
    await submit(there, message(new='t'))
    async with asyncio.timeout(WAIT_LIMIT):
        for _ in range(3):
            assert await ready.get() is None
    stop()
    assert [record.getMessage()[:36] for record in caplog.records] == ['PostgreSQL sends no notifications, s']


@pytest.mark.parametrize('end', ['fast', 'immediate', 'kill'])
async def test_pending_writes_complete_after_database_restart(end: Any) -> None:
    with postgres_server() as server:
        backend = PostgresBackend(Postgres(server.url()), 'agent', reader_lag=READER_LAG)
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        reader = backend.events.subscribe('t', ignore)
        reader.start(0)
        assert [event.n for event in await reader.next()] == [1]
        server.kill() if end == 'kill' else server.stop(end)
        emitted = asyncio.ensure_future(backend.queue.emit(claimed, [artifact_chunk(2, 'a')]))
        renewed = asyncio.ensure_future(backend.queue.renew('holder', ['t'], lease=LEASE))
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(WAIT_LIMIT):
            await emitted
            assert (await renewed).lost == []
            assert [event.n for event in await reader.next()] == [2]
            await backend.queue.finish(claimed, finish_of(claimed, after=2))
        reader.close()
        assert await state_of(backend, 't') == 'completed'
        backend.close()


@pytest.mark.usefixtures('three_attempts')
async def test_unreachable_database_raises_store_unavailable(open_backend: Open) -> None:
    with postgres_server() as server:
        backend = open_backend(server.url(), acquire_timeout=WAIT_LIMIT)
        await submit(backend, message(new='t'))
        server.stop()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await submit(backend, message(new='u'))
            with pytest.raises(StoreUnavailable):
                await state_of(backend, 't')
        server.start()
        assert await state_of(backend, 't') == 'submitted'


async def test_statement_timeout_raises_store_unavailable(open_backend: Open) -> None:
    backend, other = open_backend(statement_timeout=2), open_backend()
    await submit(other, message(new='t'))
    held, tried = threading.Event(), threading.Event()

    def hold() -> Transaction[None]:
        yield LockTasks('agent', ['t'])
        held.set()
        tried.wait(WAIT_LIMIT)

    holding = asyncio.ensure_future(other.write(hold))
    await asyncio.to_thread(held.wait, WAIT_LIMIT)
    with pytest.raises(StoreUnavailable) as cancelled:
        await backend.queue.cancel('t', OWNER, at=0)
    assert cancelled.value.busy
    tried.set()
    await holding
    assert await state_of(other, 't') == 'submitted'


@pytest.mark.parametrize(
    ('url', 'why'),
    [
        ('user', 'password authentication failed'),
        ('database', 'database "missing" does not exist'),
    ],
)
async def test_database_error_does_not_reveal_password(
    open_backend: Open, postgres: Server, url: str, why: str
) -> None:
    postgres.run(f"DROP ROLE IF EXISTS {PASSWORD_USER}; CREATE ROLE {PASSWORD_USER} LOGIN PASSWORD '{PASSWORD_USER}'")
    wrong = postgres.url(user=PASSWORD_USER, password='hunter2') if url == 'user' else postgres.url('missing')
    with pytest.raises(BackendUnusable, match=why) as raised:
        await submit(open_backend(wrong), message(new='t'))
    assert 'hunter2' not in str(raised.value) + repr(Postgres(wrong))


async def test_user_without_schema_right_can_use_existing_schema(
    open_backend: Open, postgres: Server, postgres_url: str
) -> None:
    name = database(postgres_url)
    postgres.run(f"DROP ROLE IF EXISTS {PASSWORD_USER}; CREATE ROLE {PASSWORD_USER} LOGIN PASSWORD '{PASSWORD_USER}'")
    guarded = postgres.url(name, PASSWORD_USER, PASSWORD_USER)
    with pytest.raises(BackendUnusable, match='permission denied'):
        await submit(open_backend(guarded), message(new='t'))
    await submit(open_backend(), message(new='t'))
    postgres.run(
        f'GRANT USAGE ON SCHEMA a2a TO {PASSWORD_USER};'
        f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA a2a TO {PASSWORD_USER}',
        name,
    )
    backend = open_backend(guarded)
    await claim_and_finish(backend, 't')
    assert await state_of(backend, 't') == 'completed'
    postgres.run(f'DROP OWNED BY {PASSWORD_USER}', name)


async def test_context_id_with_null_character_is_refused(open_backend: Open) -> None:
    backend = open_backend()
    with pytest.raises(InvalidParamsError):
        await submit(backend, message(new='t', context='c\0'))
    await submit(backend, message(new='t', context='c'))


async def test_second_app_with_same_namespace_is_refused(open_backend: Open) -> None:
    one, two, schema = open_backend(), open_backend(namespace='other'), open_backend(schema='elsewhere')
    stops = [each.listen(ignore, ignore) for each in (one, two, schema)]
    with pytest.raises(BackendUnusable, match=r"namespace 'agent' of the PostgreSQL database .* or database\."):
        open_backend()
    for stop in stops:
        stop()


@pytest.mark.parametrize(
    ('url', 'options', 'why'),
    [
        ('mysql://ann:hunter2@host/db', {}, "this one begins with 'mysql'"),
        ('postgresql+asyncpg://ann:hunter2@host/db', {}, r"begins with 'postgresql\+asyncpg'"),
        ('postgresql://', {}, 'has the form postgresql://user'),
        ('postgresql://ann:hunter2@host/a/b', {}, 'has the form postgresql://user'),
        ('postgresql://ann:hunter2@host/db?pool_size=3', {}, "unknown option 'pool_size'"),
        ('postgresql://host/db', {'schema': 'A b'}, "schema must be lower case .*, not 'A b'"),
        ('postgresql://host/db', {'pool_size': 0}, 'pool_size must be more than 0, not 0'),
        ('postgresql://host/db', {'statement_cache_size': -1}, 'statement_cache_size must be 0 or more, not -1'),
        ('postgresql://host/db', {'listen_dsn': 'http://host'}, "this one begins with 'http'"),
    ],
)
def test_invalid_postgres_settings_are_refused(url: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        to_a2a(Agent(TestModel()), backend=Postgres(url, **options))
    assert 'hunter2' not in str(raised.value)


@pytest.mark.parametrize(
    ('url', 'place'),
    [
        ('postgresql://ann:hunter2@host:5433/db', 'host:5433/db (schema a2a)'),
        ('postgres:///db?host=/tmp&port=1&password=hunter2', '/tmp:1/db (schema a2a)'),
    ],
)
def test_database_place_in_messages_hides_credentials(url: str, place: str) -> None:
    assert Postgres(url).place == place


def test_missing_postgres_driver_raises_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ('asyncpg', 'pydantic_ai_a2a.server.store.postgres.backend'):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError):
        to_a2a(Agent(TestModel()), backend='postgresql://host/db')
