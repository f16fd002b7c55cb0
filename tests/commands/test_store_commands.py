"""Which store and whose data a command works on, and `migrate`, which takes or prints the steps of a store."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.commands.owner_options import owner_option, owner_or_anonymous
from pydantic_ai_a2a.server.store.sql.migrations import FIRST, MIGRATIONS, newest
from pydantic_ai_a2a.server.store.sqlite.connect import connect
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ..cases import each_case
from .command import STORE_OPTIONS, add_dead_letter, run_command, with_store

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize('store', [('joker:app',), STORE_OPTIONS, ('joker:agent', '--backend', 'sqlite:///agent.db')])
def test_store_is_found_by_app_agent_or_url(store: tuple[str, ...], capsys: Capture) -> None:
    with_store(lambda backend: add_dead_letter(backend, 't'))
    assert [line['taskId'] for line in run_command(capsys, 'dead-letters', 'list', *store, '--json').lines] == ['t']


def test_custom_backend_is_entered_and_exited(capsys: Capture) -> None:
    with_store(lambda backend: add_dead_letter(backend, 't'))
    assert len(run_command(capsys, 'dead-letters', 'list', 'joker:own', '--json').lines) == 1
    assert sys.modules['joker'].entered == ['in', 'out']


NO_AGENT = 'Name the agent: give an app, such as joker:app, or both --backend and --namespace'


@each_case(
    'line, reason',
    [
        ('', NO_AGENT),
        ('--backend sqlite:///agent.db', NO_AGENT),
        ('--namespace joker', NO_AGENT),
        ('joker:app --namespace joker', '--namespace cannot be combined with an app, which has its own namespace'),
        ('joker:memory', 'joker:memory keeps its tasks in the memory of one process'),
        ('joker:parent', 'joker:parent holds 2 apps: name one of them, or its --backend and --namespace'),
        ('--backend sqlite:///mistyped.db --namespace joker', 'There is no file /mistyped.db.'),
        ('--backend sqlite:// --namespace joker', "'sqlite://' names no file: write 'sqlite:///relative/path.db'"),
        ('--backend memory --namespace joker', "backend must be 'memory', 'sqlite:///agent.db', 'postgresql://host/"),
    ],
)
def test_invalid_store_options_are_refused(line: str, reason: str, capsys: Capture, app_directory: Path) -> None:
    code, why = run_command(capsys, 'dead-letters', 'list', *line.split()).why
    assert code == 2
    assert why.replace(str(app_directory), '').startswith(reason)


def test_owner_key_is_built_from_caller_and_tenant() -> None:
    names = (
        (None, None, None),
        ('/', None, None),
        ('acme/ann', None, None),
        (None, 'ann', None),
        (None, 'a/b', 'ac me'),
        (None, None, 'acme'),
    )
    assert [owner_option(*name) for name in names] == [None, '/', 'acme/ann', '/ann', 'ac%20me/a%2Fb', 'acme/']


def test_context_without_owner_belongs_to_anonymous_owner() -> None:
    assert owner_or_anonymous(None, 'c') == '/'
    assert owner_or_anonymous('/ann', 'c') == '/ann'
    assert owner_or_anonymous('/', None) == '/'


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        ((), 'Name an owner with --owner or --caller'),
        (('--owner', 'ann'), "'ann' is not an owner: write TENANT/CALLER, such as /ann, or --caller ann"),
        (('--owner', '/ann', '--caller', 'ann'), 'or with --caller and --tenant, not with both'),
        (('--owner', '/ann', '--tenant', 'acme'), 'or with --caller and --tenant, not with both'),
    ],
)
def test_ambiguous_owner_options_are_refused(capsys: Capture, options: tuple[str, ...], text: str) -> None:
    code, why = run_command(capsys, 'export', 'joker:app', *options).why
    assert code == 2
    assert text in why


# --- `migrate`

URL = 'sqlite:///agent.db'
NEWEST = newest(MIGRATIONS)


def schema(path: Path) -> list[tuple[str, str]]:
    """Everything that a database has."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute('SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL').fetchall()
    return sorted((name, ' '.join(sql.split())) for name, sql in rows)


