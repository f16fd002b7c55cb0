"""The joined end of a task: what is joined is read as it was, damage is found, and reading takes few calls."""

from __future__ import annotations

import json
import sqlite3
from cProfile import Profile

import pytest

from pydantic_ai_a2a.errors import StoredDamaged
from pydantic_ai_a2a.server.store.sql import joined_items, task_reads
from pydantic_ai_a2a.server.store.sql.damaged_bodies import check_stored
from pydantic_ai_a2a.server.store.sqlite.execution import perform

LOOK_UP_CALLS = 20
"""Calls of a look-up of 1,000 messages and 1,000 artifacts, beyond those of a look-up of ten of each."""
TEXT = json.dumps({'parts': [{'text': 'x' * 200}]}).encode()


@pytest.mark.parametrize(
    'items',
    [
        [('message', 'm', b'{}')],
        [('artifact', 'a', b'{"a":"m1 a2"}'), ('message', 'm', b'{"m":"\n"}'), ('artifact', 'a2', b'{}')],
        [('message', 'm', b''), ('artifact', 'a', b'')],
    ],
)
def test_joined_items_are_split_unchanged(items: list[tuple[str, str, bytes]]) -> None:
    messages = [body for kind, _, body in items if kind == 'message']
    artifacts = [body for kind, _, body in items if kind == 'artifact']
    assert joined_items.split_items('t', joined_items.join_items(items)) == (messages, artifacts)


@pytest.mark.parametrize(
    'ending', [b'', b'oops', b'x2\n{}', b'\n{}', b'm2\n{', b'm2\n{}}', b'm-2\n{}', b'm\n{}', b'2\n{}']
)
def test_malformed_joined_items_are_reported_as_damaged(ending: bytes) -> None:
    with pytest.raises(StoredDamaged, match=r'^Task t has a stored end that cannot be read\.$'):
        joined_items.split_items('t', ending)


@pytest.mark.parametrize(
    'body',
    [
        b'',
        b'{"secret"',
        b'"secret"',
        b'{"secret":"\xff"}',
        b'{"secret":"%b\xff"}' % (b'x' * 70_000),
        b'{"secret":' + b'"x"' * 30_000,
    ],
)
@pytest.mark.parametrize('others', [[], [b'{"a":"%b"}' % (b'x' * 70_000)], [TEXT] * 1_000])
def test_invalid_stored_json_is_damaged_and_not_revealed(body: bytes, others: list[bytes]) -> None:
    check_stored('t', None, *others)
    with pytest.raises(StoredDamaged, match=r'^Task t has stored data that is not a JSON object: ') as raised:
        check_stored('t', *others, body)
    assert 'secret' not in str(raised.value)


def test_ended_task_lookup_calls_do_not_grow_with_items(
    connection: sqlite3.Connection,
) -> None:
    counts: list[int] = []
    for number in (10, 1_000):
        ending = joined_items.join_items([(kind, '', TEXT) for kind in ('message', 'artifact') for _ in range(number)])
        connection.execute(
            'INSERT INTO task (agent, id, owner, context_id, state, status_at, queue_seq, dialect, digest, accepted_at,'
            " message, ending) VALUES ('agent', ?, '/ada', 'c', 'completed', 1, ?, '1.0', '', 1, x'7b7d', ?)",
            (str(number), number, ending),
        )
        profile = Profile()
        profile.enable()
        task = perform(connection, task_reads.load('agent', str(number), None, history_length=None, artifacts=True))
        profile.disable()
        counts.append(sum(entry.callcount for entry in profile.getstats()))
        assert task is not None
        assert (task.history, task.artifacts) == ([b'{}'] + [TEXT] * number, [TEXT] * number)
    few, many = counts
    assert many - few <= LOOK_UP_CALLS
