"""`dead-letters list` and `dead-letters retry`."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.store.ports import Backend

from ..suites.values import AT, claim, message, run, state_of, submit
from .command import command, die, finish, in_store

Capture = pytest.CaptureFixture[str]


async def three(backend: Backend) -> None:
    """Dead letters of two owners, and a task that is none."""
    await finish(backend, 'done')
    for n, owner in enumerate(('/ann', '/bob', '/ann')):
        await die(backend, f't{n}', context=f'c{n}', owner=owner, at=AT + n)


def test_dead_letters_are_listed_for_people(capsys: Capture) -> None:
    in_store(three)
    assert command(capsys, 'dead-letters', 'list', 'joker:app').out == snapshot("""\
TASK  CONTEXT  OWNER  FAILED                    ATTEMPTS  FAILURE   CORRELATION ID  RETRIED AS
t0    c0       /ann   2023-11-14T22:14:20.000Z  2         attempts  correlation     -
t1    c1       /bob   2023-11-14T22:14:20.001Z  2         attempts  correlation     -
t2    c2       /ann   2023-11-14T22:14:20.002Z  2         attempts  correlation     -
""")


def test_dead_letters_are_listed_for_programs(capsys: Capture) -> None:
    in_store(three)
    lines = command(capsys, 'dead-letters', 'list', 'joker:app', '--caller', 'bob', '--json').lines
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


def test_where_there_are_none_nothing_is_listed(capsys: Capture) -> None:
    in_store(lambda backend: finish(backend, 'done'))
    assert command(capsys, 'dead-letters', 'list', 'joker:app') == (0, '', '')
    assert command(capsys, 'dead-letters', 'list', 'joker:app', '--json') == (0, '', '')
    assert command(capsys, 'dead-letters', 'retry', 'joker:app', '--all') == (0, '', '')


def test_more_of_them_than_a_page_are_all_listed(capsys: Capture) -> None:
    async def many(backend: Backend) -> None:
        for n in range(101):
            await die(backend, f't{n}', context=f'c{n}')

    in_store(many)
    assert len(command(capsys, 'dead-letters', 'list', 'joker:app', '--json').lines) == 101


def test_a_dead_letter_is_retried_once_unless_it_is_asked_for_again(capsys: Capture) -> None:
    in_store(three)
    [first] = command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', 't0', '--json').lines
    assert first == {'taskId': 't0', 'retriedAs': first['retriedAs']}
    refused = command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', 't0', '--task', 't2')
    assert refused.why == (1, f't0: The task has already been retried, as the task {first["retriedAs"]}.')
    assert refused.out.startswith('t2 -> ')
    [again] = command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', 't0', '--again', '--json').lines

    async def check(backend: Backend) -> None:
        assert await state_of(backend, first['retriedAs']) == await state_of(backend, again['retriedAs']) == 'submitted'
        assert len(await claim(backend)) == 2  # two tasks are of one context

    in_store(check)


def test_all_that_were_not_retried_yet_are_retried_perhaps_of_one_owner(capsys: Capture) -> None:
    in_store(three)

    def retried(*options: str) -> list[str]:
        lines = command(capsys, 'dead-letters', 'retry', 'joker:app', '--all', '--json', *options).lines
        return [line['taskId'] for line in lines]

    assert retried('--owner', '/ann') == ['t0', 't2']
    assert retried() == ['t1']
    assert retried() == []
    assert retried('--again') == ['t0', 't1', 't2']


def test_what_is_not_there_is_not_retried(capsys: Capture) -> None:
    in_store(three)
    outcomes = [command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', task).why for task in ('no', 'done')]
    assert outcomes == [
        (1, 'no: Task not found.'),
        (1, 'done: The task is completed and is not a dead letter: list the dead letters, or all failed tasks.'),
    ]


async def failed(backend: Backend) -> None:
    """A dead letter, and a task that failed for another reason."""
    await die(backend, 'dead')
    await submit(backend, message('do it', new='failed', owner='/ann'))
    await run(backend, 'failed', 'failed', failure='internal')


def test_failed_tasks_are_retried_after_a_yes(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    in_store(failed)
    lines = command(capsys, 'dead-letters', 'list', 'joker:app', '--failed', '--json').lines
    assert [(line['taskId'], line['failure']) for line in lines] == [('failed', 'internal'), ('dead', 'attempts')]
    retry = ('dead-letters', 'retry', 'joker:app', '--failed')
    assert command(capsys, *retry, '--task', 'failed').why == (
        2,
        'A failed task runs again from the beginning, with the tools that have finished before. To retry failed tasks,'
        ' add --yes.',
    )
    monkeypatch.setattr('sys.stdin', Terminal('n\ny\n'))
    no = command(capsys, *retry, '--task', 'failed')
    assert (no.code, no.out) == (1, '')
    assert 'from the beginning, with the tools that have finished before. Retry? [y/N]' in no.err
    [yes] = command(capsys, *retry, '--task', 'failed', '--json').lines
    assert yes['taskId'] == 'failed'
    again = command(capsys, *retry, '--all', '--yes', '--json').lines
    assert [line['taskId'] for line in again] == ['dead']


class Terminal(StringIO):
    """Answers at a prompt."""

    def isatty(self) -> bool:
        return True


def test_it_has_to_be_said_which_are_to_be_retried(capsys: Capture) -> None:
    assert [
        command(capsys, 'dead-letters', 'retry', 'joker:app').why,
        command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', 't', '--all').why,
        command(capsys, 'dead-letters', 'retry', 'joker:app', '--task', 't', '--caller', 'ann').why,
    ] == snapshot(
        [
            (2, 'Choose the items to retry: give --task or --all, not both.'),
            (2, 'Choose the items to retry: give --task or --all, not both.'),
            (2, 'An owner can only be combined with --all: --task already names one item.'),
        ]
    )
