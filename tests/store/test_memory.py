"""The store in memory: its cost does not grow with the number of tasks, and its size is counted."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import pytest
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord

from pydantic_ai_a2a.errors import OverloadedError
from pydantic_ai_a2a.protocol import stored
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.memory.backend import MemoryBackend
from pydantic_ai_a2a.store.ports import Bucket, Charge, PushConfig
from pydantic_ai_a2a.types import TaskEvent, TaskQuery

from ..suites.values import AT, OWNER, claim, erase, message, run, submit, turn

FEW, MANY = 500, 5_000
QUEUED = 10


async def filled(tasks: int) -> MemoryBackend:
    """A store with ended tasks, and with a few queued tasks."""
    backend = MemoryBackend('agent', reader_lag=10**6)
    for n in range(tasks):
        await submit(backend, message(new=f'{n:06}', context=f'context {n:06}', at=AT + n))
        await run(backend, f'{n:06}', at=AT + n, messages=turn('hi', 'hello'))
    for n in range(QUEUED):
        await submit(backend, message(new=f'queued {n}', owner=f'/owner {n}'))
    return backend


async def calls(work: Callable[[], Awaitable[object]]) -> int:
    """How many functions a piece of work calls, in Python and in C."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ('call', 'c_call')

    sys.setprofile(note)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return count


WORK: dict[str, Callable[[MemoryBackend], Awaitable[Any]]] = {
    'a list': lambda backend: backend.reader.list(TaskQuery(owner=OWNER)),
    'a list of one state': lambda backend: backend.reader.list(TaskQuery(owner=OWNER, state='completed')),
    'a list since a time': lambda backend: backend.reader.list(TaskQuery(owner=OWNER, since=AT + 100)),
    'a later page': lambda backend: backend.reader.list(TaskQuery(owner=OWNER, before=(AT + 200, ''))),
    'a list of a context': lambda backend: backend.reader.list(TaskQuery(owner=OWNER, context_id='context 000100')),
    'a list of all owners': lambda backend: backend.reader.list(TaskQuery(owner=None)),
    'a claim': lambda backend: claim(backend, limit=2),
    'a message': lambda backend: submit(backend, message(new='new')),
    'a sweep without work': lambda backend: backend.housekeeping.sweep(
        Retention(events=timedelta(days=1), max_tasks=10**6, max_contexts=10**6), at=AT + MANY
    ),
    'a sweep of the oldest tasks': lambda backend: backend.housekeeping.sweep(
        Retention(tasks=timedelta(milliseconds=1), max_contexts=10**6), at=AT + 100
    ),
}


async def counted(backend: MemoryBackend) -> dict[str, int]:
    await backend.reader.list(TaskQuery(owner=OWNER))  # the last tasks enter the lists
    return {name: await calls(partial(work, backend)) for name, work in WORK.items()}


async def test_no_step_grows_with_the_number_of_tasks() -> None:
    warm, few, many = [await counted(await filled(tasks)) for tasks in (FEW, FEW, MANY)]
    assert warm.keys() == few.keys()
    assert many == few


@pytest.mark.parametrize('text', ['hello', 'hello' * 20_000])
async def test_nothing_is_counted_of_an_empty_store(text: str) -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    hook = PushConfig(id='a', version='1.0', takes='chunks', body=b'address')
    await submit(backend, message('ask', new='t', context='c'))
    assert backend.push_configs is not None
    await backend.push_configs.create('t', OWNER, hook, limit=1)
    artifacts = [(name, stored.dump_artifact({'artifact_id': name, 'parts': [{'text': text}]})) for name in 'ab']
    events = [TaskEvent(n, None, stored.artifact_update('t', 'c', body)) for n, (_, body) in enumerate(artifacts, 3)]
    messages = turn('hi', text)
    await run(backend, 't', after=4, messages=messages, artifacts=artifacts, events=events)
    assert backend.store.tasks['t'].events_after(2)[:2] == events
    assert backend.store.size > 2000
    while await erase(backend, OWNER, at=AT):
        pass
    assert backend.store.size == 0


async def test_a_message_is_refused_if_it_could_exceed_the_limit() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6, max_bytes=11_000)
    backend.take_room(1_000)
    with pytest.raises(OverloadedError):
        backend.take_room(2_000)
    await submit(backend, message(new='t'))
    for n in range(3):
        await submit(backend, message(new=f't{n}'))
    with pytest.raises(OverloadedError):
        await submit(backend, message(new='u'))


async def test_a_conversation_cannot_take_the_place_of_an_entry_or_follow_an_unknown_one() -> None:
    store = MemoryBackend('agent', reader_lag=10**6).conversations(OWNER)
    [hi, hello] = turn('hi', 'hello')
    first = ConversationEntry(id='first', parent_id=None, message=hi)
    await store.write_record(
        ConversationRecord(conversation_id='c', head_id='first'), new_entries=[first], expected_revision=None
    )
    for entry in (first, ConversationEntry(id='second', parent_id='unknown', message=hello)):
        record = ConversationRecord(conversation_id='d', head_id=entry.id)
        with pytest.raises(ConversationConflict):
            await store.write_record(record, new_entries=[entry], expected_revision=None)
    assert [record.conversation_id for record in await store.list_conversations()] == ['c']


async def test_full_buckets_and_expired_charges_are_swept_in_batches() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    for n in range(600):
        assert await backend.quotas.take(Bucket(f'{n}', 'requests', 1000, 2), at=AT) == 0
        await backend.quotas.charge([Charge('/ada', 1000, AT + n, 1, 1, 1)])
    assert await backend.housekeeping.sweep(Retention(), at=AT + 1000) == 1000
    assert await backend.housekeeping.sweep(Retention(), at=AT + 1000) == 200
    assert await backend.housekeeping.sweep(Retention(), at=AT + 1000) == 0


async def test_one_of_two_dead_letters_is_erased() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    for task_id in 'tu':
        await submit(backend, message(new=task_id))
        await run(backend, task_id, 'failed', failure='attempts')
    assert await backend.housekeeping.erase_task('t', OWNER, at=AT)
    assert [letter.task_id for letter in await backend.housekeeping.dead_letters(OWNER)] == ['u']


async def test_a_message_that_cannot_be_repeated_leaves_nothing_behind() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    await submit(backend, message(new='t', owner='/', message_id='short'))
    await run(backend, 't')
    assert await backend.queue.claim('holder', at=AT, lease=1, limit=1, task_id='t') == []
    assert await backend.housekeeping.erase_task('t', '/', at=AT)
    assert not (await submit(backend, message(new='t', owner='/', message_id='short'))).replayed


async def test_a_sweep_leaves_a_second_long_conversation_to_the_next_one() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    for context in 'ab':
        await submit(backend, message(new=context, context=context))
        await run(backend, context, messages=turn('hi', 'hello') * 300)
    keep = Retention(contexts=timedelta(seconds=1))
    steps = [await backend.housekeeping.sweep(keep, at=AT + 2000) for _ in range(4)]
    assert (sum(steps), max(steps)) == (1202, 501)
