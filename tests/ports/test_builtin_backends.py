"""What our own backends do beyond the suites: how many rows a step writes, and tasks of newer versions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from pydantic_ai_a2a.server.store.database_backend import DatabaseBackend
from pydantic_ai_a2a.server.store.ports import Backend, Erased
from pydantic_ai_a2a.server.store.sql import export_batches
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskQuery

from ..bounds import LIMIT
from ..suites import hook_calls, open_approvals
from ..suites.base import OpenBackend
from ..suites.dead_letters import make_dead_letter
from ..suites.export import complete_task, exported_names
from ..suites.values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    conversation_texts,
    entries_of,
    events,
    finish_of,
    message,
    model_turn,
    state_of,
    submit,
    sweep,
)


async def long_task(backend: Backend, task_id: str, events: int, *, at: int = START) -> None:
    await submit(backend, message(new=task_id))
    claimed = await claim_task(backend, task_id)
    await backend.queue.emit(claimed, [artifact_chunk(n, '.') for n in range(2, events)])
    await backend.queue.finish(claimed, finish_of(claimed, after=events - 1, at=at))


async def test_agents_in_shared_store_share_no_pauses(open_backend: OpenBackend) -> None:
    one, other = open_backend('one'), open_backend('other')
    await open_approvals.wait(one, 'a')
    await open_approvals.wait(other, 'b', at=START + 1)
    assert await open_approvals.open_ids(one, limit=1) == ['a']
    assert await one.reader.count_open_approvals(open_approvals.BOB) == 1
    assert await one.reader.page_key() != await other.reader.page_key()
    await hook_calls.wait(other, 'c')
    assert await hook_calls.take(one) == []
    assert await hook_calls.take(other) == ['c']
    for backend in (one, other):
        backend.close()


async def test_few_long_event_logs_are_swept_in_two_steps(backend: Backend) -> None:
    for n in range(3):
        await long_task(backend, f't{n}', 300, at=START + n)
    keep = Retention(max_tasks=1)
    steps: list[int] = []
    while step := await backend.housekeeping.sweep(keep, at=START):
        steps.append(step.rows)
    assert len(steps) <= 2
    page = await backend.reader.list(TaskQuery(owner=None))
    assert [task.header.id for task in page.tasks] == ['t2']


LONG = [each for n in range(600) for each in model_turn(f'prompt {n}', f'answer {n}')]


async def long_conversation(backend: Backend, context: str) -> str:
    """A context of 1200 messages, and the name of a conversation that has the first 300 of them, too."""
    await submit(backend, message(new=f'task of {context}', context=context))
    await claim_and_finish(backend, f'task of {context}', messages=LONG)
    fork = await backend.conversations(OWNER).fork(context, at=300)
    return fork.conversation_id


async def test_sweep_of_long_conversation_takes_small_steps(backend: Backend) -> None:
    fork = await long_conversation(backend, 'c')
    await submit(backend, message(new='lives', context=fork))
    entries = await entries_of(backend.conversations(OWNER), 'c')
    keep = Retention(contexts=timedelta(seconds=1), max_tasks=1)
    steps: list[int] = []
    while step := await backend.housekeeping.sweep(keep, at=START + 1001):
        steps.append(step.rows)
    assert sum(steps) >= 901
    assert max(steps) <= 510
    assert await conversation_texts(backend, 'c') == []
    assert len(await conversation_texts(backend, fork)) == 300
    store = backend.conversations(OWNER)
    assert len(await store.read_history(entries[299].id)) == 300
    for entry in entries[300:]:
        with pytest.raises(LookupError):
            await store.read_entry(entry.id)


async def test_erasure_of_long_conversation_takes_small_steps(backend: Backend) -> None:
    fork = await long_conversation(backend, 'c')
    batches: list[Erased] = []
    while batch := await backend.housekeeping.erase(OWNER, 'c', at=START):
        batches.append(batch)
    erased = sum(batches, Erased())
    assert (erased.conversations, erased.entries) == (1, 900)
    assert max(batch.entries for batch in batches) <= 500
    while await backend.housekeeping.erase(OWNER, at=START):
        pass
    assert await conversation_texts(backend, fork) == []


async def test_export_of_several_batches_is_complete(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_batches, 'BATCH', 2)
    names = [f't{n}' for n in range(5)]
    for name in names:
        await complete_task(backend, name)
    await backend.housekeeping.sweep(Retention(), at=START)  # files the tasks: others are no part of the batches
    assert await exported_names(backend) == [*names, *(f'context of {name}:' for name in names)]


async def test_deleting_long_conversation_keeps_only_messages_of_fork(backend: Backend) -> None:
    await long_conversation(backend, 'c')
    store = backend.conversations(OWNER)
    entries = await entries_of(store, 'c')
    await store.delete('c')
    assert len(await store.read_history(entries[299].id)) == 300
    for entry in entries[300:]:
        with pytest.raises(LookupError):
            await store.read_entry(entry.id)


MANY = 501
"""More than one statement renews."""


async def test_leases_of_many_tasks_are_renewed_together(backend: Backend) -> None:
    ids = [f'task {n}' for n in range(MANY)]
    await asyncio.gather(*(submit(backend, message(new=each), queue_limit=MANY) for each in ids))
    claims = {each.header.id: each for each in await claim_all(backend, limit=MANY)}
    assert sorted(claims) == sorted(ids)
    await backend.queue.cancel('task 0', None, at=START)
    await backend.queue.release(claims['task 500'])
    await claim_and_finish(backend, 'task 500')
    await backend.queue.renew('holder', ids, lease=EXPIRED)
    marks = await backend.queue.renew('holder', ids, lease=LEASE)
    assert ([*marks.lost], [*marks.cancel]) == (['task 500'], ['task 0'])
    assert await claim_all(backend, 'thief') == []
    await backend.queue.renew('holder', ids, lease=EXPIRED)
    assert len(await claim_all(backend, 'thief', limit=MANY)) == MANY - 1


FAR = timedelta(days=400)
SOON = timedelta(seconds=1)
LATER = START + 1001
KEEP = Retention(events=FAR, tasks=FAR, contexts=FAR)
EVENTS, TASKS, CONTEXTS = replace(KEEP, events=SOON), replace(KEEP, tasks=SOON), replace(KEEP, contexts=SOON)


def set_state(agent: str, task_id: str, state: str) -> Transaction[None]:
    """Write a state as a newer version or damage would, after the task was filed."""
    yield [('UPDATE task SET state = ? WHERE agent = ? AND id = ?', [(state, agent, task_id)])]


@pytest.mark.parametrize('due', [EVENTS, TASKS, CONTEXTS], ids=['events', 'tasks', 'contexts'])
async def test_sweep_keeps_task_in_unknown_state(
    due: Retention, open_backend: OpenBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend = cast('DatabaseBackend[Any]', open_backend('agent'))
    for task_id in ('dreams', 'ends'):
        await submit(backend, message(new=task_id, context=f'context of {task_id}'))
        await backend.reader.watch(task_id, OWNER)
        await claim_and_finish(backend, task_id, messages=model_turn('hi', task_id))
    await sweep(backend, KEEP)  # files the tasks
    before = await backend.reader.load('dreams', OWNER)
    log = await events(backend, 'dreams')
    await backend.write(set_state, 'agent', 'dreams', 'dreaming')
    await sweep(backend, due, at=LATER)
    await sweep(backend, due, at=LATER)
    assert (due is TASKS, due is CONTEXTS) == (
        await backend.reader.load('ends', OWNER) is None,
        await conversation_texts(backend, 'context of ends') == [],
    )
    assert await conversation_texts(backend, 'context of dreams') == ['hi', 'dreams']
    damage = "Task dreams is in the unknown state 'dreaming'."
    assert caplog.messages == [f'A sweep keeps a damaged task: repair or erase the task. {damage}']
    page = await backend.reader.list(TaskQuery(owner=OWNER))
    assert 'dreams' not in [task.header.id for task in page.tasks]
    assert caplog.messages[1:] == [f'A list leaves out a damaged task: {damage}']
    await backend.write(set_state, 'agent', 'dreams', 'completed')
    assert await backend.reader.load('dreams', OWNER) == before
    assert (await events(backend, 'dreams'), len(log)) == (log, 2)
    await sweep(backend, due, at=LATER)
    assert (await backend.reader.load('dreams', OWNER) is None) is (due is TASKS)
    assert (await conversation_texts(backend, 'context of dreams') == []) is (due is CONTEXTS)
    backend.close()


async def damage(backend: Backend, task_id: str, statement: str) -> None:
    """Write `DAMAGED` into the rows of a task, as another program would."""

    def write() -> Transaction[None]:
        yield [(statement, [(DAMAGED, task_id)])]

    await cast('DatabaseBackend[Any]', backend).write(write)


DAMAGED = b'{"secret'
EVENT = 'INSERT INTO event (agent, task_id, n, payload) SELECT agent, id, 99, ? FROM task WHERE id = ?'


async def test_sweep_ends_waiting_task_with_damaged_events(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    for task_id in ('damaged', 'whole'):
        await submit(backend, message(new=task_id))
        await claim_and_finish(backend, task_id, 'input-required')
    await damage(backend, 'damaged', EVENT)
    await sweep(backend, replace(KEEP, waiting=SOON), at=LATER)
    assert (await state_of(backend, 'damaged'), await state_of(backend, 'whole')) == ('failed', 'failed')
    assert caplog.messages == [
        'The streamed artifacts of task damaged are damaged in the store, and are left out: ValueError.',
        'Task damaged failed (expired, correlation id damaged.1).',
        'Task whole failed (expired, correlation id whole.1).',
    ]


async def test_list_of_dead_letters_has_damaged_failure(backend: Backend) -> None:
    for task_id in ('damaged', 'whole'):
        await make_dead_letter(backend, task_id)
    await damage(backend, 'damaged', 'UPDATE task SET status_message = ? WHERE id = ?')
    letters = await backend.housekeeping.dead_letters()
    assert [(letter.task_id, letter.correlation_id) for letter in letters] == [('damaged', None), ('whole', 't.1.3')]


FORK = """
import asyncio, os, sys
from pydantic_ai import Agent
from pydantic_ai_a2a import to_a2a

app = to_a2a(Agent('test', name='agent'), backend=sys.argv[1])
print(asyncio.run(app.list_tasks()), flush=True)
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1], flush=True)
print(asyncio.run(app.list_tasks()), flush=True)
"""


@pytest.mark.parametrize('kind', ['file', 'postgres'])
def test_forked_process_opens_its_own_connections(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f'sqlite:///{tmp_path}/agent.db' if kind == 'file' else request.getfixturevalue('postgres_url')
    forked = subprocess.run([sys.executable, '-c', FORK, url], capture_output=True, timeout=LIMIT, check=True)
    assert forked.stdout.split() == [b'[]', b'[]', b'0', b'[]']


async def test_forked_child_keeps_connections_of_parent_open(open_backend: OpenBackend) -> None:
    backend = cast('DatabaseBackend[Any]', open_backend('agent'))
    await submit(backend, message(new='t'))
    process = backend.process
    process.pid += 1
    process.stop()
    process.pid -= 1
    assert await backend.reader.load('t', OWNER) is not None
    backend.close()
