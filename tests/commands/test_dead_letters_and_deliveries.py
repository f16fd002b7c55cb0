"""`dead-letters` and `dead-deliveries`: `list` and `retry`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from io import StringIO
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.server.store.ports import Backend, PushConfig

from ..suites.values import LEASE, START, claim_all, claim_and_finish, message, state_of, submit
from .command import add_completed_task, add_dead_letter, run_command, with_store

Capture = pytest.CaptureFixture[str]


async def add_dead_letters(backend: Backend) -> None:
    """Dead letters of two owners, and a task that is none."""
    await add_completed_task(backend, 'done')
    for n, owner in enumerate(('/ann', '/bob', '/ann')):
        await add_dead_letter(backend, f't{n}', context=f'c{n}', owner=owner, at=START + n)


def test_dead_letters_are_listed_as_table(capsys: Capture) -> None:
    with_store(add_dead_letters)
    assert run_command(capsys, 'dead-letters', 'list', 'joker:app').out == snapshot("""\
TASK  CONTEXT  OWNER  FAILED                    ATTEMPTS  FAILURE   CORRELATION ID  RETRIED AS
t0    c0       /ann   2023-11-14T22:14:20.000Z  2         attempts  correlation     -
t1    c1       /bob   2023-11-14T22:14:20.001Z  2         attempts  correlation     -
t2    c2       /ann   2023-11-14T22:14:20.002Z  2         attempts  correlation     -
""")


def test_dead_letters_are_listed_as_json_lines(capsys: Capture) -> None:
    with_store(add_dead_letters)
    lines = run_command(capsys, 'dead-letters', 'list', 'joker:app', '--caller', 'bob', '--json').lines
    assert lines == snapshot(
        [
            {
                'taskId': 't1',
                'contextId': 'c1',
                'owner': '/bob',
                'failedAt': '2023-11-14T22:14:20.001Z',
                'attempts': 2,
                'failure': 'attempts',
                'correlationId': 'correlation',
                'retriedAs': None,
            }
        ]
    )


def test_dead_letter_is_retried_only_once_by_default(capsys: Capture) -> None:
    with_store(add_dead_letters)
    [first] = run_command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', 't0', '--json').lines
    assert first == {'taskId': 't0', 'retriedAs': first['retriedAs']}
    refused = run_command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', 't0', '--task', 't2')
    assert refused.why == (1, f't0: The task has already been retried, as the task {first["retriedAs"]}.')
    assert refused.out.startswith('t2 -> ')
    [again] = run_command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', 't0', '--again', '--json').lines

    async def check(backend: Backend) -> None:
        assert await state_of(backend, first['retriedAs']) == await state_of(backend, again['retriedAs']) == 'submitted'
        assert len(await claim_all(backend)) == 2  # two tasks are of one context

    with_store(check)


def test_retry_all_skips_retried_dead_letters(capsys: Capture) -> None:
    with_store(add_dead_letters)

    def retried(*options: str) -> list[str]:
        lines = run_command(capsys, 'dead-letters', 'retry', 'joker:app', '--all', '--json', *options).lines
        return [line['taskId'] for line in lines]

    assert retried('--owner', '/ann') == ['t0', 't2']
    assert retried() == ['t1']
    assert retried() == []
    assert retried('--again') == ['t0', 't1', 't2']


def test_retry_refuses_unknown_and_completed_tasks(capsys: Capture) -> None:
    with_store(add_dead_letters)
    outcomes = [
        run_command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', task).why for task in ('no', 'done')
    ]
    assert outcomes == [
        (1, 'no: Task not found.'),
        (1, 'done: The task is completed and is not a dead letter: list the dead letters, or all failed tasks.'),
    ]


async def add_failed_tasks(backend: Backend) -> None:
    """A dead letter, and a task that failed for another reason."""
    await add_dead_letter(backend, 'dead')
    await submit(backend, message('do it', new='failed', owner='/ann'))
    await claim_and_finish(backend, 'failed', 'failed', failure='internal')


def test_failed_tasks_are_retried_only_after_confirmation(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, app_directory: Path
) -> None:
    with_store(add_failed_tasks)
    lines = run_command(capsys, 'dead-letters', 'list', 'joker:app', '--failed', '--json').lines
    assert [(line['taskId'], line['failure']) for line in lines] == [('failed', 'internal'), ('dead', 'attempts')]
    retry = ('dead-letters', 'retry', 'joker:app', '--failed')
    assert run_command(capsys, *retry, '--task', 'failed').why == (
        2,
        'A failed task runs again from the beginning, with the tools that have finished before. To retry failed tasks,'
        ' add --yes.',
    )
    monkeypatch.setattr('sys.stdin', PromptAnswers('n\ny\n'))
    no = run_command(capsys, *retry, '--task', 'failed')
    assert (no.code, no.out) == (1, '')
    assert 'from the beginning, with the tools that have finished before. Retry? [y/N]' in no.err
    [yes] = run_command(capsys, *retry, '--task', 'failed', '--json').lines
    assert yes['taskId'] == 'failed'
    again = run_command(capsys, *retry, '--all', '--yes', '--json').lines
    assert [line['taskId'] for line in again] == ['dead']


class PromptAnswers(StringIO):
    """Answers at a prompt."""

    def isatty(self) -> bool:
        return True


# --- dead deliveries

_ID = re.compile(r'\b[0-9a-f]{32}\.\d+')


def add_dead_deliveries(count: int = 3) -> Callable[[Backend], Awaitable[None]]:
    """Puts dead deliveries of two owners into a store."""

    async def fill(backend: Backend) -> None:
        configs, outbox = backend.push_configs, backend.outbox
        assert configs is not None
        assert outbox is not None
        for n in range(count):
            task_id, owner = f't{n}', ('/ann', '/bob')[n % 2]
            await submit(backend, message(new=task_id, owner=owner))
            config = PushConfig(id='mine', version='1.0', takes='artifacts', body=b'secret')
            await configs.create(task_id, owner, config, limit=1)
            await backend.queue.cancel(task_id, owner, at=START + n)
            [delivery] = (await outbox.lease(lease=LEASE, limit=1, held={})).deliveries
            await outbox.failed(delivery, at=START + n, pause=None, error='HTTP 500')

    return fill


def test_dead_deliveries_are_listed_as_table(capsys: Capture) -> None:
    with_store(add_dead_deliveries(2))
    listed = run_command(capsys, 'dead-deliveries', 'list', 'joker:app').out
    assert re.sub(rf'{_ID.pattern} *', 'ID  ', listed) == snapshot("""\
