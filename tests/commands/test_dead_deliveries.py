"""`dead-deliveries list` and `dead-deliveries retry`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.store.ports import Backend, PushConfig

from ..suites.values import AT, LEASE, message, submit
from .command import command, finish, in_store

Capture = pytest.CaptureFixture[str]
_ID = re.compile(r'\b[0-9a-f]{32}\.\d+')


def dead(count: int = 3) -> Callable[[Backend], Awaitable[None]]:
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
            await backend.queue.cancel(task_id, owner, at=AT + n)
            [delivery] = (await outbox.lease(lease=LEASE, limit=1, held={})).deliveries
            await outbox.failed(delivery, at=AT + n, pause=None, error='HTTP 500')

    return fill


def test_dead_deliveries_are_listed_for_people(capsys: Capture) -> None:
    in_store(dead(2))
    listed = command(capsys, 'dead-deliveries', 'list', 'joker:app').out
    assert re.sub(rf'{_ID.pattern} *', 'ID  ', listed) == snapshot("""\
DELIVERY                            TASK  CONFIGURATION  OWNER  EVENT  STATE     DIED                      TRIES  ERROR
ID  t0    mine           /ann   1      canceled  2023-11-14T22:13:20.000Z  1      HTTP 500
ID  t1    mine           /bob   1      canceled  2023-11-14T22:13:20.001Z  1      HTTP 500
""")


def test_dead_deliveries_are_listed_for_programs(capsys: Capture) -> None:
    in_store(dead())
    [line] = command(capsys, 'dead-deliveries', 'list', 'joker:app', '--caller', 'bob', '--json').lines
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


def test_where_there_are_none_nothing_is_listed(capsys: Capture) -> None:
    in_store(lambda backend: finish(backend, 'done'))
    assert command(capsys, 'dead-deliveries', 'list', 'joker:app') == (0, '', '')
    assert command(capsys, 'dead-deliveries', 'list', 'joker:app', '--json') == (0, '', '')
    assert command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--all') == (0, '', '')


def ids(capsys: Capture) -> list[str]:
    return [line['deliveryId'] for line in command(capsys, 'dead-deliveries', 'list', 'joker:app', '--json').lines]


def test_those_that_are_named_are_retried_once(capsys: Capture) -> None:
    in_store(dead())
    first, *rest = ids(capsys)
    assert command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--delivery', first) == (0, f'{first}\n', '')
    assert ids(capsys) == rest
    again = command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--delivery', first, '--delivery', rest[0])
    assert (again.code, again.out) == (1, f'{rest[0]}\n')
    assert again.err == (
        f'pydantic-ai-a2a: error: {first}: No dead delivery has this id: list the dead deliveries.'
        ' A retried delivery is no longer dead.\n'
    )


def test_all_of_an_owner_are_retried(capsys: Capture) -> None:
    in_store(dead())
    retried = command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--all', '--caller', 'ann', '--json')
    assert [[*line] for line in retried.lines] == [['deliveryId'], ['deliveryId']]
    assert len(ids(capsys)) == 1
    assert command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--all').code == 0
    assert ids(capsys) == []


def test_more_of_them_than_a_page_are_all_listed(capsys: Capture) -> None:
    in_store(dead(101))
    assert len(ids(capsys)) == 101


@pytest.mark.parametrize('which', [(), ('--all', '--delivery', 'x')])
def test_which_ones_has_to_be_said(capsys: Capture, which: tuple[str, ...]) -> None:
    assert command(capsys, 'dead-deliveries', 'retry', 'joker:app', *which).code == 2


def test_an_owner_is_for_all(capsys: Capture) -> None:
    in_store(dead(1))
    why = command(capsys, 'dead-deliveries', 'retry', 'joker:app', '--delivery', 'x', '--caller', 'ann').why
    assert why == (2, 'An owner can only be combined with --all: --delivery already names one item.')


def test_a_backend_without_push_notifications_has_none(capsys: Capture, tmp_path: Path) -> None:
    Path('without.py').write_text(
        'from pydantic_ai import Agent\n'
        'from pydantic_ai_a2a import to_a2a\n'
        'from pydantic_ai_a2a.store.sqlite.backend import SqliteFile, SqliteFileBackend\n'
        "backend = SqliteFileBackend(SqliteFile.of('sqlite:///agent.db'), 'joker', reader_lag=1000)\n"
        'backend.outbox = None\n'
        "app = to_a2a(Agent('test'), backend=backend)\n"
    )
    why = command(capsys, 'dead-deliveries', 'list', 'without:app').why
    assert why == (2, 'This backend stores no push notifications, so it has no dead deliveries.')
