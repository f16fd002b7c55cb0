"""Sweeps of tasks in a state that this version does not know, in the stores that a newer version may write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.shared import SharedBackend
from pydantic_ai_a2a.store.sql.database import WriteKind
from pydantic_ai_a2a.store.sql.transaction import Transaction
from pydantic_ai_a2a.types import TaskQuery

from ..suites.base import OpenBackend
from ..suites.values import AT, OWNER, conversation, events, message, run, submit, turn

FAR = timedelta(days=400)
SOON = timedelta(seconds=1)
LATER = AT + 1001
KEEP = Retention(events=FAR, tasks=FAR, contexts=FAR)
EVENTS, TASKS, CONTEXTS = replace(KEEP, events=SOON), replace(KEEP, tasks=SOON), replace(KEEP, contexts=SOON)


def set_state(agent: str, task_id: str, state: str) -> Transaction[None]:
    """Write a state as a newer version or damage would, after the task was filed."""
    yield [('UPDATE task SET state = ? WHERE agent = ? AND id = ?', [(state, agent, task_id)])]


async def swept(backend: SharedBackend[Any], retention: Retention, at: int = AT) -> None:
    while await backend.housekeeping.sweep(retention, at=at):
        pass


@pytest.mark.parametrize('due', [EVENTS, TASKS, CONTEXTS], ids=['events', 'tasks', 'contexts'])
async def test_a_sweep_keeps_a_filed_task_in_an_unknown_state_with_its_events_and_its_conversation(
    due: Retention, open_backend: OpenBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend = cast('SharedBackend[Any]', open_backend('agent'))
    for task_id in ('dreams', 'ends'):
        await submit(backend, message(new=task_id, context=f'context of {task_id}'))
        await backend.reader.watch(task_id, OWNER)
        await run(backend, task_id, messages=turn('hi', task_id))
    await swept(backend, KEEP)  # files the tasks
    before = await backend.reader.load('dreams', OWNER)
    log = await events(backend, 'dreams')
    await backend.write(WriteKind(set_state), 'agent', 'dreams', 'dreaming')
    await swept(backend, due, LATER)
    await swept(backend, due, LATER)
    assert (due is TASKS, due is CONTEXTS) == (
        await backend.reader.load('ends', OWNER) is None,
        await conversation(backend, 'context of ends') == [],
    )
    assert await conversation(backend, 'context of dreams') == ['hi', 'dreams']
    damage = "Task dreams is in the unknown state 'dreaming'."
    assert caplog.messages == [f'A sweep keeps a damaged task: repair or erase the task. {damage}']
    page = await backend.reader.list(TaskQuery(owner=OWNER))
    assert 'dreams' not in [task.header.id for task in page.tasks]
    assert caplog.messages[1:] == [f'A list leaves out a damaged task: {damage}']
    await backend.write(WriteKind(set_state), 'agent', 'dreams', 'completed')
    assert await backend.reader.load('dreams', OWNER) == before
    assert (await events(backend, 'dreams'), len(log)) == (log, 2)
    await swept(backend, due, LATER)
    assert (await backend.reader.load('dreams', OWNER) is None) is (due is TASKS)
    assert (await conversation(backend, 'context of dreams') == []) is (due is CONTEXTS)
    backend.close()
