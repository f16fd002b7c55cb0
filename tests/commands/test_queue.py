"""`queue`: the queue in numbers, the tasks in it, and the cancel of a task."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.commands import queue as queue_command
from pydantic_ai_a2a.errors import StoreUnavailable, TaskNotCancelableError
from pydantic_ai_a2a.server.store.ports import Backend
from pydantic_ai_a2a.server.store.sql.housekeeping import SqlHousekeeping
from pydantic_ai_a2a.server.store.sql.task_queue import SqlQueue

from ..logs import audit_records
from ..suites.values import START, claim_and_finish, claim_task, message, state_of, submit
from .command import (
    STORE_OPTIONS,
    Step,
    add_completed_task,
    add_dead_letter,
    run_at_terminal,
    run_command,
    with_store,
)

Capture = pytest.CaptureFixture[str]


async def add_tasks_in_all_states(backend: Backend) -> None:
    """Tasks in several states, of two owners."""
    await add_completed_task(backend, 'done')
    await add_dead_letter(backend, 'dead')
    for n, owner in enumerate(('/ann', '/bob')):
        await submit(backend, message(new=f'queued {n}', owner=owner, at=START + n))
        await submit(backend, message(new=f'running {n}', owner=owner, at=START + 10 + n))
        await claim_task(backend, f'running {n}', at=START + 20 + n)
    await submit(backend, message(new='asks', owner='/ann', at=START))
    await claim_and_finish(backend, 'asks', 'input-required', at=START + 30)


def test_queue_counts_are_shown_as_table_and_json(capsys: Capture) -> None:
    with_store(add_tasks_in_all_states)
    [row] = run_command(capsys, 'queue', 'joker:app', '--json').lines
    age = row.pop('oldestSeconds')
    assert row == snapshot(
        {
            'namespace': 'joker',
            'submitted': 2,
            'queued': 2,
            'running': 2,
            'leases': 2,
            'waiting': 1,
            'dead': 1,
            'accepted': 0,
            'ended': 0,
            'pausedAt': None,
        }
    )
    assert age > 60
    head, numbers = run_command(capsys, 'queue', *STORE_OPTIONS).out.splitlines()
    assert head.split() == snapshot(
        [
            'NAMESPACE',
            'SUBMITTED',
            'QUEUED',
            'RUNNING',
            'LEASES',
            'WAITING',
            'DEAD',
            'ACCEPTED',
            'ENDED',
            'OLDEST',
            'PAUSED',
        ]
    )
    assert numbers.split()[:9] == ['joker', '2', '2', '2', '2', '1', '1', '0', '0']


def test_queue_without_namespace_shows_all_namespaces(capsys: Capture) -> None:
    with_store(add_tasks_in_all_states)
    with_store(lambda backend: submit(backend, message(new='t')), namespace='another')
    shown = run_command(capsys, 'queue', '--backend', 'sqlite:///agent.db', '--json').lines
    assert [(row['namespace'], row['queued']) for row in shown] == [('another', 1), ('joker', 2)]
    [row] = run_command(
        capsys, 'queue', 'show', '--backend', 'sqlite:///agent.db', '--namespace', 'another', '--json'
    ).lines
    assert row['namespace'] == 'another'


def listed_task_ids(capsys: Capture, *options: str) -> list[Any]:
    return [row['taskId'] for row in run_command(capsys, 'queue', 'list', 'joker:app', '--json', *options).lines]


def test_queue_list_filters_by_state_owner_and_age(capsys: Capture) -> None:
    with_store(add_tasks_in_all_states)
    assert run_command(capsys, 'queue', 'list', 'joker:app').out == snapshot("""\
