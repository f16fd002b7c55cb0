"""`erase` and `export`: the data of an owner or a context."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pydantic_ai.messages import ModelMessagesTypeAdapter

from pydantic_ai_a2a.commands.erase import erase_all
from pydantic_ai_a2a.errors import UnsupportedOperationError
from pydantic_ai_a2a.server.store.ports import Backend, Erased
from pydantic_ai_a2a.server.store.sql.housekeeping import SqlHousekeeping
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.types import TaskState

from ..logs import audit_records
from ..suites.values import (
    OWNER,
    WAIT_LIMIT,
    claim_and_finish,
    claim_task,
    finish_of,
    message,
    model_texts,
    model_turn,
    submit,
)
from .command import add_completed_task, run_command, with_store

Capture = pytest.CaptureFixture[str]


async def add_data_of_two_owners(backend: Backend) -> None:
    """Tasks of two owners, whose contexts have the same name."""
    await add_completed_task(backend, 'a')
    await add_completed_task(backend, 'b', context='d')
    await add_completed_task(backend, 'x', owner='/')


def count_exported_lines(capsys: Capture, *whose: str) -> int:
    """How many lines an export has."""
    return len(run_command(capsys, 'export', 'joker:app', *whose).out.splitlines())


def test_erase_without_confirmation_only_counts_data(capsys: Capture) -> None:
    with_store(add_data_of_two_owners)
    whose = (('--caller', 'ann'), ('--caller', 'ann', '--context', 'c'), ('--caller', 'eve'), ('--context', 'nothing'))
    outcomes = [run_command(capsys, 'erase', 'joker:app', *each) for each in whose]
    assert {outcome.code for outcome in outcomes} == {1}
    assert [outcome.err.removeprefix('pydantic-ai-a2a: ') for outcome in outcomes] == snapshot(
        [
            '2 tasks and 2 conversations of the owner /ann would be erased: add --yes to erase\n',
            '1 task and 1 conversation of the owner /ann in the context c would be erased: add --yes to erase\n',
            'no data is stored for the owner /eve\n',
            'no data is stored for the owner / in the context nothing\n',
        ]
    )
    assert count_exported_lines(capsys, '--caller', 'ann') == 4


def test_erase_deletes_data_of_given_owner_only(capsys: Capture) -> None:
    with_store(add_data_of_two_owners)
    outcome = run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', '--yes')
    assert (outcome.code, outcome.err) == (0, '')
    assert outcome.out.partition(': ')[2] == snapshot(
        '2 tasks (4 messages and artifacts, 4 events), 2 conversations (4 model messages)\n'
    )
    assert (count_exported_lines(capsys, '--caller', 'ann'), count_exported_lines(capsys, '--owner', '/')) == (0, 2)


def audit_facts(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The audit log, without times and ids."""
    return [
        {name: value for name, value in record.items() if name != 'correlation_id'} for record in audit_records(caplog)
    ]


def unknown_user() -> str:
    raise KeyError('uid not found')


