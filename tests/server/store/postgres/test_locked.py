"""Tasks and webhooks whose rows another session has locked: they wait, and nothing else does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a import Retention, Workers
from pydantic_ai_a2a.server.store.ports import Marks, Slot
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.sql_translation import lock
from pydantic_ai_a2a.server.store.sql.transaction import LockName
from pydantic_ai_a2a.types import TaskQuery

from ....agents import echo_prompts
from ....app_client import texts
from ....serving import serving, wait_until_ended
from ....suites import hook_calls
from ....suites.push import outbox_of, register
from ....suites.values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    WAIT_LIMIT,
    claim_all,
    claim_and_finish,
    claim_task,
    erase,
    finish_of,
    message,
    submit,
    sweep,
)
from ..blocking_session import blocking_session
from .conftest import Open


def lock_tasks_sql(*tasks: str) -> str:
    """A statement that locks the rows of tasks."""
    return f'SELECT 1 FROM a2a.task WHERE id IN ({", ".join(map(repr, tasks))}) FOR UPDATE'


async def test_claim_skips_locked_tasks_and_their_successors_in_context(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='lost', context='red'))
    await claim_task(backend, 'lost', 'gone', lease=EXPIRED)
    for task_id, context in (('after lost', 'red'), ('queued', 'blue'), ('after queued', 'blue'), ('free', 'green')):
        await submit(backend, message(new=task_id, context=context))
    async with blocking_session(postgres_url, lock_tasks_sql('lost', 'queued')) as held, asyncio.timeout(WAIT_LIMIT):
        assert [each.header.id for each in await claim_all(backend)] == ['free']
        for task_id in ('lost', 'after lost', 'queued', 'after queued'):
            assert await backend.queue.claim(Slot('h', LEASE), at=START, limit=1, task_id=task_id) == []
        await held.open()
    claims = await claim_all(backend)
    assert [each.header.id for each in claims] == ['lost', 'queued']
    for each in claims:
        await backend.queue.finish(each, finish_of(each))
    assert [each.header.id for each in await claim_all(backend)] == ['after lost', 'after queued']


async def test_locked_task_does_not_delay_renewal_of_leases(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    for task_id in 'abc':
        await submit(backend, message(new=task_id))
        await claim_task(backend, task_id, lease=EXPIRED)
    await backend.queue.cancel('b', None, at=START, force=True)
    async with blocking_session(postgres_url, lock_tasks_sql('a')) as held, asyncio.timeout(WAIT_LIMIT):
        marks = await backend.queue.renew('holder', ['a', 'b', 'c', 'nowhere'], lease=LEASE)
        assert marks == Marks(lost=['b', 'nowhere'], cancel=[])
        assert await backend.queue.renew('holder', ['a'], lease=LEASE) == Marks([], [])
        assert await claim_all(backend, 'other') == []
        await held.open()
    assert [each.header.id for each in await claim_all(backend, 'other')] == ['a']


async def test_subscriber_is_recorded_while_task_is_locked(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    connection = await asyncpg.connect(postgres_url)
    async with blocking_session(postgres_url, lock_tasks_sql('t')), asyncio.timeout(WAIT_LIMIT):
        reader = backend.events.subscribe('t', lambda: None)
        while not await connection.fetchval('SELECT task_id FROM a2a.reader'):
            pass
        reader.close()
    await connection.close()


@pytest.mark.slow
async def test_server_starts_while_lost_task_is_locked(open_backend: Open, postgres_url: str) -> None:
    agent = Agent(FunctionModel(echo_prompts), name='agent')
    backend = open_backend()
    await backend.queued()
    past = backend.now() - 10 * LEASE
    await submit(backend, message('lost', new='lost', owner='/', at=past))
    await claim_task(backend, 'lost', 'gone', at=past, lease=EXPIRED)
    async with (
        blocking_session(postgres_url, lock_tasks_sql('lost')) as held,
        serving(agent, backend=postgres_url, workers=Workers(running=1)) as client,
    ):
        assert texts(await client.send('one')) == ['one']
        assert texts(await client.send('two')) == ['two']
        await held.open()
        assert texts(await wait_until_ended(client, 'lost')) == ['lost']


async def test_sweep_skips_locked_tasks(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    for kind in ('free', 'locked'):
        for what in ('waits', 'ended', 'old'):
            await submit(backend, message(new=f'{kind} {what}', context=f'{kind} {what}'))
        await claim_and_finish(backend, f'{kind} waits', 'input-required', at=START)
        await claim_and_finish(backend, f'{kind} ended', at=START + 150_000)
        await claim_and_finish(backend, f'{kind} old', at=START)
    connection = await asyncpg.connect(postgres_url)
    keep = Retention(events=timedelta(seconds=10), tasks=timedelta(seconds=100), waiting=timedelta(seconds=150))

    async def swept(task: str) -> list[bool]:
        """Tell which steps of a sweep have been taken with the tasks of a kind."""
        rows = await connection.fetch('SELECT * FROM a2a.task WHERE id LIKE $1', f'{task} %')
        tasks = {row['id'].removeprefix(f'{task} '): row for row in rows}
        return [
            tasks['waits']['state'] == 'failed',
            tasks['ended']['events_swept'] == 1,
            'old' not in tasks,
        ]

    names = [f'locked {what}' for what in ('waits', 'ended', 'old')]
    async with blocking_session(postgres_url, lock_tasks_sql(*names)) as held, asyncio.timeout(WAIT_LIMIT):
        await sweep(backend, keep, at=START + 200_000)
        assert (await swept('free'), await swept('locked')) == ([True] * 3, [False] * 3)
        await held.open()
    await sweep(backend, keep, at=START + 200_000)
    assert await swept('locked') == [True] * 3
    await connection.close()


async def test_owner_totals_do_not_block_transactions(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))

    async def total() -> int:
        return (await backend.reader.list(TaskQuery(owner=OWNER))).total

    canceled = "UPDATE a2a.task SET state = 'canceled', queued = 0"
    added = (
        'INSERT INTO a2a.task'
        ' (agent, id, owner, context_id, state, status_at, queue_seq, dialect, digest, accepted_at, message)'
        f" VALUES ('agent', 'other', '{OWNER}', 'other', 'completed', {START}, 9, '1.0', '', {START}, '')"
    )
    async with blocking_session(postgres_url, f'{canceled}; {added}') as held, asyncio.timeout(WAIT_LIMIT):
        await submit(backend, message(new='second'))
        assert not await backend.housekeeping.sweep(Retention(), at=START)
        assert await total() == 2
        await held.commit()
    assert await total() == 3
    assert (await backend.reader.list(TaskQuery(owner=OWNER, state='canceled'))).total == 1


async def test_owner_is_erased_while_another_process_sweeps(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    await claim_and_finish(backend, 't')
    async with blocking_session(postgres_url, lock(LockName(('agent', 'sweep')))) as held, asyncio.timeout(WAIT_LIMIT):
        assert (await erase(backend)).tasks == 1
        assert (await backend.reader.list(TaskQuery(owner=OWNER))).total == 0
        await held.open()


TASK = "SELECT 1 FROM a2a.task WHERE id = 't' FOR UPDATE"
CONFIG = "SELECT 1 FROM a2a.push_config WHERE task_id = 't' FOR UPDATE"
ANOTHER = (
    'INSERT INTO a2a.push_config (agent, task_id, owner, id, version, takes, body)'
    " VALUES ('agent', 't', '/ada', 'another', '1.0', 0, '')"
)
DAY = 24 * 3600 * 1000
NINE_DAYS = Retention(tasks=timedelta(days=9))


async def add_swept_task_with_pending_delivery(backend: PostgresBackend) -> None:
    """A task that has ended, whose events have been swept, and whose webhook has not been told of it."""
    await submit(backend, message(new='t'))
    await register(backend, 'one')
    await claim_and_finish(backend, 't')
    await backend.housekeeping.sweep(replace(NINE_DAYS, events=timedelta(seconds=1)), at=START + DAY)


async def fetch_column(url: str, sql: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_webhook_registered_during_sweep_is_deleted_with_task(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await add_swept_task_with_pending_delivery(backend)
    async with blocking_session(postgres_url, f'{TASK}; {ANOTHER}') as registering:
        await sweep(backend, NINE_DAYS, at=START + 10 * DAY)  # leaves the locked task to a later sweep
        assert await fetch_column(postgres_url, 'SELECT id FROM a2a.task') == ['t']
        await registering.commit()
    await sweep(backend, NINE_DAYS, at=START + 10 * DAY)
    assert await fetch_column(postgres_url, 'SELECT id FROM a2a.push_config UNION ALL SELECT id FROM a2a.task') == []


async def test_sweep_waits_for_webhook_lock_before_locking_deliveries(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await add_swept_task_with_pending_delivery(backend)
    async with blocking_session(postgres_url, CONFIG) as telling:
        sweeping = asyncio.ensure_future(sweep(backend, NINE_DAYS, at=START + 10 * DAY))
        await telling.reached()
        assert await fetch_column(postgres_url, 'SELECT task_id FROM a2a.delivery FOR UPDATE NOWAIT') != []
        await telling.open()
        await sweeping
    assert (await outbox_of(backend).lease(lease=LEASE, limit=9, held={})).wait is None
    assert await fetch_column(postgres_url, 'SELECT id FROM a2a.delivery') == []


async def test_take_skips_locked_hook_calls(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    for task_id in 'ab':
        await hook_calls.wait(backend, task_id)
    locked = "SELECT 1 FROM a2a.hook_call WHERE task_id = 'a' FOR UPDATE"
    async with blocking_session(postgres_url, locked) as held, asyncio.timeout(WAIT_LIMIT):
        assert await hook_calls.take(backend) == ['b']
        await held.open()
    assert await hook_calls.take(backend) == ['a']
