"""Several processes over one PostgreSQL database, played by several backends that write at once."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from pydantic_ai_a2a.errors import LeaseLost, UnsupportedOperationError
from pydantic_ai_a2a.server.store.ports import Backend, Claim, Slot
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.sql.peers import Kept, keep
from pydantic_ai_a2a.settings import Retention

from ....suites.values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    WAIT_LIMIT,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    conversation_texts,
    events,
    finish_of,
    history_texts,
    message,
    model_turn,
    state_of,
    submit,
)
from ..blocking_session import blocking_session
from .conftest import Open

ROUNDS = 25


async def test_tasks_of_context_are_queued_in_commit_order(open_backend: Open) -> None:
    processes = [open_backend() for _ in range(3)]
    answered: list[str] = []

    async def send(process: PostgresBackend, names: list[str]) -> None:
        for name in names:
            await submit(process, message(new=name, context='c'))
            answered.append(name)

    names = [[f'{n}.{m}' for m in range(10)] for n in range(3)]
    await asyncio.gather(*(send(process, some) for process, some in zip(processes, names, strict=True)))
    await send(processes[0], ['last'])
    seen: list[str] = []
    for _ in range(31):
        [claimed] = await claim_all(processes[0])
        seen.append(claimed.header.id)
        await processes[0].queue.finish(claimed, finish_of(claimed))
    assert [[name for name in seen if name in some] for some in names] == names
    assert (sorted(seen), seen[-1]) == (sorted(answered), 'last')


async def test_message_accepted_during_run_completion_is_run(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    for n in range(ROUNDS):
        task_id = f't{n}'
        await submit(here, message('one', new=task_id))
        claimed: Claim | None = await claim_task(here, task_id)
        sent, following = await asyncio.gather(
            submit(there, message('two', to=task_id)),
            here.queue.finish(claimed, finish_of(claimed, messages=model_turn('one', '1'))),
            return_exceptions=True,
        )
        if isinstance(sent, UnsupportedOperationError):
            assert following is None
            continue
        assert isinstance(following, Claim)
        assert await here.queue.finish(following, finish_of(following, messages=model_turn('two', '2'))) is None
        assert await conversation_texts(here, f'context of {task_id}') == ['one', '1', 'two', '2']


async def test_force_canceled_task_has_event_log_without_gaps(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    for n in range(5):
        task_id = f't{n}'
        await submit(here, message(new=task_id))
        claimed = await claim_task(here, task_id)

        async def write(claimed: Claim) -> None:
            for number in count(2):
                await here.queue.emit(claimed, [artifact_chunk(number, 'a')])

        written, canceled = await asyncio.gather(
            write(claimed), there.queue.cancel(task_id, OWNER, at=START, force=True), return_exceptions=True
        )
        assert isinstance(written, LeaseLost)
        assert not isinstance(canceled, BaseException)
        [last] = await events(here, task_id, canceled.last_event - 1)
        assert (last.n, last.state) == (canceled.last_event, 'canceled')
        assert await here.events.has(task_id, 0)


async def test_reclaimed_task_continues_event_numbers_despite_old_holder(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    for n in range(ROUNDS):
        task_id = f't{n}'
        await submit(here, message(new=task_id))
        old = await claim_task(here, task_id, 'old', lease=EXPIRED)
        _, taken = await asyncio.gather(
            here.queue.emit(old, [artifact_chunk(2, 'a')]),
            there.queue.claim(Slot('new', LEASE), at=START, limit=1, task_id=task_id),
            return_exceptions=True,
        )
        assert isinstance(taken, list)
        while not taken:  # the old holder was writing
            taken = await there.queue.claim(Slot('new', LEASE), at=START, limit=1, task_id=task_id)
        [new] = taken
        await there.queue.emit(new, [artifact_chunk(new.header.last_event + 1, 'b', append=False)])
        with pytest.raises(LeaseLost):
            await here.queue.emit(old, [artifact_chunk(9, 'late')])


async def test_context_keeps_turns_of_tasks_ending_concurrently(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    for n in range(ROUNDS):
        context = f'c{n}'
        await submit(here, message('asks', new=f'a{n}', context=context))
        await claim_and_finish(here, f'a{n}', 'input-required', messages=model_turn('asks', 'which?'))
        await submit(here, message('runs', new=f'b{n}', context=context))
        claimed = await claim_task(here, f'b{n}')
        await asyncio.gather(
            there.queue.cancel(f'a{n}', OWNER, at=START),
            here.queue.finish(claimed, finish_of(claimed, messages=model_turn('runs', 'done'))),
        )
        assert sorted(await conversation_texts(here, context)) == ['asks', 'done', 'runs', 'which?']


async def test_expiring_waiting_task_either_continues_or_fails(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    late = START + 30 * 24 * 3600 * 1000
    for n in range(ROUNDS):
        task_id = f't{n}'
        await submit(here, message('asks', new=task_id))
        await claim_and_finish(here, task_id, 'input-required')
        answered, swept = await asyncio.gather(
            submit(here, message('answer', to=task_id, at=late)),
            there.housekeeping.sweep(Retention(), at=late),
            return_exceptions=True,
        )
        assert not isinstance(swept, BaseException)
        refused = isinstance(answered, UnsupportedOperationError)
        assert await state_of(here, task_id) == ('failed' if refused else 'working')
        if not refused:
            assert await history_texts(here, task_id) == ['asks', 'answer']
            await claim_and_finish(here, task_id, at=late)


async def test_concurrently_answered_task_is_erased_or_continues(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    for n in range(ROUNDS):
        task_id = f't{n}'
        await submit(here, message('asks', new=task_id))
        await claim_and_finish(here, task_id, 'input-required')
        answered, erased = await asyncio.gather(
            submit(here, message('answer', to=task_id)),
            there.housekeeping.erase_task(task_id, OWNER, at=START),
            return_exceptions=True,
        )
        if erased is True:
            assert isinstance(answered, Exception)
            assert await here.reader.load(task_id, None) is None
        else:
            assert await history_texts(here, task_id) == ['asks', 'answer']
            await claim_and_finish(here, task_id)


async def test_leases_are_renewed_during_concurrent_writes_and_cancels(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    for n in range(20):
        await submit(here, message(new=f't{n}'))
    claims = await claim_all(here, limit=20)
    names = [each.header.id for each in claims]

    async def beat(backend: Backend) -> None:
        for _ in range(20):
            marks = await backend.queue.renew('holder', names, lease=LEASE)
            assert {*marks.lost} <= {f't{n}' for n in range(10)}

    await asyncio.gather(
        beat(here),
        *(here.queue.emit(each, [artifact_chunk(2, 'a')]) for each in claims[10:]),
        *(there.queue.cancel(f't{n}', OWNER, at=START, force=True) for n in range(10)),
        *(there.queue.claim(Slot(f'other {n}', LEASE), at=START, limit=5) for n in range(5)),
    )
    states = [await state_of(here, f't{n}') for n in range(20)]
    assert states == ['canceled'] * 10 + ['working'] * 10


async def test_concurrent_process_start_keeps_known_subscribers(open_backend: Open, postgres_url: str) -> None:
    here = open_backend()
    await submit(here, message(new='t'))
    stored = "INSERT INTO a2a.reader VALUES ('agent', 't', 'other', 1)"  # together with its task
    async with blocking_session(postgres_url, f'{stored}; COMMIT; BEGIN; SET LOCAL search_path TO a2a') as entering:
        await entering.perform(keep('agent', 'other', Kept(1, {'t': 1}, {}, {'t': 1})))
        reader = here.events.subscribe('t', lambda: None)
        await entering.reached()
        await entering.commit()
        async with asyncio.timeout(WAIT_LIMIT):
            while await entering.value('SELECT COUNT(*) FROM a2a.process') < 2:
                pass
        assert await entering.value("SELECT COUNT(*) FROM a2a.reader WHERE process = 'other'") == 1
    reader.close()
