"""What the command line says to commands that make no sense, what it finds, and `hash-key`."""

from __future__ import annotations

import re
import runpy
import socket
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a import BearerAuth, hash_key
from pydantic_ai_a2a.commands.cli import main
from pydantic_ai_a2a.commands.named_app import find
from pydantic_ai_a2a.server.app.a2a_app import A2AApp

from ..cases import each_case
from .command import run_command

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
MEMORY = (
    'keeps its tasks in the memory of one process, which has to serve and run them. Give it a backend that processes'
    " can share: to_a2a(agent, backend='sqlite:///agent.db'), or --backend for an agent."
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
SEVERAL = """
from pydantic_ai import Agent

first, second = Agent('test'), Agent('test')
alias = first
"""
SEVERAL_PROCESSES = ('serve', '--workers', '2')
TAKEN = ('queue.py', 'click.py', 'agent.v2.py')


@pytest.fixture(autouse=True)
def broken_modules(app_directory: Path) -> Iterator[None]:
    """More modules of the directory, which are forgotten afterwards."""
    (app_directory / 'joker.py').write_text(JOKER)
    (app_directory / 'broken.py').write_text('import surely_not_installed')
    for name in ('bare.py', *TAKEN):
        (app_directory / name).write_text('')
    (app_directory / 'several.py').write_text(SEVERAL)
    yield
    for name in ('broken', 'bare', 'several'):
        sys.modules.pop(name, None)


@each_case(
    'target, reason',
    [
        ('bare', "The module 'bare' has no 'app'."),
        (':app', "':app' does not name an app: write MODULE:NAME, such as joker:app."),
        ('./bare.py:agent', "The module 'bare' has no 'agent'."),
        ('bare.py', 'bare.py has no app and no agent in a variable: write app = to_a2a(agent).'),
        ('several.py', 'several.py has first, second: write which one to serve, such as several.py:first.'),
        ('absent.py', 'There is no file absent.py.'),
        *((name, f'{name} needs another name: another module has this name, or a dot is in it.') for name in TAKEN),
        ('nothing:app', "There is no module 'nothing', in the directory or on the Python path."),
        ('joker.inner:app', "There is no module 'joker.inner', in the directory or on the Python path."),
        ('joker:ap', "The module 'joker' has no 'ap'. It has 'agent', 'app', 'shared'."),
        ('bare:app', "The module 'bare' has no 'app'."),
        ('joker:app.none', "The module 'joker' has no 'app.none'. It has 'agent', 'app', 'shared'."),
        ('joker:number', 'joker:number is neither an app nor an agent, but of the type int.'),
    ],
)
@pytest.mark.parametrize('name', ['serve', 'worker'])
def test_invalid_app_target_is_refused_with_reason(name: str, target: str, reason: str, capsys: Capture) -> None:
    assert run_command(capsys, name, target).why == (2, reason)


@each_case(
    'file, text, name',
    [
        ('agents/app_of.py', "app = to_a2a(Agent('test', name=NAME))\nagent = Agent('test')", 'sibling'),
        ('agents/single.py', "poet = to_a2a(Agent('test', name=NAME))\nagent = Agent('test')", 'sibling'),
        ('agents/my-agent.py', "agent = Agent('test', description=NAME)", 'my-agent'),
        ('package/inner/deep.py', "from ..outer import NAME\npoet = Agent('test', name=NAME)", 'outer'),
        ('package/__init__.py', "from .outer import NAME\npoet = Agent('test', name=NAME)", 'outer'),
    ],
)
def test_file_target_serves_its_app_or_only_agent(file: str, text: str, name: str, app_directory: Path) -> None:
    for package in ('package/inner', 'package', 'agents'):
        (app_directory / package).mkdir(parents=True, exist_ok=True)
    for module in ('package/__init__.py', 'package/inner/__init__.py'):
        (app_directory / module).write_text('')
    (app_directory / 'package/outer.py').write_text("NAME = 'outer'")
    (app_directory / 'agents/sibling.py').write_text("NAME = 'sibling'")
    imports = 'from pydantic_ai import Agent\nfrom pydantic_ai_a2a import to_a2a\n'
    sibling = 'from sibling import NAME\n' if file.startswith('agents') else ''
    (app_directory / file).write_text(imports + sibling + text)
    served = find(file, '', None)
    for module in [*sys.modules]:
        if (getattr(sys.modules[module], '__file__', None) or '').startswith(str(app_directory)):
            del sys.modules[module]
    assert isinstance(served, A2AApp)
    assert served.card.name == name


def test_import_error_in_app_module_is_raised() -> None:
    with pytest.raises(ModuleNotFoundError, match='surely_not_installed'):
        main(['serve', 'broken:app'])


@pytest.mark.parametrize('arguments', [('serve', '--no-worker'), SEVERAL_PROCESSES, ('worker',)], ids=' '.join)
def test_in_memory_backend_cannot_have_separate_workers(arguments: tuple[str, ...], capsys: Capture) -> None:
    answers = [run_command(capsys, *arguments, target).why for target in ('joker:app', 'joker:agent', 'joker:empty')]
    assert answers == [
        (2, f'joker:app {MEMORY}'),
        (2, f'joker:agent {MEMORY}'),
        (2, 'joker:empty is not an app of to_a2a(), and has no mounted app of to_a2a().'),
    ]


def test_app_dir_option_sets_module_directory(
    app_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    inner = app_directory / 'inner'
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert run_command(capsys, 'serve', 'joker:number', '--app-dir', '..').why[1].startswith('joker:number is neither')


@pytest.mark.parametrize('arguments', [('serve', 'joker:app', '--port'), ('worker', 'joker:shared', '--health-port')])
def test_port_in_use_is_reported(arguments: tuple[str, ...], capsys: Capture) -> None:
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = str(taken.getsockname()[1])
        code, why = run_command(capsys, *arguments, port).why
    assert (code, why.replace(port, 'PORT')) == snapshot(
        (1, 'Cannot listen on 127.0.0.1 port PORT: Address already in use. Choose another port or host.')
    )


def test_version_option_shows_package_version(capsys: Capture) -> None:
    shown = run_command(capsys, '--version')
    assert (shown.code, shown.out) == (0, f'pydantic-ai-a2a, version {version("pydantic-ai-a2a")}\n')


def test_missing_command_shows_help(capsys: Capture) -> None:
    shown = run_command(capsys)
    assert shown.code == 2
    assert shown.err.startswith('Usage: pydantic-ai-a2a [OPTIONS] COMMAND')


@each_case(
    'line, text',
    [
        ('serve', "Missing argument 'MODULE:NAME'."),
        ('serve joker:app --prot 80', 'No such option.*--prot.*Did you mean .*--port'),
        (
            'serve joker:shared --workers 2 --reload',
            '--reload and --workers cannot be combined: --reload serves from one',
        ),
        ('serve joker:shared --workers 2 --grpc-port 0', '--grpc-port 0 would take another port in each process: give'),
        ('serve joker:app --port http', "Invalid value for '--port': 'http' is not a valid integer"),
        ('serve joker:app --port 65536', "Invalid value for '--port': 65536 is not in the range 0<=x<=65535."),
        (
            'serve joker:agent --auth joker:app --anonymous',
            '--auth and --anonymous cannot be combined: give one of them.',
        ),
        ('serve joker:app --backend sqlite:///agent.db', '--backend can only be given with an agent: joker:app is an'),
        ('serve joker:agent --backend mysql://db', "backend must be .*, not a URL that begins with 'mysql'."),
        ('serve joker:app --allowed-host https://a.example', "allowed_hosts= takes names .*, not 'https://a.example'."),
        ('worker --engine joker:shared', 'joker:shared has no engine with workers of its own, as to_a2a'),
        ('http://127.0.0.1:8000 send hello', 'The command comes first: pydantic-ai-a2a COMMAND URL.'),
        ('migrate --sql --check', '--sql, --all-sql and --check cannot be combined: give one of them.'),
    ],
)
def test_invalid_command_line_is_explained(line: str, text: str, capsys: Capture) -> None:
    code, why = run_command(capsys, *line.split()).why
    assert code == 2
    assert re.match(text, why), why


def test_shell_completes_commands_and_options(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv('_PYDANTIC_AI_A2A_COMPLETE', 'bash_complete')
    completions: list[list[str]] = []
    for words, position in (('pydantic-ai-a2a dead', '1'), ('pydantic-ai-a2a serve joker:app --a', '3')):
        monkeypatch.setenv('COMP_WORDS', words)
        monkeypatch.setenv('COMP_CWORD', position)
        completions.append([line.partition(',')[2] for line in run_command(capsys).out.splitlines()])
    assert completions == snapshot(
        [['dead-deliveries', 'dead-letters'], ['--app-dir', '--allowed-host', '--auth', '--anonymous']]
    )


def test_script_and_python_module_run_same_command(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    scripts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['scripts']
    assert scripts == {'pydantic-ai-a2a': f'{main.__module__}:{main.__name__}'}
    monkeypatch.setattr(sys, 'argv', ['pydantic-ai-a2a', 'serve', '--help'])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_module('pydantic_ai_a2a', run_name='__main__')
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith('Usage: pydantic-ai-a2a serve ')


def test_hash_key_creates_key_and_hash(capsys: Capture) -> None:
    keys: set[str] = set()
    for _ in range(2):
        outcome = run_command(capsys, 'hash-key')
        (key_name, key), (hash_name, hashed) = (line.split() for line in outcome.out.splitlines())
        assert (outcome.code, key_name, hash_name) == (0, 'key:', 'hash:')
        assert (len(key), hashed) == (43, hash_key(key))
        BearerAuth({hashed: 'ann'})
        keys.add(key)
    assert len(keys) == 2


def test_hash_key_hashes_key_from_standard_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('sys.stdin', StringIO('the-token-of-ann-1234\n'))
    outcome = run_command(capsys, 'hash-key', '--stdin')
    assert (outcome.code, outcome.out) == (0, f'{hash_key("the-token-of-ann-1234")}\n')


def test_hash_key_refuses_short_key(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('sys.stdin', StringIO('hunter2\n'))
    outcome = run_command(capsys, 'hash-key', '--stdin')
    assert outcome.code == 2
    assert 'at least 16 characters' in outcome.err
    assert 'hunter2' not in outcome.err
