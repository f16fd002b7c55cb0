"""How much our own backends delete in one step; how much that is, is up to each backend."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.ports import Backend, Erased
from pydantic_ai_a2a.types import TaskQuery

from ..suites.values import AT, OWNER, chunk, claim_one, conversation, ending, message, run, submit, turn


async def long_task(backend: Backend, task_id: str, events: int, *, at: int = AT) -> None:
    await submit(backend, message(new=task_id))
    claimed = await claim_one(backend, task_id)
    await backend.queue.emit(claimed, [chunk(n, '.') for n in range(2, events)])
    await backend.queue.finish(claimed, ending(claimed, after=events - 1, at=at))


async def test_a_few_tasks_with_long_logs_take_two_steps_at_most(backend: Backend) -> None:
    for n in range(3):
        await long_task(backend, f't{n}', 300, at=AT + n)
    keep = Retention(max_tasks=1)
    steps: list[int] = []
    while step := await backend.housekeeping.sweep(keep, at=AT):
        steps.append(step.rows)
    assert len(steps) <= 2
    page = await backend.reader.list(TaskQuery(owner=None))
    assert [task.header.id for task in page.tasks] == ['t2']


async def test_what_is_erased_of_an_owner_goes_in_steps_of_some_hundred_rows(backend: Backend) -> None:
    await long_task(backend, 'long', 1201)
    for n in range(120):
        await submit(backend, message(new=f't{n}'))
        await run(backend, f't{n}')
    batches: list[Erased] = []
    while batch := await backend.housekeeping.erase(OWNER, at=AT):
        batches.append(batch)
    assert max(batch.tasks + batch.events for batch in batches) <= 550
    assert sum(batches, Erased()).tasks == 121


LONG = [each for n in range(600) for each in turn(f'prompt {n}', f'answer {n}')]


async def long_conversation(backend: Backend, context: str) -> str:
    """A context of 1200 messages, and the name of a conversation that has the first 300 of them, too."""
    await submit(backend, message(new=f'task of {context}', context=context))
    await run(backend, f'task of {context}', messages=LONG)
    fork = await backend.conversations(OWNER).fork(context, at=300)
    return fork.conversation_id


async def test_a_long_conversation_is_swept_in_steps_of_some_hundred_rows(backend: Backend) -> None:
    fork = await long_conversation(backend, 'c')
    await submit(backend, message(new='lives', context=fork))
    entries = await backend.conversations(OWNER).load_entries('c')
    assert entries is not None
    keep = Retention(contexts=timedelta(seconds=1), max_tasks=1)
    steps: list[int] = []
    while step := await backend.housekeeping.sweep(keep, at=AT + 1001):
        steps.append(step.rows)
    assert sum(steps) >= 901
    assert max(steps) <= 510
    assert await conversation(backend, 'c') == []
    assert len(await conversation(backend, fork)) == 300
    store = backend.conversations(OWNER)
    assert len(await store.read_history(entries[299].id)) == 300
    for entry in entries[300:]:
        with pytest.raises(LookupError):
            await store.read_entry(entry.id)


async def test_a_long_conversation_is_erased_in_steps_of_some_hundred_rows(backend: Backend) -> None:
    fork = await long_conversation(backend, 'c')
    batches: list[Erased] = []
    while batch := await backend.housekeeping.erase(OWNER, 'c', at=AT):
        batches.append(batch)
    erased = sum(batches, Erased())
    assert (erased.conversations, erased.entries) == (1, 900)
    assert max(batch.entries for batch in batches) <= 500
    while await backend.housekeeping.erase(OWNER, at=AT):
        pass
    assert await conversation(backend, fork) == []


async def test_deleting_a_long_conversation_leaves_none_of_its_messages(backend: Backend) -> None:
    await long_conversation(backend, 'c')
    store = backend.conversations(OWNER)
    entries = await store.load_entries('c')
    assert entries is not None
    await store.delete('c')
    assert len(await store.read_history(entries[299].id)) == 300
    for entry in entries[300:]:
        with pytest.raises(LookupError):
            await store.read_entry(entry.id)
