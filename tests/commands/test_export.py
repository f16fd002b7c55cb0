"""`export`: JSON Lines with everything that is stored of an owner or a context."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot
from pydantic_ai.messages import ModelMessagesTypeAdapter

from pydantic_ai_a2a.store.ports import Backend

from ..suites.values import OWNER, said
from .command import command, finish, in_store

Capture = pytest.CaptureFixture[str]


async def two(backend: Backend) -> None:
    """Tasks of two owners, whose contexts have the same name."""
    await finish(backend, 'a')
    await finish(backend, 'b', context='d')
    await finish(backend, 'x', owner='/')


def test_an_export_is_a_line_for_each_task_and_each_conversation(capsys: Capture) -> None:
    in_store(two)
    lines = command(capsys, 'export', 'joker:app', '--caller', 'ann').lines
    assert [*lines[0]] == ['owner', 'task']
    assert lines[0] == snapshot(
        {
            'owner': '/ann',
            'task': {
                'id': 'a',
                'contextId': 'c',
                'status': {'state': 'TASK_STATE_COMPLETED', 'timestamp': '2023-11-14T22:13:20.000Z'},
                'artifacts': [{'artifactId': 'a', 'parts': [{'text': 'the result'}]}],
                'history': [
                    {
                        'messageId': 'message do a for a',
                        'role': 'ROLE_USER',
                        'parts': [{'text': 'do a'}],
                        'taskId': 'a',
                        'contextId': 'c',
                    }
                ],
            },
        }
    )
    assert [line['task']['id'] for line in lines[:2]] == ['a', 'b']
    assert [*lines[2]] == ['owner', 'conversation', 'messages', 'branches']
    assert [line['conversation']['conversation_id'] for line in lines[2:]] == ['c', 'd']


def test_the_messages_of_a_conversation_can_be_loaded_by_pydantic_ai(capsys: Capture) -> None:
    in_store(two)
    *_, line = command(capsys, 'export', 'joker:app', '--caller', 'ann', '--context', 'c').lines
    assert line['conversation']['usage']['requests'] == 1
    assert said(ModelMessagesTypeAdapter.validate_python(line['messages'])) == ['do a', 'the result']


def test_a_history_that_a_conversation_has_left_is_exported_too(capsys: Capture) -> None:
    async def branch(backend: Backend) -> None:
        await finish(backend, 'a', owner=OWNER)
        store = backend.conversations(OWNER)
        record = await store.read_record('c')
        assert record is not None
        await store.branch('c', at=1, expected_revision=record.revision)

    in_store(branch)
    *_, line = command(capsys, 'export', 'joker:app', '--owner', OWNER).lines
    assert said(ModelMessagesTypeAdapter.validate_python(line['messages'])) == ['do a']
    [left] = line['branches']
    assert said(ModelMessagesTypeAdapter.validate_python(left)) == ['do a', 'the result']


def test_an_export_of_a_context_is_that_of_who_is_anonymous_unless_an_owner_is_named(capsys: Capture) -> None:
    in_store(two)
    lines = command(capsys, 'export', 'joker:app', '--context', 'c').lines
    assert [line['owner'] for line in lines] == ['/', '/']
    assert lines[0]['task']['id'] == 'x'


def test_where_nothing_is_stored_the_export_says_so(capsys: Capture) -> None:
    in_store(two)
    assert command(capsys, 'export', 'joker:app', '--caller', 'eve') == (
        1,
        '',
        'pydantic-ai-a2a: no data is stored for the owner /eve\n',
    )
    assert command(capsys, 'export', 'joker:app', '--context', 'd') == (
        1,
        '',
        'pydantic-ai-a2a: no data is stored for the owner / in the context d\n',
    )
