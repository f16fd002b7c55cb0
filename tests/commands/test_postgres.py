"""The commands over a PostgreSQL database."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.commands.cli import main
from pydantic_ai_a2a.server.store import postgres as postgres_room
from pydantic_ai_a2a.server.store.postgres.migration_steps import script_of
from pydantic_ai_a2a.server.store.postgres.settings import Postgres
from pydantic_ai_a2a.server.store.sql.migrations import FIRST, MIGRATIONS, newest

from ..app_client import message
from ..e2e.server import LIMIT, process, rpc
from ..postgres import Postgres as Server
from ..postgres import postgres_server
from .command import add_completed_task, add_dead_letter, run_command, with_store

Capture = pytest.CaptureFixture[str]
NEWEST = newest(MIGRATIONS)


def database(url: str) -> str:
    """The name of a database."""
    return urlsplit(url).path[1:]


def schema(server: Server, url: str) -> list[str]:
    """Every column and every index that there is."""
    columns = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'a2a'"
    indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'a2a'"
    return sorted(server.run(columns, database(url)) + server.run(indexes, database(url)))


def test_migrate_upgrades_postgres_schema(capsys: Capture, postgres: Server, postgres_url: str) -> None:
    outcomes = [
        run_command(capsys, 'migrate', '--backend', postgres_url, *options)
        for options in (['--check'], [], [], ['--check'])
    ]
    assert [outcome.code for outcome in outcomes] == [1, 0, 0, 0]
    assert [re.sub(rf'\b{NEWEST}\b', 'N', outcome.err) for outcome in outcomes] == snapshot(
        [
            'pydantic-ai-a2a: the store has the schema 0, and N is the newest\n',
            'pydantic-ai-a2a: the store has the schema N, and had 0 before\n',
            'pydantic-ai-a2a: the store has the schema N already\n',
            'pydantic-ai-a2a: the store has the schema N, and N is the newest\n',
        ]
    )


def test_printed_sql_has_all_steps_and_creates_same_schema(
    capsys: Capture, postgres: Server, postgres_url: str
) -> None:
    printed = run_command(capsys, 'migrate', '--backend', postgres_url, '--sql').out
    assert run_command(capsys, 'migrate', '--backend', postgres_url, '--all-sql').out == printed
    assert [line for line in printed.splitlines() if line.startswith('-- Step')] == [
        f'-- Step {n}' for n in range(FIRST, NEWEST + 1)
    ]
    assert run_command(capsys, 'migrate', '--backend', postgres_url, '--check').code == 1
    postgres.run(printed, database(postgres_url))
    assert run_command(capsys, 'migrate', '--backend', postgres_url, '--sql') == (0, '', '')
    with postgres.database() as started:
        assert run_command(capsys, 'migrate', '--backend', started).code == 0
        assert schema(postgres, postgres_url) == schema(postgres, started)


IN_SCHEMA = """
from pydantic_ai import Agent
from pydantic_ai_a2a import Postgres, to_a2a

