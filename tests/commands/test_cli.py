"""What the command line says to commands that make no sense, and what it finds."""

from __future__ import annotations

import re
import runpy
import socket
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.commands.cli import main

ROOT = Path(__file__).parents[2]
MEMORY = (
    'keeps its tasks in the memory of one process, which has to serve and run them. Give it a backend that processes'
    " can share, such as to_a2a(agent, backend='sqlite:///agent.db')."
)
JOKER = """
from pydantic_ai import Agent
from starlette.applications import Starlette
from pydantic_ai_a2a import to_a2a

agent = Agent('test', name='joker')
app = to_a2a(agent)
shared = to_a2a(agent, backend='sqlite:///agent.db')
empty = Starlette()
number = 42
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with modules that are forgotten afterwards."""
    (tmp_path / 'joker.py').write_text(JOKER)
    (tmp_path / 'broken.py').write_text('import surely_not_installed')
    (tmp_path / 'bare.py').write_text('')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [each for each in sys.path if each])
    yield tmp_path
    for name in ('joker', 'broken', 'bare'):
        sys.modules.pop(name, None)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    """The exit code, and what was written on why."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    return exit_.value.code, capsys.readouterr().err.strip().splitlines()[-1].partition('Error: ')[2]


@pytest.mark.parametrize('command', ['serve', 'worker'])
def test_what_cannot_be_found_is_said(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    targets = (
        'bare',
        ':app',
        './bare.py:agent',
        'nothing:app',
        'joker.inner:app',
        'joker:ap',
        'bare:app',
        'joker:app.none',
        'joker:number',
    )
    assert [refused(capsys, command, target) for target in targets] == snapshot(
        [
            (2, "The module 'bare' has no 'app'."),
            (2, "':app' does not name an app: write MODULE:NAME, such as joker:app."),
            (2, "'./bare.py:agent' does not name an app: write MODULE:NAME, such as bare:agent."),
            (2, "There is no module 'nothing', in the directory or on the Python path."),
            (2, "There is no module 'joker.inner', in the directory or on the Python path."),
            (2, "The module 'joker' has no 'ap'. It has 'agent', 'app', 'shared'."),
            (2, "The module 'bare' has no 'app'."),
            (2, "The module 'joker' has no 'app.none'. It has 'agent', 'app', 'shared'."),
            (2, 'joker:number is neither an app nor an agent, but of the type int.'),
        ]
    )


def test_a_module_that_imports_what_is_not_there_shows_where() -> None:
    with pytest.raises(ModuleNotFoundError, match='surely_not_installed'):
        main(['serve', 'broken:app'])


@pytest.mark.parametrize('command', [('serve', '--no-worker'), ('worker',)], ids=' '.join)
def test_tasks_in_the_memory_of_a_process_cannot_be_run_by_another(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [refused(capsys, *command, target) for target in ('joker:app', 'joker:agent', 'joker:empty')]
    assert answers == [
        (2, f'joker:app {MEMORY}'),
        (2, f'joker:agent {MEMORY}'),
        (2, 'joker:empty is not an app of to_a2a(), and has no mounted app of to_a2a().'),
    ]


def test_an_app_whose_engine_has_no_workers_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, 'worker', '--engine', 'joker:shared') == snapshot(
        (2, 'joker:shared has no engine with workers of its own, as to_a2a(engine=Temporal(…)) has.')
    )


def test_a_backend_is_for_agents_and_one_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert [
        refused(capsys, 'serve', 'joker:app', '--backend', 'sqlite:///agent.db'),
        refused(capsys, 'serve', 'joker:agent', '--backend', 'mysql://db'),
    ] == snapshot(
        [
            (2, '--backend can only be given with an agent: joker:app is an app, which has its own backend.'),
            (
                2,
                "backend must be 'memory', 'sqlite:///agent.db', 'postgresql://host/database' or a Backend, "
                "not a URL that begins with 'mysql'.",
            ),
        ]
    )


def test_a_module_is_found_in_another_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = directory / 'inner'
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert refused(capsys, 'serve', 'joker:number', '--app-dir', '..')[1].startswith('joker:number is neither')


@pytest.mark.parametrize('arguments', [('serve', 'joker:app', '--port'), ('worker', 'joker:shared', '--health-port')])
def test_a_port_that_is_taken_is_said(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = str(taken.getsockname()[1])
        code, why = refused(capsys, *arguments, port)
    assert (code, why.replace(port, 'PORT')) == snapshot(
        (1, 'Cannot listen on 127.0.0.1 port PORT: Address already in use. Choose another port or host.')
    )


def test_a_host_is_allowed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, 'serve', 'joker:app', '--allowed-host', 'https://agent.example.com') == snapshot(
        (
            2,
            "allowed_hosts= takes names such as agent.example.com or *.example.com, not 'https://agent.example.com'.",
        )
    )


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(['--version'])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f'pydantic-ai-a2a, version {version("pydantic-ai-a2a")}\n'


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith('Usage: pydantic-ai-a2a [OPTIONS] COMMAND')


@pytest.mark.parametrize(
    ('line', 'text'),
    [
        ('serve', "Missing argument 'MODULE:NAME'."),
        ('serve joker:app --prot 80', 'No such option.*--prot.*Did you mean .*--port'),
        ('serve joker:app --port http', "Invalid value for '--port': 'http' is not a valid integer"),
        ('serve joker:app --port 65536', "Invalid value for '--port': 65536 is not in the range 0<=x<=65535."),
        (
            'serve joker:agent --auth joker:app --anonymous',
            '--auth and --anonymous cannot be combined: give one of them.',
        ),
        ('migrate --sql --check', '--sql, --all-sql and --check cannot be combined: give one of them.'),
    ],
)
def test_a_wrong_command_line_is_explained(line: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, why = refused(capsys, *line.split())
    assert code == 2
    assert re.match(text, why), why


def test_options_and_commands_are_completed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv('_PYDANTIC_AI_A2A_COMPLETE', 'bash_complete')
    completions: list[list[str]] = []
    for words, position in (('pydantic-ai-a2a dead', '1'), ('pydantic-ai-a2a serve joker:app --a', '3')):
        monkeypatch.setenv('COMP_WORDS', words)
        monkeypatch.setenv('COMP_CWORD', position)
        with pytest.raises(SystemExit):
            main([])
        completions.append([line.partition(',')[2] for line in capsys.readouterr().out.splitlines()])
    assert completions == snapshot(
        [['dead-deliveries', 'dead-letters'], ['--app-dir', '--allowed-host', '--auth', '--anonymous']]
    )


def test_the_script_and_the_module_are_the_same_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['scripts']
    assert scripts == {'pydantic-ai-a2a': f'{main.__module__}:{main.__name__}'}
    monkeypatch.setattr(sys, 'argv', ['pydantic-ai-a2a', 'serve', '--help'])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_module('pydantic_ai_a2a', run_name='__main__')
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith('Usage: pydantic-ai-a2a serve ')
