"""SQLite files that are deleted, replaced, damaged or readable by others, and rows that the package has not written."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a import Workers
from pydantic_ai_a2a.commands.cli import main
from pydantic_ai_a2a.server.store.sql import filing
from pydantic_ai_a2a.server.store.sqlite.connect import connect
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ...agents import echo_prompts
from ...app_client import LIMIT, Client, RpcError, message, state_of, texts
from ...dialects import in_no_version, only_in
from ...logs import log_event
from ...serving import serving, wait_until_ended
from ..promised_behaviours import covers
from ..waiting_tool import WaitingToolAgent, readiness, refused_by_store, wait_until_ready

ROW = 'storage error in one task'
BELOW = in_no_version('where tasks are kept is below what versions differ in')


def delete(file: Path) -> None:
    file.rename(file.with_name('moved'))


def replace(file: Path) -> None:
    """Replace the file in one step: the server never sees that there is none."""
    file.with_name('moved').hardlink_to(file)
    other_file = file.with_name('other')
    with closing(sqlite3.connect(other_file)) as other:
        other.execute('CREATE TABLE other (x)')
    other_file.replace(file)


@BELOW
@covers(ROW)
@pytest.mark.parametrize(
    ('take_away', 'happened'),
    [(delete, 'was deleted while it is open'), (replace, 'was replaced by another file while it is open')],
)
async def test_server_without_sqlite_file_refuses_messages(
    take_away: Callable[[Path], None], happened: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clerk, file = WaitingToolAgent(), tmp_path / 'agent.db'
    async with serving(clerk.agent, backend=f'sqlite:///{file}', workers=Workers(lease=0.3)) as client:
        task = await client.send('hi', returnImmediately=True)
        await clerk.reached.wait()
        take_away(file)
        assert await refused_by_store(client) == (503, '1', -32000)
        assert await readiness(client) == (503, 'failed')
        with log_event(f'task {task["id"]} continues once') as waiting:
            clerk.go_on.set()
            assert await asyncio.to_thread(waiting.wait, LIMIT)
        file.with_name('moved').rename(file)
        done = await wait_until_ended(client, task['id'])
        await wait_until_ready(client)
    assert (state_of(done), texts(done), clerk.requests, clerk.calls) == ('COMPLETED', ['booked'], 2, 1)
    told = f'The SQLite file {file} is unavailable: {file} {happened}. Put the file back, or restart this process.'
    assert told in caplog.messages
    assert f'The SQLite file {file} is available again.' in caplog.messages


@BELOW
@covers(ROW)
async def test_server_with_lost_wal_refuses_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / 'agent.db'
    backend = f'sqlite:///{file}'
    async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=backend) as client:
        task = await client.send('hi')
        delete(file)
        with closing(sqlite3.connect(file)) as other:
            other.execute('CREATE TABLE other (x)')
        file.with_name('moved').rename(file)
        assert await refused_by_store(client) == (503, '1', -32000)
        assert await readiness(client) == (503, 'failed')
    assert f'{file}-wal was deleted or replaced while it is open. Restart this process.' in caplog.text
    async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=backend) as client:
        assert await client.get_task(task['id']) == task
        await client.send('hi')


def damage(file: Path) -> None:
    """Write over all pages of the file, after the WAL was emptied into it."""
    with closing(sqlite3.connect(file, timeout=LIMIT)) as other:
        other.execute('CREATE TABLE other (x)')
        other.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    with file.open('r+b') as pages:
        size = pages.seek(0, os.SEEK_END)
        pages.seek(100)
        pages.write(b'\xff' * (size - 100))


@BELOW
@covers(ROW)
async def test_damaged_file_is_reported_by_log_and_commands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / 'agent.db'
    async with serving(
        Agent(FunctionModel(echo_prompts), name='agent'), backend=f'sqlite:///{file}', workers=Workers(lease=3600)
    ) as client:
        await client.send('hi')
        damage(file)
        assert await refused_by_store(client) == (503, '1', -32000)
        assert (await readiness(client))[0] == 503
    [told] = [each for each in caplog.messages if each.startswith(f'The SQLite file {file} is unavailable: ')]
    assert 'the file is damaged: database disk image is malformed (SQLITE_CORRUPT' in told
    url = f'sqlite:///{file}'
    with pytest.raises(SystemExit) as ended_with:
        await asyncio.to_thread(main, ['dead-letters', 'list', '--backend', url, '--namespace', 'agent'])
    assert ended_with.value.code == 1
    assert 'the file is damaged: ' in capsys.readouterr().err


def test_command_reports_damaged_sqlite_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / 'agent.db'
    connect(SqliteFile(path=file)).close()
    with closing(sqlite3.connect(file)) as other:
        page, size = other.execute(
            "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size() WHERE name = 'task_dead'"
        ).fetchone()
    with file.open('r+b') as pages:
        pages.seek((page - 1) * size)
        pages.write(b'\xff' * size)
    with pytest.raises(SystemExit) as ended_with:
        main(['dead-letters', 'list', '--backend', f'sqlite:///{file}', '--namespace', 'agent'])
    assert ended_with.value.code == 1
    assert 'try again later. (the file is damaged: database disk image is malformed' in capsys.readouterr().err


async def test_new_file_is_readable_only_by_owner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = os.umask(0)
    try:
        async with serving(
            Agent(FunctionModel(echo_prompts), name='agent'), backend=f'sqlite:///{tmp_path}/agent.db'
        ) as client:
            await client.send('hi')
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == {'agent.db': 0o600, 'agent.db-wal': 0o600, 'agent.db-shm': 0o600}
    assert caplog.messages == []


async def test_world_readable_file_is_logged_and_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / 'agent.db'
    file.touch()
    file.chmod(0o644)
    async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=f'sqlite:///{file}') as client:
        await client.send('hi')
    assert file.stat().st_mode & 0o777 == 0o644
    [told] = caplog.messages
    assert told.startswith(f'Other users of this machine can read the SQLite file {file} (mode 0644): ')


async def written(client: Client, file: Path, statement: str) -> str:
    """Write something into the row of a new task; its id."""
    task = await client.send('first')
    with closing(sqlite3.connect(file, timeout=LIMIT)) as operator:
        assert operator.execute(statement, {'task': task['id']}).rowcount == 1
        operator.commit()
    return task['id']


STATE = "UPDATE task SET state = 'dreaming' WHERE id = :task"
ARTIFACT = "UPDATE task SET ending = CAST('a' || length(:body) || char(10) || :body AS BLOB) WHERE id = :task"
ENDINGS = [f"UPDATE task SET ending = CAST('{ending}' AS BLOB) WHERE id = :task" for ending in ('oops', 'x5')]
BROKEN = [STATE, *ENDINGS, *(ARTIFACT.replace(':body', f"'{body}'") for body in ('{"parts":[', 'oops', '5'))]
LONG = ARTIFACT.replace(':body', """'{"a":"' || hex(zeroblob(100000))""")


@only_in('1.0', '0.3 has no lists')
@covers(ROW)
@pytest.mark.parametrize('statement', [*BROKEN, LONG])
async def test_list_tasks_omits_damaged_task(
    statement: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filing, 'EVERY', 1)  # the ends of the other tasks file the tasks before
    file = tmp_path / 'agent.db'
    async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=f'sqlite:///{file}') as client:
        damaged = await written(client, file, statement)
        others = [(await client.send(text))['id'] for text in ('second', 'third')]
        everything: dict[str, Any] = {'includeArtifacts': True}
        listed = await client.call('ListTasks', everything)
        pages = [await client.call('ListTasks', {**everything, 'pageSize': 1})]
        while token := pages[-1]['nextPageToken']:
            pages.append(await client.call('ListTasks', {**everything, 'pageSize': 1, 'pageToken': token}))
    ids = [task['id'] for task in listed['tasks']]
    assert sorted(ids) == sorted(others)
    assert [task['id'] for page in pages for task in page['tasks']] == ids
    assert any(each.startswith(f'A list leaves out a damaged task: Task {damaged} ') for each in caplog.messages)


@covers(ROW)
@pytest.mark.parametrize('statement', BROKEN)
async def test_get_damaged_task_is_logged_internal_error(
    statement: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / 'agent.db'
    async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=f'sqlite:///{file}') as client:
        damaged = await written(client, file, statement)
        with pytest.raises(RpcError) as raised:
            await client.get_task(damaged)
        assert texts(await client.send(message('second'))) == ['second']
    assert (raised.value.code, raised.value.message.rstrip('.')) == (-32603, 'Internal error')
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.getMessage().startswith('Request failed (correlation id ')
    assert damaged in str(record.exc_info and record.exc_info[1])


async def test_task_in_unknown_state_can_be_erased(tmp_path: Path) -> None:
    file = tmp_path / 'agent.db'
    async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=f'sqlite:///{file}') as client:
        app = client.a2a_app
        assert await app.erase_task(await written(client, file, STATE))
        await written(client, file, STATE)
        with closing(sqlite3.connect(file)) as other:
            [(context,)] = other.execute('SELECT context_id FROM task').fetchall()
            assert await app.erase_context(context)
            assert other.execute('SELECT * FROM task').fetchall() == []