def test_erase_writes_audit_record_with_user(
    capsys: Capture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_store(add_data_of_two_owners)
    monkeypatch.setenv('LOGNAME', 'operator')
    assert run_command(capsys, 'erase', 'joker:app', '--caller', 'ann').code == 1
    assert run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', '--context', 'c', '--yes').code == 0
    monkeypatch.setattr('pydantic_ai_a2a.commands.audit_facts.getuser', unknown_user)
    assert run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', '--yes').code == 0
    assert run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', '--yes').code == 1
    counts = {'tasks': '1', 'items': '2', 'events': '2', 'conversations': '1', 'entries': '2'}
    known = {'event': 'erased', 'via': 'command', 'owner': '/ann', 'counts': counts}
    assert audit_facts(caplog) == [known | {'user': 'operator', 'context': 'c'}, known | {'user': str(os.getuid())}]


def test_erase_audits_tasks_canceled_by_command(
    capsys: Capture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live(backend: Backend) -> None:
        await submit(backend, message(new='running', context='c', owner='/ann'))
        await claim_task(backend, 'running', 'a process that was killed')
        await submit(backend, message(new='queued', context='c', owner='/ann'))

    with_store(live)
    caplog.set_level('INFO', 'pydantic_ai_a2a.audit')
    monkeypatch.setenv('LOGNAME', 'operator')
    options = ('--yes', '--cancel', '--grace', '0.01')
    assert run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', *options).code == 0
    *canceled, erased = audit_facts(caplog)
    who = {'via': 'command', 'user': 'operator', 'owner': '/ann'}
    assert sorted(canceled, key=lambda each: str(each['task'])) == [
        {'event': 'task-canceled', 'task': task, 'context': 'c', **who} for task in ('queued', 'running')
    ]
    assert (erased['event'], 'ended' in erased) == ('erased', False)


def test_erase_of_context_cancels_only_its_tasks(capsys: Capture, caplog: pytest.LogCaptureFixture) -> None:
    async def live(backend: Backend) -> None:
        for context in ('c', 'd'):
            await submit(backend, message(new=f'queued in {context}', context=context, owner='/ann'))

    with_store(live)
    caplog.set_level('INFO', 'pydantic_ai_a2a.audit')
    options = ('--context', 'c', '--yes', '--cancel', '--grace', '0.01')
    assert run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', *options).code == 0
    assert [(record['event'], record.get('task')) for record in audit_facts(caplog)] == [
        ('task-canceled', 'queued in c'),
        ('erased', None),
    ]


@pytest.mark.parametrize('state', ['canceled', 'completed'])
def test_cancel_is_audited_only_if_task_ends_canceled(state: TaskState, caplog: pytest.LogCaptureFixture) -> None:
    async def stop(backend: Backend) -> None:
        asked = asyncio.Event()
        stop_listening = backend.listen(lambda _: None, lambda _: asked.set())
        await submit(backend, message(new='t', context='c', owner='/ann'))
        claimed = await claim_task(backend, 't')
        async with asyncio.timeout(WAIT_LIMIT):
            erasing = asyncio.create_task(erase_all(backend, '/ann', None, grace=WAIT_LIMIT))
            await asked.wait()
            await backend.queue.finish(claimed, finish_of(claimed, state))
            assert (await erasing).tasks == 1
        stop_listening()

    caplog.set_level('INFO', 'pydantic_ai_a2a.audit')
    with_store(stop)
    canceled = ['task-canceled'] if state == 'canceled' else []
    assert [record['event'] for record in audit_facts(caplog)] == [*canceled, 'erased']


class FailingHousekeeping(SqlHousekeeping):
    """Fails at the second batch."""

    error: Exception
    batches = 0

    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        self.batches += 1
        if self.batches == 2:
            raise self.error
        return await super().erase(owner, context_id, at=at)


@pytest.mark.parametrize(
    ('error', 'ended'),
    [(OSError('the disk is gone'), 'broken off'), (UnsupportedOperationError('A task is queued.'), 'refused')],
)
def test_incomplete_erasure_is_audited_with_counts(
    error: Exception, ended: str, caplog: pytest.LogCaptureFixture, capsys: Capture
) -> None:
    async def erase(backend: Backend) -> None:
        assert isinstance(backend, SqliteFileBackend)
        backend.housekeeping = housekeeping = FailingHousekeeping(backend)
        housekeeping.error = error
        with pytest.raises(type(error)):
            await erase_all(backend, '/ann', None, grace=None)

    with_store(add_data_of_two_owners)
    with_store(erase)
    [record] = audit_facts(caplog)
    counts = {'tasks': '2', 'items': '4', 'events': '4', 'conversations': '0', 'entries': '0'}
    assert (record['event'], record['ended'], record['counts']) == ('erased', ended, counts)


def test_erase_of_context_prints_counts_as_json(capsys: Capture) -> None:
    with_store(add_data_of_two_owners)
    [counts] = run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', '--context', 'c', '--yes', '--json').lines
    assert counts == snapshot(
        {'owner': '/ann', 'contextId': 'c', 'tasks': 1, 'items': 2, 'events': 2, 'conversations': 1, 'entries': 2}
    )
    assert (count_exported_lines(capsys, '--caller', 'ann'), count_exported_lines(capsys, '--owner', '/')) == (2, 2)


@pytest.mark.parametrize('command', [('erase', '--yes'), ('export',)], ids=' '.join)
def test_command_for_owner_or_context_without_data_fails(command: tuple[str, ...], capsys: Capture) -> None:
    with_store(add_data_of_two_owners)
    for whose, text in ((('--caller', 'eve'), 'the owner /eve'), (('--context', 'd'), 'the owner / in the context d')):
        outcome = run_command(capsys, *command, 'joker:app', *whose)
        assert outcome == (1, '', f'pydantic-ai-a2a: no data is stored for {text}\n')


def test_active_tasks_are_erased_only_with_cancel_option(capsys: Capture) -> None:
    async def live(backend: Backend) -> None:
        await submit(backend, message(new='waiting', context='w', owner='/ann'))
        await claim_and_finish(backend, 'waiting', 'input-required')
        await submit(backend, message(new='running', context='c', owner='/ann'))
        await claim_task(backend, 'running', 'a process that was killed')
        await submit(backend, message(new='queued', context='c', owner='/ann'))

    with_store(live)
    code, why = run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', '--yes').why
    assert (code, why.partition(' is queued')[2]) == snapshot(
        (1, ' or running; cancel it before you erase its context or its owner. Or add --cancel.')
    )
    cancelling = ('--yes', '--cancel', '--grace', '0.01')
    assert run_command(capsys, 'erase', 'joker:app', '--caller', 'ann', *cancelling).out == snapshot(
        'erased for the owner /ann: 3 tasks (3 messages and artifacts, 5 events), 0 conversations (0 model messages)\n'
    )


def test_compacted_sqlite_file_keeps_no_erased_data(capsys: Capture, app_directory: Path) -> None:
    def found(*words: bytes) -> list[int]:
        content = b''.join(path.read_bytes() for path in app_directory.glob('agent.db*'))
        return [content.count(word) for word in words]

    async def fill(backend: Backend) -> None:
        for n in range(60):
            for owner, word in (('/ann', 'SECRET'), ('/bob', 'HARMLESS')):
                text = f'{word} ' * 3 ** (n % 8)
                await submit(backend, message(text, new=f'{word}-{n}', context=f'{word}-{n % 7}', owner=owner))
                await claim_and_finish(backend, f'{word}-{n}', messages=model_turn(text, text))
        # In use by another process, as it seems to the command: nothing but the command empties the WAL.
        outcome = await asyncio.to_thread(
            run_command, capsys, 'erase', 'joker:app', '--owner', '/ann', '--yes', '--compact'
        )
        assert outcome.code == 0
        assert found(b'SECRET', b'/ann') == [0, 0]
        assert found(b'HARMLESS') > [0]

    with_store(fill)


# --- `export`


def test_export_writes_line_per_task_and_conversation(capsys: Capture) -> None:
    with_store(add_data_of_two_owners)
    lines = run_command(capsys, 'export', 'joker:app', '--caller', 'ann').lines
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


def test_exported_messages_load_in_pydantic_ai(capsys: Capture) -> None:
    with_store(add_data_of_two_owners)
    *_, line = run_command(capsys, 'export', 'joker:app', '--caller', 'ann', '--context', 'c').lines
    assert line['conversation']['usage']['requests'] == 1
    assert model_texts(ModelMessagesTypeAdapter.validate_python(line['messages'])) == ['do a', 'the result']


def test_export_includes_abandoned_conversation_branches(capsys: Capture) -> None:
    async def branch(backend: Backend) -> None:
        await add_completed_task(backend, 'a', owner=OWNER)
        store = backend.conversations(OWNER)
        record = await store.read_record('c')
        assert record is not None
        await store.branch('c', at=1, expected_revision=record.revision)

    with_store(branch)
    *_, line = run_command(capsys, 'export', 'joker:app', '--owner', OWNER).lines
    assert model_texts(ModelMessagesTypeAdapter.validate_python(line['messages'])) == ['do a']
    [left] = line['branches']
    assert model_texts(ModelMessagesTypeAdapter.validate_python(left)) == ['do a', 'the result']


def test_export_of_context_defaults_to_anonymous_owner(capsys: Capture) -> None:
    with_store(add_data_of_two_owners)
    lines = run_command(capsys, 'export', 'joker:app', '--context', 'c').lines
    assert [line['owner'] for line in lines] == ['/', '/']
    assert lines[0]['task']['id'] == 'x'