def test_migrate_upgrades_sqlite_schema(capsys: Capture, app_directory: Path) -> None:
    connect(SqliteFile(path=app_directory / 'agent.db'), []).close()
    outcomes = [
        run_command(capsys, 'migrate', '--backend', URL, *options) for options in (['--check'], [], [], ['--check'])
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


def test_printed_sql_creates_same_schema_as_start(capsys: Capture, app_directory: Path) -> None:
    printed = run_command(capsys, 'migrate', '--backend', URL, '--all-sql').out
    with closing(sqlite3.connect(app_directory / 'printed.db')) as connection:
        connection.executescript(printed)
    connect(SqliteFile(path=app_directory / 'started.db')).close()
    assert schema(app_directory / 'printed.db') == schema(app_directory / 'started.db')
    assert run_command(capsys, 'migrate', '--backend', 'sqlite:///printed.db', '--check').code == 0
    assert not (app_directory / 'agent.db').exists()


def test_sql_option_only_prints_missing_steps(capsys: Capture, app_directory: Path) -> None:
    connect(SqliteFile(path=app_directory / 'agent.db'), []).close()
    printed = run_command(capsys, 'migrate', '--backend', URL, '--sql').out
    assert printed.startswith('BEGIN;\n')
    assert [line for line in printed.splitlines() if line.startswith('-- Step')] == [
        f'-- Step {n}' for n in range(FIRST, NEWEST + 1)
    ]
    assert run_command(capsys, 'migrate', '--backend', URL, '--check').code == 1
    with closing(sqlite3.connect(app_directory / 'agent.db')) as connection:
        connection.executescript(printed)
    assert run_command(capsys, 'migrate', '--backend', URL, '--sql') == (0, '', '')


def test_missing_sqlite_file_lacks_all_steps(capsys: Capture, app_directory: Path) -> None:
    everything = run_command(capsys, 'migrate', '--backend', URL, '--all-sql').out
    assert run_command(capsys, 'migrate', '--backend', URL, '--sql').out == everything
    sqlite3.connect(app_directory / 'agent.db').close()
    assert run_command(capsys, 'migrate', '--backend', URL, '--sql').out == everything


def test_migrate_accepts_newer_compatible_schema(capsys: Capture, app_directory: Path) -> None:
    connect(SqliteFile(path=app_directory / 'agent.db'), [*MIGRATIONS, []]).close()
    outcomes = [run_command(capsys, 'migrate', '--backend', URL, *options) for options in (['--check'], ['--sql'], [])]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0]
    assert [re.sub(rf'\b{NEWEST + 1}\b', 'N', outcome.err) for outcome in outcomes] == snapshot(
        [
            'pydantic-ai-a2a: the store has the schema N, and N is the newest\n',
            '',
            'pydantic-ai-a2a: the store has the schema N already\n',
        ]
    )
    assert outcomes[1].out == ''


@pytest.mark.parametrize('target', ['app', 'parent', 'own'])
def test_migrate_finds_store_of_app(capsys: Capture, app_directory: Path, target: str) -> None:
    connect(SqliteFile(path=app_directory / 'agent.db'), []).close()
    outcomes = [
        run_command(capsys, 'migrate', f'joker:{target}', *options) for options in (['--check'], [], ['--check'])
    ]
    assert [outcome.code for outcome in outcomes] == [1, 0, 0]


APPS = """
from pydantic_ai import Agent
from pydantic_ai_a2a import mount, to_a2a
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from starlette.applications import Starlette

agent = Agent('test', name='joker')
several = Starlette()
for name in ('ann', 'bob'):
    mount(several, f'/{name}', to_a2a(agent, backend=f'sqlite:///{name}.db'))


class Foreign(MemoryBackend):
    durable = True


foreign = to_a2a(agent, backend=Foreign('joker', reader_lag=1000))
"""


@each_case(
    'target, reason',
    [
        ((), 'Name the store: give an app, such as joker:app, or --backend'),
        (('joker:several',), 'joker:several holds apps with several stores: name one of'),
        (('joker:foreign',), 'joker:foreign has a custom backend: the command upgrades only'),
        (('joker:agent',), 'joker:agent keeps its tasks in the memory of one process'),
    ],
)
def test_migrate_refuses_target_without_single_known_store(
    target: tuple[str, ...], reason: str, capsys: Capture, app_directory: Path
) -> None:
    (app_directory / 'joker.py').write_text(APPS)
    code, why = run_command(capsys, 'migrate', *target, '--check').why
    assert code == 2
    assert why.startswith(reason)


def test_migrate_reports_unusable_store(capsys: Capture, app_directory: Path) -> None:
    (app_directory / 'text.db').write_text('not a database, but as long as the head of one' * 10)
    connect(
        SqliteFile(path=app_directory / 'newer.db'), [*MIGRATIONS, ['UPDATE a2a_schema SET min_reader = 99']]
    ).close()
    urls = ('memory', 'sqlite://', 'sqlite:///text.db', 'sqlite:///newer.db')
    outcomes = [run_command(capsys, 'migrate', '--backend', url, '--check').why for url in urls]
    assert [code for code, _ in outcomes] == [2, 2, 1, 1]
    assert [
        why.replace(str(app_directory), '').partition(' of pydantic-ai-a2a')[0].partition(': write')[0]
        for _, why in outcomes
    ] == snapshot(
        [
            "'memory' is not a store with a schema: give a SQLite or PostgreSQL URL, such as sqlite:///agent.db.",
            "'sqlite://' names no file",
            'The SQLite file /text.db cannot be used: the file is damaged, or is not a database: file is not a database'
            ' (SQLITE_NOTADB). Restore it from a backup.',
            'The SQLite file /newer.db cannot be used: it was written by a newer version',
        ]
    )
