"""Each function of the database does the same as the generator that it stands for: results and all rows are equal.

Each schedule runs in two schemas of one database: with calls of the functions, and with generators alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.errors import StoreUnavailable, UnsupportedOperationError
from pydantic_ai_a2a.server.store.ports import (
    Accepted,
    Charge,
    Checkpoint,
    Claim,
    Finish,
    PushConfig,
    Slot,
    Status,
    Submission,
)
from pydantic_ai_a2a.server.store.postgres import sql_translation
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.execution import perform
from pydantic_ai_a2a.server.store.postgres.sql_translation import begin, lock
from pydantic_ai_a2a.server.store.sql import canceling, claims, filing, finishing, task_queue
from pydantic_ai_a2a.server.store.sql import submitting as accept
from pydantic_ai_a2a.server.store.sql.transaction import ContextKey, LockName, Transaction
from pydantic_ai_a2a.types import TaskEvent

from ....postgres import PASSWORD_USER
from ....postgres import Postgres as Server
from ....postgres_proxy import proxied
from ....suites import READER_LAG
from ....suites.credentials import stored_credentials, with_sealed
from ....suites.values import (
    EXPIRED,
    LEASE,
    OWNER,
    QUEUE_LIMIT,
    START,
    WAIT_LIMIT,
    WINDOW,
    artifact_chunk,
    claim_all,
    claim_task,
    finish_of,
    message,
    model_turn,
    status_event,
    submit,
)
from ..blocking_session import BlockingSession, blocking_session, database

SLOT = Slot('holder', LEASE)
LONG = 'an id that nobody guesses'
FIRST, SECOND = model_turn('one', '1'), model_turn('two', '2')
"""Turns of a conversation: all schemas get the same messages with the same times."""
ARTIFACTS = [('a', b'{"artifactId":"a"}'), ('b', b'{"artifactId":"b"}')]
USED = RunUsage(requests=1, input_tokens=2)
WEBHOOK = PushConfig(id='p', version='1.0', takes='statuses', body=b'{}')
CHECKPOINT = Checkpoint(run='r', messages=FIRST, usage=USED)
CONTEXT = 'agent', OWNER, 'c'


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no schema count its queue again, which a process does after a second or more, nor end a slow transaction."""
    monkeypatch.setattr(task_queue, 'time', SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(sql_translation, '_IDLE_LIMIT', 0)


class ScheduleRun:
    """A backend over one schema, and the results of a schedule."""

    def __init__(self, url: str, *, calls: bool) -> None:
        # Without prepared statements there are no calls.
        cache = 200 if calls else 0
        schema = 'called' if calls else 'stepped'
        self.settings = Postgres(url, schema=schema, statement_cache_size=cache, acquire_timeout=WAIT_LIMIT)
        self.backend = PostgresBackend(self.settings, 'agent', reader_lag=READER_LAG)
        self.results: list[Any] = []

    async def note(self, action: Awaitable[Any]) -> Any:
        """Note the result or the error of an action, and return the result."""
        try:
            result = await action
        except Exception as error:
            result = None
            self.results.append((type(error), str(error)))
        else:
            self.results.append(result)
        return result

    async def start(self, submission: Submission, *, queue_limit: int = QUEUE_LIMIT) -> Accepted | None:
        """Submit a message together with a free slot."""
        return await self.note(submit(self.backend, submission, queue_limit=queue_limit, slot=SLOT))

    async def claimed(self, submission: Submission) -> Claim:
        """Start a task, which is claimed at once."""
        accepted = await self.start(submission)
        assert accepted is not None
        assert accepted.claim is not None
        return accepted.claim

    async def started(self, name: str = 't', context: str = 'c') -> Claim:
        """Start a plain task, which is claimed at once."""
        return await self.claimed(message(new=name, context=context))

    async def emit(self, claimed: Claim, *events: TaskEvent) -> None:
        """Store events of a run."""
        await self.note(self.backend.queue.emit(claimed, events))

    async def save(
        self, claimed: Claim, messages: Sequence[ModelMessage], *events: TaskEvent, first: int = 0, taken: int = 0
    ) -> None:
        """Store events and a checkpoint of a run."""
        checkpoint = Checkpoint(run='r', messages=messages, usage=USED, first=first, taken=taken)
        await self.note(self.backend.queue.emit(claimed, events, checkpoint=checkpoint))

    async def file(self) -> None:
        """File the tasks that have stopped."""
        await self.note(self.backend.write(filing.file, 'agent'))

    async def execute(self, statement: str) -> None:
        """Execute a statement in another session. The schema replaces the field of the statement."""
        connection = await asyncpg.connect(self.settings.url)
        await connection.execute(statement.format(self.settings.schema))
        await connection.close()

    async def end(self, claimed: Claim, end: Finish) -> Claim | None:
        """End a run."""
        return await self.note(self.backend.queue.finish(claimed, end))

    @asynccontextmanager
    async def meeting(
        self, transaction: Transaction[Any], context: ContextKey | None = None
    ) -> AsyncGenerator[BlockingSession]:
        """Another session in the middle of a transaction, which has all locks and has done all writes."""
        connection = await asyncpg.connect(self.settings.url)
        try:
            await connection.execute(begin(self.settings, context=context))
            await perform(connection, transaction)
            yield BlockingSession(connection)
        finally:
            await connection.close()

    async def after(self, other: BlockingSession, action: Awaitable[Any]) -> Any:
        """Do an action that waits for the other session, whose transaction is then committed."""
        waiting = asyncio.ensure_future(self.note(action))
        await other.reached()
        await other.commit()
        async with asyncio.timeout(WAIT_LIMIT):
            return await waiting

    async def name_deliveries(self) -> None:
        """Replace the ids of deliveries, which are random."""
        await self.execute('UPDATE {}.delivery SET id = seq')

    async def rows(self) -> dict[str, list[str]]:
        """Return all rows of all tables, without times and places in the queue."""
        schema = self.settings.schema
        connection = await asyncpg.connect(self.settings.url)
        tables = await connection.fetch(
            'SELECT table_name FROM information_schema.tables WHERE table_schema = $1', schema
        )
        rows: dict[str, list[str]] = {}
        for (table,) in tables:
            rest = "to_jsonb(t) - '{lease_until,queue_seq,counted_at}'::text[]"
            query = f'SELECT ({rest})::text FROM {schema}.{table} t'
            rows[table] = sorted(row[0] for row in await connection.fetch(query))
        await connection.close()
        return rows


Schedule = Callable[[ScheduleRun], Awaitable[Any]]


def done(claimed: Claim, **options: Any) -> Finish:
    """Return the end of a run that says something."""
    return finish_of(claimed, messages=FIRST, usage=USED, artifacts=ARTIFACTS, **options)


# --- schedules of one session -----------------------------------------------------------------------------------------


async def a_task_of_all_fields(run: ScheduleRun) -> None:
    submission = replace(message(new='t', context='c'), request=b'{}', traceparent='00-1-2-01', dialect='0.3')
    claimed = await run.claimed(replace(submission, logged=True))
    end = done(claimed, after=2, metadata=b'{}', history=[('m', b'{}')], status_message=b'{"messageId":"s"}')
    await run.end(claimed, replace(end, events=[artifact_chunk(2, 'a')]))


async def a_conversation(run: ScheduleRun) -> None:
    await run.end(*both(await run.started('t')))
    await run.end(*both(await run.started('u')))


def both(claimed: Claim) -> tuple[Claim, Finish]:
    return claimed, done(claimed)


async def a_repeated_message(run: ScheduleRun) -> None:
    for name, text in (('t', 'hello'), ('u', 'hello'), ('v', 'other')):
        await run.start(message(text, new=name, message_id='m', context='c'))
    await submit(run.backend, message(to='t', message_id='n'))
    await run.start(message(new='w', message_id='n'))


async def a_repeated_anonymous_message(run: ScheduleRun) -> None:
    first = message(new='t', context='c', owner='/', message_id=LONG)
    for name, at in (('t', START), ('u', START), ('v', START + WINDOW + 1)):
        await run.start(replace(first, task_id=name, at=at))
    await run.start(message(new='w', owner='/', message_id='short'))


async def a_busy_context(run: ScheduleRun) -> None:
    for name in ('t', 'u'):
        await run.start(message(new=name, context='c'))


async def a_full_queue(run: ScheduleRun) -> None:
    await a_busy_context(run)
    await run.start(message(new='v'), queue_limit=1)
    await run.start(message(new='w'), queue_limit=2)


async def a_queued_task_of_another_owner(run: ScheduleRun) -> None:
    await submit(run.backend, message(new='t', owner='/bob'))
    await run.start(message(new='u'))


async def no_slot(run: ScheduleRun) -> None:
    await run.note(submit(run.backend, message(new='t')))


async def queued_tasks_of_rounds_and_contexts(run: ScheduleRun) -> None:
    await run.start(message(new='runs', context='busy'))
    for n in range(3):
        await run.note(submit(run.backend, message(new=f'busy {n}', context='busy'), slot=SLOT if n else None))
        for owner in ('/ada', '/bob')[: 1 + n % 2]:
            await run.note(submit(run.backend, message(new=f'{owner} {n}', owner=owner)))
    await run.note(claim_all(run.backend, limit=2))
    await run.note(submit(run.backend, message(new='late', owner='/eve')))
    run.results += [task.header.id for task in await claim_all(run.backend)]


async def a_repeated_queued_message(run: ScheduleRun) -> None:
    for name, text in (('t', 'hello'), ('t', 'hello'), ('u', 'hello'), ('v', 'other')):
        await run.note(submit(run.backend, message(text, new=name, message_id='m', context='c')))
    await submit(run.backend, message('more', to='t', message_id='n'))
    await run.note(submit(run.backend, message('more', new='w', message_id='n')))


async def a_message_during_erasure_of_its_context(run: ScheduleRun) -> None:
    await run.backend.housekeeping.set_erasing(OWNER, 'c', until=START + 1)
    for name, context in (('t', 'c'), ('u', 'd')):
        await run.note(submit(run.backend, message(new=name, context=context)))


async def queued_tasks_with_credentials(run: ScheduleRun) -> None:
    for name in ('t', 'u'):
        await run.note(submit(run.backend, with_sealed(message(new=name, context='c', message_id='m'))))
    await run.note(stored_credentials(run.backend, 'c'))


async def unusual_submissions(run: ScheduleRun) -> None:
    await run.start(replace(message(new='t'), refusal=UnsupportedOperationError('No.')))
    for name in ('u', 'v'):
        await run.start(replace(message(new=name), task_limit=1))
    await run.start(replace(message(new='w'), push=WEBHOOK, push_limit=1))
    await run.start(message('later', to='u'))
    await run.name_deliveries()


async def a_message_in_mid_run(run: ScheduleRun) -> None:
    claimed = await run.started()
    await submit(run.backend, message('more', to='t'))
    following = await run.end(claimed, done(claimed))
    assert following is not None
    await run.end(following, finish_of(following, messages=SECOND, artifacts=ARTIFACTS))


async def a_message_taken_into_the_run(run: ScheduleRun) -> None:
    claimed = await run.started()
    await submit(run.backend, message('more', to='t'))
    await run.end(claimed, done(claimed, taken=2))


async def a_last_run(run: ScheduleRun) -> None:
    claimed = await run.started()
    await submit(run.backend, message('more', to='t'))
    await run.end(claimed, done(claimed, last=True))


async def a_task_behind(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.start(message(new='u', context='c'))
    await run.end(claimed, done(claimed))


async def a_request_to_cancel(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.note(run.backend.queue.cancel('t', OWNER, at=START))
    await run.end(claimed, done(claimed))


async def a_lost_lease(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.backend.queue.renew('holder', ['t'], lease=EXPIRED)
    taken = await claim_task(run.backend, 't', 'other')
    await run.end(claimed, done(claimed))
    await run.end(taken, done(taken))


async def a_repeated_end(run: ScheduleRun) -> None:
    claimed = await run.started()
    for _ in range(2):
        await run.end(claimed, done(claimed))


async def unusual_ends(run: ScheduleRun) -> None:
    for state in ('failed', 'input-required', 'canceled'):
        claimed = await run.started(state, state)
        await run.end(claimed, finish_of(claimed, state, messages=FIRST))
    claimed = await run.started('streamed', 'd')
    await run.end(claimed, finish_of(claimed, messages=FIRST))
    claimed = await run.started('paid', 'e')
    await run.end(claimed, done(claimed, charges=[Charge('/ada', 1000, START + 1000, 1, 2, 3)]))


async def an_end_after_a_checkpoint(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.backend.queue.emit(claimed, [artifact_chunk(2, 'a')], None, CHECKPOINT)
    await run.end(claimed, done(claimed, after=2))


async def checkpoints_of_a_run(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.save(claimed, FIRST)
    await run.save(claimed, SECOND, first=2, taken=1)
    await run.save(claimed, FIRST[:1], artifact_chunk(2, 'a'), status_event(3, 'working'), first=1)
    await run.save(claimed, [], first=1)
    await run.end(claimed, done(claimed, after=3))


async def a_repeated_checkpoint(run: ScheduleRun) -> None:
    claimed = await run.started()
    for events in ((), (artifact_chunk(2, 'a'), artifact_chunk(3, 'b'))):
        for _ in range(2):
            await run.save(claimed, FIRST, *events)


async def a_checkpoint_with_a_status(run: ScheduleRun) -> None:
    claimed = await run.started()
    status = Status('working', START, b'{"messageId":"s"}')
    await run.note(run.backend.queue.emit(claimed, [], status, CHECKPOINT))


async def a_checkpoint_of_a_lost_lease(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.save(claimed, FIRST)
    await run.backend.queue.renew('holder', ['t'], lease=EXPIRED)
    await claim_task(run.backend, 't', 'other')
    await run.save(claimed, SECOND, first=2)


async def a_checkpoint_after_a_webhook_in_mid_run(run: ScheduleRun) -> None:
    claimed = await run.started()
    assert run.backend.push_configs is not None
    await run.backend.push_configs.create('t', OWNER, WEBHOOK, limit=1)
    await run.save(claimed, FIRST, artifact_chunk(2, 'a'))
    await run.save(replace(claimed, push=True), SECOND, status_event(3, 'working'), first=2)
    await run.name_deliveries()


async def filed_tasks(run: ScheduleRun) -> None:
    await run.file()
    for name, context in (('t', 'c'), ('u', 'c'), ('v', 'd')):
        await run.end(*both(await run.started(name, context)))
        await run.file()
    for state in ('input-required', 'failed'):
        claimed = await run.started(state, state)
        await run.end(claimed, finish_of(claimed, state, messages=FIRST))
    await run.started('y', 'f')
    await run.file()


async def tasks_filed_in_two_batches(run: ScheduleRun) -> None:
    for name in ('t', 'u', 'v'):
        await run.end(*both(await run.started(name, name)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filing, 'BATCH', 2)
        for _ in range(3):
            await run.file()
    assert run.results[-3:] == [1, 0, 0]


async def a_task_in_an_unknown_state_is_not_filed(run: ScheduleRun) -> None:
    for name in ('t', 'u'):
        await run.end(*both(await run.started(name, name)))
    await run.execute("UPDATE {}.task SET state = 'dreaming' WHERE id = 't'")
    await run.file()
    filed = {row['id']: row['filed'] for row in map(json.loads, (await run.rows())['task'])}
    assert filed == {'t': 0, 'u': 1}


async def an_end_after_a_status_with_a_message(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.backend.queue.emit(claimed, [artifact_chunk(2, 'a')], Status('working', START, b'{"messageId":"s"}'))
    await run.end(claimed, done(claimed, after=2))


async def a_webhook_in_mid_run(run: ScheduleRun) -> None:
    claimed = await run.started()
    assert run.backend.push_configs is not None
    await run.backend.push_configs.create('t', OWNER, WEBHOOK, limit=1)
    await run.end(claimed, done(claimed))
    await run.name_deliveries()


async def events_of_a_run(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.emit(claimed, artifact_chunk(2, 'a'))
    await run.emit(claimed, *(artifact_chunk(n, 'b') for n in range(3, 303)), status_event(303, 'working'))
    await run.end(claimed, done(claimed, after=303))


async def repeated_events(run: ScheduleRun) -> None:
    claimed = await run.started()
    for _ in range(2):
        await run.emit(claimed, artifact_chunk(2, 'a'), artifact_chunk(3, 'b'))


async def no_events(run: ScheduleRun) -> None:
    await run.emit(await run.started())


async def events_of_a_lost_lease(run: ScheduleRun) -> None:
    claimed = await run.started()
    await run.backend.queue.renew('holder', ['t'], lease=EXPIRED)
    await claim_task(run.backend, 't', 'other')
    await run.emit(claimed, artifact_chunk(2, 'a'))


async def events_after_a_webhook_in_mid_run(run: ScheduleRun) -> None:
    claimed = await run.started()
    assert run.backend.push_configs is not None
    await run.backend.push_configs.create('t', OWNER, WEBHOOK, limit=1)
    await run.emit(claimed, artifact_chunk(2, 'a'))
    await run.emit(replace(claimed, push=True), status_event(3, 'working'))
    await run.name_deliveries()


def taking(claimed: Claim) -> Finish:
    """Return an end that takes the next queued task."""
    return done(claimed, slot=SLOT)


async def queue(run: ScheduleRun, *names: str, context: str | None = None) -> None:
    """Queue tasks without readers."""
    for name in names:
        await run.note(submit(run.backend, replace(message(new=name, context=context), logged=False)))


async def ends_claiming_the_next_task(run: ScheduleRun) -> None:
    claimed = await run.started()
    await queue(run, 'u', 'v')
    while (following := await run.end(claimed, taking(claimed))) is not None:
        claimed = following
    assert claimed.header.id == 'v'


async def an_end_leaving_an_answered_task(run: ScheduleRun) -> None:
    asks = await run.started('asks', 'd')
    await run.end(asks, finish_of(asks, 'input-required', messages=FIRST))
    await run.execute('UPDATE {}.task SET logged_after = NULL')
    claimed = await run.started()
    await run.note(submit(run.backend, replace(message('answer', to='asks'), logged=False)))
    assert await run.end(claimed, taking(claimed)) is None


async def ends_claiming_no_task(run: ScheduleRun) -> None:
    claims = [await run.started(name, name) for name in ('t', 'u', 'v', 'w')]
    await run.note(submit(run.backend, message(new='logged')))
    await run.end(claims[0], taking(claims[0]))
    await run.execute('UPDATE {}.queue SET paused_at = 1')
    await run.end(claims[1], taking(claims[1]))
    await run.execute('UPDATE {}.queue SET paused_at = NULL')
    await run.backend.queue.release(claims[3])
    await queue(run, 'x')
    await run.end(claims[2], taking(claims[2]))
    assert run.results[-1] is None


async def an_end_claiming_the_next_task_of_its_context(run: ScheduleRun) -> None:
    claimed = await run.started()
    await queue(run, 'u', context='c')
    assert await run.end(claimed, taking(claimed)) is not None


async def a_repeated_end_with_a_claim(run: ScheduleRun) -> None:
    claimed = await run.started()
    await queue(run, 'u')
    for _ in range(2):
        await run.end(claimed, taking(claimed))
    run.results += await claim_all(run.backend, 'other')


async def a_conversation_begun_elsewhere(run: ScheduleRun) -> None:
    claimed = await run.started()
    record = ConversationRecord(
        conversation_id='c', scope=OWNER, head_id=None, revision='r', updated_at=datetime.fromtimestamp(0, UTC)
    )
    await run.backend.conversations(OWNER).write_record(record, expected_revision=None)
    await run.end(claimed, done(claimed))


async def a_conversation_deleted_in_mid_run(run: ScheduleRun) -> None:
    await run.end(*both(await run.started('t')))
    claimed = await run.started('u')
    await run.backend.conversations(OWNER).delete_record('c', expected_revision='t.1')
    await run.end(claimed, done(claimed))


async def tasks_with_credentials(run: ScheduleRun) -> None:
    claims = [await run.claimed(with_sealed(message(new=name, context=name))) for name in ('t', 'u', 'v')]
    await run.start(with_sealed(message('more', to='v'), 'd'))
    await run.note(stored_credentials(run.backend, 'c'))
    for claimed, state in zip(claims, ('completed', 'input-required', 'completed'), strict=True):
        await run.end(claimed, finish_of(claimed, state, messages=FIRST, artifacts=ARTIFACTS))


async def two_messages_with_the_same_credential(run: ScheduleRun) -> None:
    for name in ('t', 'u'):
        await run.start(with_sealed(message(new=name, context='c', message_id='m')))
    await run.note(stored_credentials(run.backend, 'c'))


async def a_busy_context_with_credentials(run: ScheduleRun) -> None:
    for name in ('t', 'u'):
        await run.start(with_sealed(message(new=name, context='c')))


# --- schedules of two sessions that meet at a lock --------------------------------------------------------------------


def submitting(submission: Submission, slot: Slot | None = None) -> Transaction[Any]:
    return accept.submit('agent', submission, queue_limit=QUEUE_LIMIT, idempotency_window=WINDOW, slot=slot)


async def a_start_during_another_submission(run: ScheduleRun) -> None:
    await run.backend.queued()
    other = message(new='t', context='c')
    async with run.meeting(submitting(other), CONTEXT) as gate:
        await run.after(gate, submit(run.backend, message(new='u', context='c'), slot=SLOT))


async def a_start_during_the_end_of_the_task_before(run: ScheduleRun) -> None:
    claimed = await run.started()
    async with run.meeting(finishing.finish('agent', claimed, done(claimed)), CONTEXT) as gate:
        accepted = await run.after(gate, submit(run.backend, message(new='u', context='c'), slot=SLOT))
    await run.end(accepted.claim, finish_of(accepted.claim, messages=SECOND, artifacts=ARTIFACTS))


async def two_concurrent_tasks_of_an_owner(run: ScheduleRun) -> None:
    await run.backend.queued()
    async with run.meeting(submitting(message(new='t'))) as gate:
        await run.after(gate, submit(run.backend, message(new='u')))


async def concurrent_starts_with_the_same_message(run: ScheduleRun) -> None:
    await run.backend.queued()
    other = message(new='t', context='c', message_id='m')
    async with run.meeting(submitting(other, slot=SLOT), CONTEXT) as gate:
        again = replace(other, task_id='u', context_id='d')
        await run.after(gate, submit(run.backend, again, slot=SLOT))


async def an_end_with_an_unread_message(run: ScheduleRun) -> None:
    claimed = await run.started()
    async with run.meeting(submitting(message('more', to='t'))) as gate:
        assert await run.after(gate, run.backend.queue.finish(claimed, done(claimed))) is not None


async def an_end_with_an_unread_credential(run: ScheduleRun) -> None:
    claimed = await run.claimed(with_sealed(message(new='t', context='c')))
    further = with_sealed(message('more', to='t'), 'd')
    async with run.meeting(submitting(further)) as gate:
        assert await run.after(gate, run.backend.queue.finish(claimed, done(claimed))) is not None
    assert await stored_credentials(run.backend, 'c', 'd') == [b'c', b'd']


async def filing_during_a_change_of_the_conversation(run: ScheduleRun) -> None:
    await run.end(*both(await run.started('t')))
    claimed = await run.started('u')
    end = finish_of(claimed, messages=SECOND, artifacts=ARTIFACTS)
    async with run.meeting(finishing.finish('agent', claimed, end), CONTEXT) as gate:
        await run.file()
        await gate.commit()
    await run.file()


async def concurrent_filing(run: ScheduleRun) -> None:
    await run.end(*both(await run.started()))
    async with run.meeting(filing.file('agent')) as gate:
        await run.end(*both(await run.started('u', 'd')))
        await run.file()
        await gate.commit()


async def an_end_skipping_a_task_claimed_elsewhere(run: ScheduleRun) -> None:
    claimed = await run.started()
    await queue(run, 'u', 'v')
    async with run.meeting(claims.claim('agent', Slot('other', LEASE), at=START, limit=1)) as gate:
        following = await run.end(claimed, taking(claimed))
        await gate.commit()
    assert following is not None
    assert following.header.id == 'v'


async def an_end_during_another_submission(run: ScheduleRun) -> None:
    claimed = await run.started()
    other = message(new='u', context='c')
    async with run.meeting(submitting(other), CONTEXT) as gate:
        await run.after(gate, run.backend.queue.finish(claimed, done(claimed)))


SCHEDULES: Sequence[Schedule] = (
    a_task_of_all_fields,
    a_conversation,
    a_repeated_message,
    a_repeated_anonymous_message,
    a_busy_context,
    a_full_queue,
    a_queued_task_of_another_owner,
    no_slot,
    queued_tasks_of_rounds_and_contexts,
    a_repeated_queued_message,
    a_message_during_erasure_of_its_context,
    queued_tasks_with_credentials,
    unusual_submissions,
    a_message_in_mid_run,
    a_message_taken_into_the_run,
    a_last_run,
    a_task_behind,
    a_request_to_cancel,
    a_lost_lease,
    a_repeated_end,
    unusual_ends,
    ends_claiming_the_next_task,
    an_end_leaving_an_answered_task,
    ends_claiming_no_task,
    an_end_claiming_the_next_task_of_its_context,
    a_repeated_end_with_a_claim,
    an_end_skipping_a_task_claimed_elsewhere,
    an_end_after_a_checkpoint,
    an_end_after_a_status_with_a_message,
    a_webhook_in_mid_run,
    a_conversation_begun_elsewhere,
    a_conversation_deleted_in_mid_run,
    tasks_with_credentials,
    two_messages_with_the_same_credential,
    a_busy_context_with_credentials,
    an_end_with_an_unread_credential,
    a_start_during_another_submission,
    a_start_during_the_end_of_the_task_before,
    two_concurrent_tasks_of_an_owner,
    concurrent_starts_with_the_same_message,
    an_end_with_an_unread_message,
    an_end_during_another_submission,
    events_of_a_run,
    repeated_events,
    no_events,
    events_of_a_lost_lease,
    events_after_a_webhook_in_mid_run,
    checkpoints_of_a_run,
    a_repeated_checkpoint,
    a_checkpoint_with_a_status,
    a_checkpoint_of_a_lost_lease,
    a_checkpoint_after_a_webhook_in_mid_run,
    filed_tasks,
    tasks_filed_in_two_batches,
    a_task_in_an_unknown_state_is_not_filed,
    filing_during_a_change_of_the_conversation,
    concurrent_filing,
)


async def check(schedule: Schedule, postgres: Server) -> None:
    """Check that calls and generators have the same results and rows."""
    with postgres.database('called', 'stepped') as url:
        runs = [ScheduleRun(url, calls=calls) for calls in (True, False)]
        for run in runs:
            await schedule(run)
        called, stepped = runs
        assert called.results == stepped.results
        assert await called.rows() == await stepped.rows()
        for run in runs:
            await asyncio.to_thread(run.backend.close)


@pytest.mark.parametrize('schedule', SCHEDULES, ids=lambda schedule: schedule.__name__)
async def test_function_and_generator_have_same_results_and_rows(schedule: Schedule, postgres: Server) -> None:
    await check(schedule, postgres)


WRITES: dict[str, Callable[[ScheduleRun, Claim], Awaitable[Any]]] = {
    'an end': lambda run, claimed: run.backend.queue.finish(claimed, done(claimed)),
    'events': lambda run, claimed: run.backend.queue.emit(claimed, [artifact_chunk(2, 'a')]),
    'a checkpoint': lambda run, claimed: run.backend.queue.emit(claimed, [], checkpoint=CHECKPOINT),
}
OTHERS: dict[str, Callable[[], Transaction[Any]]] = {
    'a request to cancel': lambda: canceling.cancel('agent', 't', OWNER, at=START, force=False),
    'a forced cancel': lambda: canceling.cancel('agent', 't', OWNER, at=START, force=True),
    'the claim of another': lambda: claims.claim('agent', Slot('other', LEASE), at=START, limit=1, task_id='t'),
}


@pytest.mark.parametrize('other', OTHERS)
@pytest.mark.parametrize('write', WRITES)
async def test_function_and_generator_agree_after_concurrent_write(write: str, other: str, postgres: Server) -> None:
    async def schedule(run: ScheduleRun) -> None:
        claimed = await run.started()
        if other == 'the claim of another':
            await run.backend.queue.renew('holder', ['t'], lease=EXPIRED)
        async with run.meeting(OTHERS[other]()) as gate:  # has the lock of the row alone
            await run.after(gate, WRITES[write](run, claimed))

    await check(schedule, postgres)


@contextmanager
def counted() -> Generator[list[str]]:
    """Note the statements of all connections."""
    queries: list[str] = []

    def noted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(connection: object, query: str, *args: Any, **options: Any) -> Any:
            queries.append(query)
            return method(connection, query, *args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ('execute', 'fetch', 'fetchrow', 'fetchval', 'executemany'):
            patch.setattr(asyncpg.Connection, name, noted(getattr(asyncpg.Connection, name)))
        yield queries


async def test_task_start_and_end_take_single_round_trip_each(postgres_url: str) -> None:
    run = ScheduleRun(postgres_url, calls=True)
    await run.end(*both(await run.started()))
    with counted() as queries:
        await run.end(*both(await run.started('u', context='d')))
    writes = [query for query in queries if 'pg_notify' not in query]
    assert [query.partition('called.')[2].partition('(')[0] for query in writes] == ['a2a_submit', 'a2a_finish']
    await asyncio.to_thread(run.backend.close)


async def test_batch_of_tasks_is_filed_in_single_round_trip(postgres_url: str) -> None:
    run = ScheduleRun(postgres_url, calls=True)
    await run.end(*both(await run.started()))
    with counted() as queries:
        await run.file()
    [query] = queries
    assert 'called.a2a_file(' in query
    assert [json.loads(row)['filed'] for row in (await run.rows())['task']] == [1]
    await asyncio.to_thread(run.backend.close)


async def test_first_full_batch_of_filed_tasks_analyzes_tables(postgres: Server, postgres_url: str) -> None:
    counted_rows = "SELECT reltuples FROM pg_class WHERE oid = 'called.task'::regclass"
    run = ScheduleRun(postgres_url, calls=True)
    await run.end(*both(await run.started()))
    for first, last, rows in ((2, filing.EVERY - 1, -1), (filing.EVERY, 2 * filing.EVERY - 1, 2 * filing.EVERY - 1)):
        await run.execute(
            'INSERT INTO {0}.task SELECT ('
            "    jsonb_populate_record(t, jsonb_build_object('id', n, 'replay_key', n, 'filed', 0))"
            f").* FROM {{0}}.task t CROSS JOIN generate_series({first}, {last}) n WHERE id = 't'"
        )
        await run.file()
        assert postgres.run(counted_rows, database(postgres_url)) == [str(rows)]
    await asyncio.to_thread(run.backend.close)


async def test_role_without_tables_files_tasks_without_warnings(postgres: Server, postgres_url: str) -> None:
    run = ScheduleRun(postgres_url, calls=True)
    await run.end(*both(await run.started()))
    await run.execute(
        'INSERT INTO {0}.task SELECT ('
        "    jsonb_populate_record(t, jsonb_build_object('id', n, 'replay_key', n, 'filed', 0))"
        f").* FROM {{0}}.task t CROSS JOIN generate_series(1, {filing.EVERY}) n WHERE id = 't'"
    )
    postgres.run(f'DROP ROLE IF EXISTS {PASSWORD_USER}; CREATE ROLE {PASSWORD_USER}')
    warnings = list[str]()
    connection = await asyncpg.connect(postgres_url)
    connection.add_log_listener(lambda _, entry: warnings.append(str(entry)))
    for right in (
        'USAGE ON SCHEMA',
        'SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA',
        'USAGE ON ALL SEQUENCES IN SCHEMA',
    ):
        await connection.execute(f'GRANT {right} called TO {PASSWORD_USER}')
    await connection.execute(f'SET ROLE {PASSWORD_USER}')
    await connection.execute(f"SELECT called.a2a_file('9s', 'agent', {filing.BATCH})")
    await connection.execute(f'RESET ROLE; DROP OWNED BY {PASSWORD_USER}; DROP ROLE {PASSWORD_USER}')
    await connection.close()
    assert warnings == []
    assert {json.loads(row)['filed'] for row in (await run.rows())['task']} == {1}
    await asyncio.to_thread(run.backend.close)


@pytest.mark.parametrize('default', ["isolation = 'repeatable read'", 'read_only = on'])
async def test_task_runs_with_unusual_transaction_defaults(default: str, postgres: Server, postgres_url: str) -> None:
    postgres.run(f'ALTER DATABASE "{database(postgres_url)}" SET default_transaction_{default}')
    run = ScheduleRun(postgres_url, calls=True)
    claimed = await run.started()
    await run.emit(claimed, artifact_chunk(2, 'a'))
    await run.end(claimed, done(claimed, after=2))
    assert run.results[1:] == [None, None]
    await asyncio.to_thread(run.backend.close)


# --- calls without an answer ------------------------------------------------------------------------------------------


async def test_task_start_with_lost_answer_starts_once(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        run = ScheduleRun(proxy.url, calls=True)
        await run.started('first', 'd')
        proxy.when(b'message hello for t', 'lose the answer')
        claimed = await run.started()
        assert (claimed.fence, claimed.header.last_event) == (1, 1)
        assert await claim_all(run.backend, 'other') == []
        await asyncio.to_thread(run.backend.close)


async def test_submission_with_lost_answer_is_queued_once(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        run = ScheduleRun(proxy.url, calls=True)
        await run.note(submit(run.backend, message(new='first')))
        for slot in (None, SLOT):
            proxy.when(b'message hello for t', 'lose the answer')
            accepted = await submit(run.backend, message(new=f't {slot}'), slot=slot)
            assert (accepted.claim, accepted.replayed, accepted.header.queued) == (None, False, True)
        assert [task.header.id for task in await claim_all(run.backend)] == ['first', 't None', f't {SLOT}']
        assert not await run.backend.queued()
        await asyncio.to_thread(run.backend.close)


async def test_task_end_with_lost_answer_is_stored_once(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        run = ScheduleRun(proxy.url, calls=True)
        claimed = await run.started()
        await run.end(*both(await run.started('u', 'd')))
        proxy.when(b't.1.0', 'lose the answer')
        assert await run.end(claimed, done(claimed)) is None
        assert run.results[-1] is None
        await asyncio.to_thread(run.backend.close)


async def test_next_task_is_released_after_lost_end_answer(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        run = ScheduleRun(proxy.url, calls=True)
        claimed = await run.started()
        await queue(run, 'u')
        proxy.when(b't.1.0', 'lose the answer')
        assert await run.end(claimed, taking(claimed)) is None
        [taken] = await claim_all(run.backend, 'other')
        assert (taken.header.id, taken.fence, taken.attempt) == ('u', 2, 1)
        await asyncio.to_thread(run.backend.close)


async def test_events_with_lost_answer_are_stored_once(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        run = ScheduleRun(proxy.url, calls=True)
        claimed = await run.started()
        await run.emit(claimed, artifact_chunk(2, 'a'))
        proxy.when(b'the lost piece', 'lose the answer')
        await run.emit(claimed, artifact_chunk(3, 'the lost piece'), artifact_chunk(4, 'b'))
        await run.end(claimed, done(claimed, after=4))
        assert run.results[1:] == [None] * 3
        assert len((await run.rows())['event']) == 5
        await asyncio.to_thread(run.backend.close)


@pytest.mark.usefixtures('three_attempts')
async def test_task_start_with_lost_answer_is_released_after_outage(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        backend = PostgresBackend(Postgres(proxy.url, acquire_timeout=WAIT_LIMIT), 'agent', reader_lag=READER_LAG)
        await submit(backend, message(new='first'), slot=SLOT)
        proxy.when(b'message hello for t', 'lose the answer')
        waiting = asyncio.create_task(submit(backend, message(new='t'), slot=SLOT))
        proxy.refuses = True
        with pytest.raises(StoreUnavailable):
            await waiting
        proxy.refuses = False
        async with asyncio.timeout(WAIT_LIMIT):
            while not (claims := await claim_all(backend, 'other')):
                pass
        assert [(each.header.id, each.fence) for each in claims] == [('t', 2)]
        await asyncio.to_thread(backend.close)


async def test_task_start_without_connection_raises_store_unavailable(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy:
        proxy.refuses = True
        backend = PostgresBackend(Postgres(proxy.url, acquire_timeout=0.1), 'agent', reader_lag=READER_LAG)
        with pytest.raises(StoreUnavailable):
            await submit(backend, message(new='t'), slot=SLOT)
        await asyncio.to_thread(backend.close)


async def test_function_call_waits_for_lock_up_to_statement_timeout(postgres_url: str) -> None:
    backend = PostgresBackend(Postgres(postgres_url, statement_timeout=2), 'agent', reader_lag=READER_LAG)
    await backend.queued()
    async with blocking_session(postgres_url, lock(LockName(CONTEXT))):
        with pytest.raises(StoreUnavailable) as refused:
            await submit(backend, message(new='t', context='c'), slot=SLOT)
    assert 'lock timeout' in str(refused.value.__cause__)
    await asyncio.to_thread(backend.close)


async def test_missing_database_function_raises_store_unavailable(postgres: Server, postgres_url: str) -> None:
    run = ScheduleRun(postgres_url, calls=True)
    await run.backend.queued()
    postgres.run('DROP FUNCTION called.a2a_submit', database(postgres_url))
    with pytest.raises(StoreUnavailable) as refused:
        await submit(run.backend, message(new='t'), slot=SLOT)
    assert 'function called.a2a_submit' in str(refused.value.__cause__)
    await asyncio.to_thread(run.backend.close)