DELIVERY                            TASK  CONFIGURATION  OWNER  EVENT  STATE     DIED                      TRIES  ERROR
ID  t0    mine           /ann   1      canceled  2023-11-14T22:13:20.000Z  1      HTTP 500
ID  t1    mine           /bob   1      canceled  2023-11-14T22:13:20.001Z  1      HTTP 500
""")


def test_dead_deliveries_are_listed_as_json_lines(capsys: Capture) -> None:
    with_store(add_dead_deliveries())
    [line] = run_command(capsys, 'dead-deliveries', 'list', 'joker:app', '--caller', 'bob', '--json').lines
    assert _ID.fullmatch(line.pop('deliveryId'))
    assert line == snapshot(
        {
            'taskId': 't1',
            'configId': 'mine',
            'owner': '/bob',
            'event': 1,
            'state': 'canceled',
            'diedAt': '2023-11-14T22:13:20.001Z',
            'tries': 1,
            'error': 'HTTP 500',
        }
    )


def delivery_ids(capsys: Capture) -> list[str]:
    return [line['deliveryId'] for line in run_command(capsys, 'dead-deliveries', 'list', 'joker:app', '--json').lines]


def test_named_dead_delivery_is_retried_once(capsys: Capture) -> None:
    with_store(add_dead_deliveries())
    first, *rest = delivery_ids(capsys)
    assert run_command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--delivery', first) == (0, f'{first}\n', '')
    assert delivery_ids(capsys) == rest
    again = run_command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--delivery', first, '--delivery', rest[0])
    assert (again.code, again.out) == (1, f'{rest[0]}\n')
    assert again.err == (
        f'pydantic-ai-a2a: error: {first}: No dead delivery has this id: list the dead deliveries.'
        ' A retried delivery is no longer dead.\n'
    )


def test_retry_all_retries_dead_deliveries_of_owner(capsys: Capture) -> None:
    with_store(add_dead_deliveries())
    retried = run_command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--all', '--caller', 'ann', '--json')
    assert [[*line] for line in retried.lines] == [['deliveryId'], ['deliveryId']]
    assert len(delivery_ids(capsys)) == 1
    assert run_command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--all').code == 0
    assert delivery_ids(capsys) == []


def test_dead_deliveries_need_backend_with_push_notifications(capsys: Capture, tmp_path: Path) -> None:
    Path('without.py').write_text(
        'from pydantic_ai import Agent\n'
        'from pydantic_ai_a2a import to_a2a\n'
        'from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFile, SqliteFileBackend\n'
        "backend = SqliteFileBackend(SqliteFile.of('sqlite:///agent.db'), 'joker', reader_lag=1000)\n"
        'backend.outbox = None\n'
        "app = to_a2a(Agent('test'), backend=backend)\n"
    )
    why = run_command(capsys, 'dead-deliveries', 'list', 'without:app').why
    assert why == (2, 'This backend stores no push notifications, so it has no dead deliveries.')


# --- both

KINDS = pytest.mark.parametrize(('kind', 'item'), [('dead-letters', '--task'), ('dead-deliveries', '--delivery')])


@KINDS
def test_list_and_retry_without_dead_items_print_no_output(kind: str, item: str, capsys: Capture) -> None:
    with_store(lambda backend: add_completed_task(backend, 'done'))
    assert run_command(capsys, kind, 'list', 'joker:app') == (0, '', '')
    assert run_command(capsys, kind, 'list', 'joker:app', '--json') == (0, '', '')
    assert run_command(capsys, kind, 'retry', 'joker:app', '--all') == (0, '', '')


async def add_many_dead_letters(backend: Backend) -> None:
    for n in range(101):
        await add_dead_letter(backend, f't{n}', context=f'c{n}')


@pytest.mark.parametrize(
    ('kind', 'fill'), [('dead-letters', add_many_dead_letters), ('dead-deliveries', add_dead_deliveries(101))]
)
def test_list_of_dead_items_includes_all_pages(
    kind: str, fill: Callable[[Backend], Awaitable[None]], capsys: Capture
) -> None:
    with_store(fill)
    assert len(run_command(capsys, kind, 'list', 'joker:app', '--json').lines) == 101


@KINDS
def test_retry_needs_item_or_all_option(kind: str, item: str, capsys: Capture) -> None:
    choose = f'Choose the items to retry: give {item} or --all, not both.'
    owner = f'An owner can only be combined with --all: {item} already names one item.'
    for options, reason in (((), choose), ((item, 'x', '--all'), choose), ((item, 'x', '--caller', 'ann'), owner)):
        assert run_command(capsys, kind, 'retry', 'joker:app', *options).why == (2, reason)