app = to_a2a(Agent('test', name='joker'), backend=Postgres({!r}, schema='elsewhere'))
"""


def test_migrate_uses_postgres_schema_of_app(
    capsys: Capture, app_directory: Path, postgres: Server, postgres_url: str
) -> None:
    (app_directory / 'joker.py').write_text(IN_SCHEMA.format(postgres_url))
    printed = run_command(capsys, 'migrate', 'joker:app', '--sql').out
    postgres.run('CREATE SCHEMA elsewhere', database(postgres_url))  # as somebody does who grants rights first
    postgres.run(printed, database(postgres_url))
    outcomes = [run_command(capsys, 'migrate', 'joker:app', *options).code for options in (['--check'], [])]
    assert outcomes == [0, 0]
    schemas = "SELECT DISTINCT table_schema FROM information_schema.tables WHERE table_name = 'task'"
    assert postgres.run(schemas, database(postgres_url)) == ['elsewhere']


def test_migrate_reports_unusable_database(capsys: Capture, postgres: Server, postgres_url: str) -> None:
    newer = [*MIGRATIONS, ['UPDATE a2a_schema SET min_reader = 99']]
    postgres.run(script_of(Postgres(postgres_url), newer, 0), database(postgres_url))
    urls = ('postgresql://ann:hunter2@/db?pool=1', postgres.url('missing'), postgres_url, 'postgresql:///db?host=/away')
    outcomes = [run_command(capsys, 'migrate', '--backend', url, '--check') for url in urls]
    assert [outcome.code for outcome in outcomes] == [2, 1, 1, 1]
    assert [
        outcome.why[1].partition('(schema a2a) ')[2].partition(' of pyd')[0] for outcome in outcomes[1:]
    ] == snapshot(
        [
            'cannot be used: database "missing" does not exist.',
            'cannot be used: it was written by a newer version',
            'cannot be used: [Errno 2] No such file or directory.',
        ]
    )
    assert 'hunter2' not in outcomes[0].err


@pytest.mark.parametrize(
    ('module', 'error'),
    [('asyncpg', SystemExit), ('pydantic_ai_a2a.server.store.sql.migrations', ModuleNotFoundError)],
    ids=['driver', 'broken'],
)
def test_missing_postgres_driver_is_reported(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, module: str, error: type[BaseException]
) -> None:
    for name in ('connect', 'migration'):
        monkeypatch.delattr(postgres_room, name, raising=False)
        monkeypatch.delitem(sys.modules, f'pydantic_ai_a2a.server.store.postgres.{name}', raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(error) as raised:
        main(['migrate', '--backend', 'postgresql://host/db', '--check'])
    assert isinstance(raised.value, ModuleNotFoundError) or 'pip install' in capsys.readouterr().err


def test_operator_commands_work_with_postgres(capsys: Capture, postgres_url: str) -> None:
    store = ('--backend', postgres_url, '--namespace', 'joker')
    with_store(lambda backend: add_dead_letter(backend, 'dead'), postgres_url)
    with_store(lambda backend: add_completed_task(backend, 'done', context='d'), postgres_url)
    assert [line['taskId'] for line in run_command(capsys, 'dead-letters', 'list', *store, '--json').lines] == ['dead']
    assert run_command(capsys, 'dead-letters', 'retry', '--task', 'dead', *store).code == 0
    exported = run_command(capsys, 'export', *store, '--caller', 'ann').lines
    assert {line['task']['id'] for line in exported if 'task' in line} >= {'dead', 'done'}
    assert run_command(capsys, 'erase', *store, '--caller', 'ann', '--context', 'd', '--yes').code == 0
    left = run_command(capsys, 'export', *store, '--caller', 'ann').lines
    assert 'done' not in {line['task']['id'] for line in left if 'task' in line}


async def test_served_agent_is_not_ready_during_database_outage(app_directory: Path) -> None:
    with postgres_server() as database:
        arguments = ('-m', 'pydantic_ai_a2a', 'serve', 'joker:agent', '--backend', database.url(), '--port', '0')
        with process(*arguments, cwd=app_directory) as server:
            async with httpx.AsyncClient(timeout=LIMIT) as http:
                call = rpc('SendMessage', message=message('hello'))
                answer = await http.post(server.url, json=call, headers={'A2A-Version': '1.0'})
                assert answer.json()['result']['task']['status']['state'] == 'TASK_STATE_COMPLETED'
                database.stop()
                async with asyncio.timeout(LIMIT):
                    while (health := await http.get(f'{server.url}health/ready')).status_code == 200:
                        pass
                assert health.json()['components'] == {
                    'server': 'ok',
                    'agent': 'ok',
                    'worker': 'ok',
                    'backend': 'failed',
                }
                database.start()
                async with asyncio.timeout(LIMIT):
                    while (await http.get(f'{server.url}health/ready')).status_code != 200:
                        pass