TASK       CONTEXT               OWNER  STATE           QUEUED  SINCE
asks       context of asks       /ann   input-required  False   2023-11-14T22:13:20.030Z
running 1  context of running 1  /bob   working         False   2023-11-14T22:13:20.021Z
running 0  context of running 0  /ann   working         False   2023-11-14T22:13:20.020Z
queued 1   context of queued 1   /bob   submitted       True    2023-11-14T22:13:20.001Z
queued 0   context of queued 0   /ann   submitted       True    2023-11-14T22:13:20.000Z
""")
    assert listed_task_ids(capsys, '--state', 'submitted') == ['queued 1', 'queued 0']
    assert listed_task_ids(capsys, '--owner', '/bob') == ['running 1', 'queued 1']
    assert listed_task_ids(capsys, '--limit', '2') == ['asks', 'running 1']
    assert listed_task_ids(capsys, '--older-than', '1e9') == []
    assert run_command(capsys, 'queue', 'list', 'joker:app', '--owner', '/eve') == (0, '', '')


def test_operator_can_cancel_task_of_every_owner(capsys: Capture, caplog: pytest.LogCaptureFixture) -> None:
    with_store(add_tasks_in_all_states)
    caplog.set_level('INFO', 'pydantic_ai_a2a.audit')
    outcomes = [
        run_command(capsys, 'queue', 'cancel', task, 'joker:app', '--grace', '0')[:2]
        for task in ('queued 0', 'running 1', 'asks')
    ]
    assert outcomes == [(0, '')] * 3
    assert [record['task'] for record in audit_records(caplog)] == ['queued 0', 'running 1', 'asks']
    assert [run_command(capsys, 'queue', 'cancel', task, 'joker:app').why for task in ('no', 'done')] == snapshot(
        [(1, 'Task not found.'), (1, 'Task cannot be canceled: it has already ended.')]
    )

    async def check(backend: Backend) -> None:
        assert await state_of(backend, 'running 1') == 'canceled'

    with_store(check)


def test_queue_cancel_reports_task_ended_meanwhile(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with_store(add_tasks_in_all_states)

    async def cancel(*_: object, **__: object) -> None:
        raise TaskNotCancelableError

    monkeypatch.setattr(SqlQueue, 'cancel', cancel)
    outcome = run_command(capsys, 'queue', 'cancel', 'running 0', 'joker:app')
    assert outcome.why == (1, 'Task cannot be canceled: it has already ended.')


def test_queue_is_paused_and_resumed_per_namespace(capsys: Capture) -> None:
    with_store(add_tasks_in_all_states)
    assert run_command(capsys, 'queue', 'pause', 'joker:app') == (0, '', 'pydantic-ai-a2a: the queue is paused\n')
    with_store(lambda backend: submit(backend, message(new='another')), namespace='another')
    shown = run_command(capsys, 'queue', '--backend', 'sqlite:///agent.db', '--json').lines
    assert [(row['namespace'], row['pausedAt'] is None) for row in shown] == [('another', True), ('joker', False)]
    assert (
        run_command(capsys, 'queue', 'resume', *STORE_OPTIONS)[2] == 'pydantic-ai-a2a: the queue is no longer paused\n'
    )
    [_, row] = run_command(capsys, 'queue', 'joker:app', '--json').lines
    assert row['pausedAt'] is None


def test_in_memory_queue_cannot_be_paused(capsys: Capture) -> None:
    code, why = run_command(capsys, 'queue', 'pause', 'joker:memory').why
    assert (code, why.partition(',')[0]) == (2, 'joker:memory keeps its tasks in the memory of one process')


# --- on the screen --------------------------------------------------------------------------------------------------


def test_queue_numbers_change_on_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_command, 'PERIOD', 0.05)
    for name, value in (('TERM', 'xterm'), ('COLUMNS', '120')):
        monkeypatch.setenv(name, value)
    with_store(add_tasks_in_all_states)
    queues = SqlHousekeeping.queues

    async def unavailable(*_: object, **__: object) -> None:
        raise StoreUnavailable('the disk is away')

    def add_task() -> None:
        with_store(lambda backend: submit(backend, message(new='one more', owner='/ann')))

    steps: list[Step] = [
        ('joker      2', add_task),
        ('joker      3', lambda: monkeypatch.setattr(SqlHousekeeping, 'queues', unavailable)),
        ('(the disk is away)', ''),
        ('joker      3', lambda: monkeypatch.setattr(SqlHousekeeping, 'queues', queues)),
        ('Ctrl-C ends.', lambda: signal.raise_signal(signal.SIGINT)),
    ]
    code, terminal = run_at_terminal(monkeypatch, 'queue', *STORE_OPTIONS, '--watch', steps=steps)
    assert (code, 'interrupted' in terminal.text) == (130, True)


def test_queue_on_screen_cannot_write_json(capsys: Capture) -> None:
    refused = run_command(capsys, 'queue', *STORE_OPTIONS, '--watch', '--json')
    assert refused.code == 2
    assert '--watch and --json cannot be combined' in refused.err
