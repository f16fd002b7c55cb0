"""The operator's commands in processes of their own, beside servers and workers over the same file."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from a2a.types import GetTaskRequest
from a2a.utils.errors import TaskNotFoundError

from ..bounds import LIMIT
from .official import collect, official_client, outline, say, task_of, text_of
from .test_cli import APPS, command, web, worker


async def run(where: Path, *arguments: str) -> tuple[int, list[Any]]:
    """How a command ends, and the JSON Lines that it writes, but for those of the audit log."""

    def lines() -> tuple[int, list[Any]]:
        with command(where, *arguments) as running:
            code = running.exit_code()
        written = [json.loads(line) for line in running.output.splitlines() if line.startswith('{')]
        return code, [line for line in written if 'event' not in line]

    return await asyncio.to_thread(lines)


def expire_leases(file: Path) -> None:
    with closing(sqlite3.connect(file, timeout=LIMIT)) as store, store:
        store.execute('UPDATE task SET lease_until = 0')


async def test_a_task_that_was_started_too_often_is_listed_and_runs_once_it_is_retried(tmp_path: Path) -> None:
    with web(tmp_path, 'fragile') as server:
        async with official_client(server.url) as client:
            stream = client.send_message(say('hello'))
            task = (await anext(stream)).task
            with worker(tmp_path, 'fragile', NAME='one', HANGS='1') as one:
                one.wait_for('A run has begun')
                one.signal(signal.SIGKILL)
                assert await one.ended() == -signal.SIGKILL
            expire_leases(tmp_path / 'agent.db')
            with worker(tmp_path, 'fragile', NAME='two'):
                assert outline(await collect(stream))[-1].startswith('FAILED')
                code, [letter] = await run(tmp_path, 'dead-letters', 'list', f'{APPS}:fragile', '--json')
                assert (code, letter['taskId'], letter['owner'], letter['attempts']) == (0, task.id, '/', 1)
                retry = ('dead-letters', 'retry', f'{APPS}:fragile', '--task', task.id, '--json')
                code, [retried] = await run(tmp_path, *retry)
                assert code == 0
                async with official_client(server.url, streaming=False) as plain:
                    next_ = await task_of(plain.send_message(say('and then?', context_id=task.context_id)))
            again = await client.get_task(GetTaskRequest(id=retried['retriedAs']))
    assert [text_of(each) for each in (again, next_)] == ['Answered by two.', 'Answered by two.']
    assert list(again.history[0].reference_task_ids) == [task.id]


async def test_what_a_server_in_use_has_is_exported_and_erased(tmp_path: Path) -> None:
    store = ('--backend', 'sqlite:///agent.db', '--namespace', 'shared', '--owner', '/')
    with command(tmp_path, 'serve', f'{APPS}:app', '--port', '0', NAME='the server') as server:
        async with official_client(server.url, streaming=False) as client:
            task = await task_of(client.send_message(say('remember SECRET')))
            code, lines = await run(tmp_path, 'export', *store)
            assert code == 0
            assert [line.get('task', {}).get('id') for line in lines] == [task.id, None]
            code, [counts] = await run(tmp_path, 'erase', *store, '--yes', '--compact', '--json')
            assert (code, counts['tasks'], counts['conversations']) == (0, 1, 1)
            assert [path.name for path in tmp_path.glob('agent.db*') if b'SECRET' in path.read_bytes()] == []
            assert await run(tmp_path, 'export', *store) == (1, [])
            assert text_of(await task_of(client.send_message(say('go on')))) == 'Answered by the server.'


async def test_a_run_in_another_process_is_cancelled_before_it_is_erased(tmp_path: Path) -> None:
    store = ('--backend', 'sqlite:///agent.db', '--namespace', 'shared', '--owner', '/')
    with web(tmp_path) as server, worker(tmp_path, NAME='one', HANGS='1') as running:
        async with official_client(server.url) as client:
            stream = client.send_message(say('hello'))
            task = (await anext(stream)).task
            running.wait_for('A run has begun')
            assert await run(tmp_path, 'erase', *store, '--yes') == (1, [])
            wait = ('--cancel', '--grace', str(LIMIT))
            code, [counts] = await run(tmp_path, 'erase', *store, '--yes', *wait, '--json')
            assert (code, counts['tasks']) == (0, 1)
            await collect(stream)  # it is over, and there is nothing left to tell of it
            with pytest.raises(TaskNotFoundError):
                await client.get_task(GetTaskRequest(id=task.id))
