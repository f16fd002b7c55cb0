"""What is left when a connection, a commit or a caller is lost, and when others hold what one wants."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Claim
from pydantic_ai_a2a.server.store.postgres import execution, pool
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.sql_translation import lock
from pydantic_ai_a2a.server.store.sql import sweep
from pydantic_ai_a2a.server.store.sql.transaction import LockName, Transaction, TryNames
from pydantic_ai_a2a.settings import Retention

from ....postgres import Postgres as Server
from ....postgres_proxy import proxied
from ....suites.values import (
    OWNER,
    START,
    WAIT_LIMIT,
    claim_all,
    claim_and_finish,
    claim_task,
    conversation_texts,
    erase,
    ignore,
    message,
    model_turn,
    state_of,
    submit,
)
from ..blocking_session import blocking_session, database
from .conftest import Open

EVENTS = 'LOCK TABLE a2a.event IN SHARE MODE'
"""Keeps others from adding events."""
LATE_SWEEP = Retention(), START + 365 * 24 * 3600 * 1000


def fail_commits(server: Server, url: str, code: str, times: int) -> None:
    """Let the next commits of changed tasks fail."""
    server.run(
        f"""
        CREATE SEQUENCE a2a.commits;
        CREATE FUNCTION a2a.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('a2a.commits') <= {times} THEN RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'; END IF;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON a2a.task DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION a2a.fail()
        """,
        database(url),
    )


# --- commits that nobody hears of, or that fail -----------------------------------------------------------------------


async def test_message_with_lost_commit_answer_is_accepted_once(open_backend: Open, postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        backend = open_backend(proxy.url, statement_cache_size=0)
        await submit(backend, message('first', new='t'))
        proxy.when(b'COMMIT\x00', 'lose the answer')
        with pytest.raises(StoreUnavailable):
            await submit(backend, message('second', new='u', message_id='m'))
        again = await submit(backend, message('second', new='v', message_id='m'))
        assert (again.header.id, again.replayed) == ('u', True)
        await asyncio.to_thread(backend.close)


async def test_claim_with_lost_commit_answer_is_released(open_backend: Open, postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        backend = open_backend(proxy.url)
        await submit(backend, message(new='t'))
        proxy.when(b'COMMIT\x00', 'lose the answer')
        with pytest.raises(StoreUnavailable):
            await claim_task(backend, 't')
        again = await wait_for_claim(open_backend())
        assert (again.attempt, again.fence) == (1, 2)
        await asyncio.to_thread(backend.close)


async def wait_for_claim(backend: PostgresBackend) -> Claim:
    """The task that is handed back soon."""
    async with asyncio.timeout(WAIT_LIMIT):
        while not (claims := await claim_all(backend, 'other')):
            pass
    return claims[0]


@pytest.mark.usefixtures('three_attempts')
async def test_lost_claim_is_released_after_long_database_outage(open_backend: Open, postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        backend = open_backend(proxy.url, acquire_timeout=WAIT_LIMIT)
        await submit(backend, message(new='t'))
        for _ in range(2):  # the claim, and what hands it back
            proxy.when(b'COMMIT\x00', 'lose the answer')
        with pytest.raises(StoreUnavailable):
            await claim_task(backend, 't')
        proxy.refuses = True
        while not proxy.connected.empty():
            proxy.connected.get_nowait()
        async with asyncio.timeout(WAIT_LIMIT):
            for _ in range(10):
                await proxy.connected.get()
        proxy.refuses = False
        again = await wait_for_claim(open_backend())
        assert (again.attempt, again.fence) == (1, 2)
        await asyncio.to_thread(backend.close)


async def test_failed_release_of_lost_claim_is_logged(
    open_backend: Open, postgres: Server, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxied(postgres_url) as proxy:
        backend = open_backend(proxy.url)
        await submit(backend, message(new='t'))
        postgres.run(
            """
            CREATE FUNCTION a2a.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'never'; END $$;
            CREATE TRIGGER fail BEFORE UPDATE ON a2a.task FOR EACH ROW WHEN (NEW.holder IS NULL)
                EXECUTE FUNCTION a2a.fail()
            """,
            database(postgres_url),
        )
        proxy.when(b'COMMIT\x00', 'lose the answer')
        with pytest.raises(StoreUnavailable):
            await claim_task(backend, 't')
        async with asyncio.timeout(WAIT_LIMIT):
            while len(caplog.records) < 2:
                await backend.reader.load('t', None)
        unavailable, record = caplog.records
        assert 'is unavailable: ' in unavailable.getMessage()
        assert (
            record.getMessage()
            == 'Tasks whose claim was abandoned could not be released; they run again once their leases expire.'
        )
        assert record.exc_info is not None
        assert str(record.exc_info[1]) == 'never'
        await asyncio.to_thread(backend.close)


async def test_serialization_failure_at_commit_is_retried(
    open_backend: Open, postgres: Server, postgres_url: str
) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    fail_commits(postgres, postgres_url, code='40001', times=3)
    claimed = await claim_task(backend, 't')
    assert (claimed.attempt, claimed.fence) == (1, 1)


async def test_repeated_commit_conflicts_raise_store_unavailable(
    open_backend: Open, postgres: Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, 'MOST_CONFLICTS', 2)
    backend = open_backend()
    await submit(backend, message(new='t'))
    fail_commits(postgres, postgres_url, code='40001', times=3)
    with pytest.raises(StoreUnavailable):
        await claim_task(backend, 't')
    assert (await claim_task(backend, 't')).fence == 1


async def test_refused_commit_is_not_retried(open_backend: Open, postgres: Server, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    fail_commits(postgres, postgres_url, code='P0001', times=1)
    with pytest.raises(asyncpg.RaiseError, match='not now'):
        await claim_task(backend, 't')
    assert (await claim_task(backend, 't')).fence == 1


async def test_deadlocked_transaction_is_retried(open_backend: Open, postgres: Server, postgres_url: str) -> None:
    postgres.run(f"ALTER DATABASE {database(postgres_url)} SET deadlock_timeout = '10ms'")
    processes, both, runs = [open_backend(), open_backend()], threading.Barrier(2), list[str]()

    def lock_two(names: str) -> Transaction[str]:
        runs.append(names)
        yield LockName((names[0],))
        if len(runs) <= 2:
            both.wait(WAIT_LIMIT)
        yield LockName((names[1],))
        return names

    writing = (each.write(lock_two, names) for each, names in zip(processes, ('ab', 'ba'), strict=True))
    assert await asyncio.gather(*writing) == ['ab', 'ba']
    assert len(runs) == 3


async def test_transactions_use_read_committed_isolation(
    open_backend: Open, postgres: Server, postgres_url: str
) -> None:
    def level() -> Transaction[str]:
        return (yield 'SHOW transaction_isolation', ())[0][0]

    postgres.run(f"ALTER DATABASE {database(postgres_url)} SET default_transaction_isolation = 'serializable'")
    assert await open_backend().write(level) == 'read committed'


# --- callers who go, and others who are in the way --------------------------------------------------------------------


async def test_claim_of_canceled_caller_is_released(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    async with blocking_session(postgres_url, EVENTS) as held:
        claiming = asyncio.ensure_future(claim_task(backend, 't'))
        await held.reached()
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await held.open()
        again = await wait_for_claim(open_backend())
    assert (again.attempt, again.fence) == (1, 2)


async def test_close_does_not_wait_for_blocked_statement(
    open_backend: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, 'STOP_TIME', 0.5)
    backend = open_backend()
    await submit(backend, message(new='t'))
    async with blocking_session(postgres_url, EVENTS) as held:
        claiming = asyncio.ensure_future(claim_task(backend, 't'))
        await held.reached()
        await asyncio.to_thread(backend.close)
        with pytest.raises(StoreUnavailable):
            await claiming
    assert (await claim_task(open_backend(), 't')).fence == 1


async def test_close_does_not_wait_for_silent_server(
    open_backend: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, 'STOP_TIME', 0.1)
    async with proxied(postgres_url) as proxy:
        backend = open_backend(proxy.url)
        await submit(backend, message(new='t'))
        proxy.when(b'X\x00\x00\x00\x04', 'say nothing more')
        async with asyncio.timeout(WAIT_LIMIT):
            await asyncio.to_thread(backend.close)


async def test_sweep_is_skipped_while_another_process_sweeps(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    await claim_and_finish(backend, 't')
    async with blocking_session(postgres_url, lock(LockName(('agent', 'sweep')))):
        assert not await backend.housekeeping.sweep(LATE_SWEEP[0], at=LATE_SWEEP[1])
    assert await backend.housekeeping.sweep(LATE_SWEEP[0], at=LATE_SWEEP[1])


async def test_context_locked_by_writer_is_not_swept(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='t', context='c'))
    await claim_and_finish(backend, 't', messages=model_turn('hi', 'hello'))
    async with blocking_session(postgres_url, lock(LockName(('agent', OWNER, 'c')))):
        await backend.housekeeping.sweep(LATE_SWEEP[0], at=LATE_SWEEP[1])
        assert await conversation_texts(backend, 'c') == ['hi', 'hello']
    await backend.housekeeping.sweep(LATE_SWEEP[0], at=LATE_SWEEP[1])
    assert await conversation_texts(backend, 'c') == []


async def test_context_with_newer_turn_is_swept_after_unlock(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    for n in range(2):
        await submit(backend, message(f'{n}', new=f't{n}', context='c', at=START + n))
        await claim_and_finish(backend, f't{n}', messages=model_turn(f'{n}', 'hello'), at=START + n)
        await backend.housekeeping.sweep(
            LATE_SWEEP[0], at=START + 2
        )  # lists the conversation by the time of its first turn
    async with blocking_session(postgres_url, lock(LockName(('agent', OWNER, 'c')))):
        await backend.housekeeping.sweep(LATE_SWEEP[0], at=LATE_SWEEP[1])
        assert await conversation_texts(backend, 'c') == ['0', 'hello', '1', 'hello']
    async with asyncio.timeout(WAIT_LIMIT):
        while await backend.housekeeping.sweep(LATE_SWEEP[0], at=LATE_SWEEP[1]):
            pass
    assert await conversation_texts(backend, 'c') == []


def stopping_before_locks(agent: str, retention: Retention, at: int, most_kept: int) -> Transaction[object]:
    """A sweep that has chosen two contexts, and waits for the gate before it locks them."""
    transaction = sweep.sweep(agent, retention, at, most_kept)
    step = next(transaction)
    try:
        while True:
            if isinstance(step, TryNames) and {len(name) for name in step.names} == {3}:
                yield LockName(('gate',))
            step = transaction.send((yield step))
    except StopIteration as stop:
        return stop.value


async def test_context_with_new_turn_during_sweep_is_kept(open_backend: Open, postgres_url: str) -> None:
    here, there = open_backend(), open_backend()
    for n in range(2):
        await submit(here, message(f'{n}', new=f't{n}', context=f'c{n}', at=START + n))
        await claim_and_finish(here, f't{n}', messages=model_turn('hi', 'hello'), at=START + n)
    await here.housekeeping.sweep(LATE_SWEEP[0], at=START + 2)  # lists both conversations
    async with blocking_session(postgres_url, lock(LockName(('gate',)))) as held:
        sweeping = asyncio.ensure_future(here.write(stopping_before_locks, 'agent', *LATE_SWEEP, 100))
        await held.reached()
        await submit(there, message('more', new='more', context='c1', at=LATE_SWEEP[1]))
        await claim_and_finish(there, 'more', messages=model_turn('more', 'said'), at=LATE_SWEEP[1])
        await held.open()
        await sweeping
    assert await conversation_texts(here, 'c0') == []
    assert await conversation_texts(here, 'c1') == ['hi', 'hello', 'more', 'said']


async def test_owner_erasure_locks_contexts_before_owner(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    for n in range(2):
        await submit(backend, message(new=f't{n}', context=f'c{n}'))
        await claim_and_finish(backend, f't{n}', messages=model_turn('hi', 'hello'))
    async with blocking_session(postgres_url, lock(LockName(('agent', OWNER, 'c1')))) as held:
        erasing = asyncio.ensure_future(erase(backend))
        await held.reached()
        assert not await held.is_taken('agent', OWNER)
        await held.open()
        await erasing
    assert await conversation_texts(backend, 'c1') == []


# --- servers that are silent, away, strange or old --------------------------------------------------------------------


async def test_silent_connection_is_replaced(
    open_backend: Open,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    exceed_client_limits: Callable[[], Awaitable[None]],
) -> None:
    monkeypatch.setattr(execution, 'LATE', 0.1)  # for the ROLLBACK, which the silent connection does not get
    async with proxied(postgres_url) as proxy:
        backend = open_backend(proxy.url, acquire_timeout=WAIT_LIMIT)
        await submit(backend, message(new='t'))
        proxy.when(b'BEGIN', 'say nothing more')
        reading = asyncio.ensure_future(state_of(backend, 't'))
        await proxy.silent.wait()
        await exceed_client_limits()
        assert await reading == 'submitted'
        await asyncio.to_thread(backend.close)


async def test_refused_write_of_listener_is_logged(
    open_backend: Open, postgres: Server, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = open_backend(), open_backend()
    await submit(there, message(new='t'))
    fail_commits(postgres, postgres_url, code='P0001', times=1)
    postgres.run('ALTER TABLE a2a.task DISABLE TRIGGER fail', database(postgres_url))
    postgres.run(
        'CREATE TRIGGER at_once BEFORE INSERT ON a2a.process FOR EACH ROW EXECUTE FUNCTION a2a.fail()',
        database(postgres_url),
    )
    reader = here.events.subscribe('t', ignore)
    reader.start(0)
    async with asyncio.timeout(WAIT_LIMIT):
        while not caplog.records:
            await here.reader.load('t', None)
        claimed = await claim_task(there, 't')
        assert [event.n for event in await reader.next()] == [claimed.header.last_event]
    reader.close()
    [record] = caplog.records
    assert (record.levelno, record.getMessage()[:36]) == (logging.ERROR, 'Changes of other processes could not')


# --- a pooler whose connections change --------------------------------------------------------------------------------


async def test_lost_prepared_statements_error_names_pooler_setting(
    open_backend: Open, postgres: Server, postgres_url: str
) -> None:
    backend = open_backend(pool_size=2)
    await submit(backend, message(new='t1'))
    postgres.run(
        """
        CREATE FUNCTION a2a.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DEALLOCATE ALL; RETURN NULL; END $$;
        CREATE TRIGGER lose AFTER INSERT ON a2a.task FOR EACH ROW EXECUTE FUNCTION a2a.lose()
        """,
        database(postgres_url),
    )
    with pytest.raises(StoreUnavailable) as lost:
        await asyncio.gather(*(submit(backend, message(new=f't{n}')) for n in range(2, 10)))
    assert 'statement_cache_size=0' in str(lost.value.__cause__)


async def test_reads_end_with_commit(open_backend: Open, postgres: Server, postgres_url: str) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    committed, rolled_back = transaction_counts(postgres, postgres_url)
    for _ in range(20):
        await backend.reader.load('t', OWNER)
    await asyncio.to_thread(backend.close)  # the server counts the transactions of a connection at its end, or later
    async with asyncio.timeout(WAIT_LIMIT):
        while (
            sum(now := await asyncio.to_thread(transaction_counts, postgres, postgres_url))
            < committed + rolled_back + 20
        ):
            pass
    assert now[1] - rolled_back < 20


def transaction_counts(server: Server, url: str) -> tuple[int, int]:
    """The numbers of committed and of rolled back transactions of a database."""
    [row] = server.run(
        "SELECT xact_commit || ' ' || xact_rollback FROM pg_stat_database WHERE datname = current_database()",
        database(url),
    )
    committed, rolled_back = row.split()
    return int(committed), int(rolled_back)
