"""The start of a command: what Python loads for it, and Ctrl-C while Python loads."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_ai import Agent

from pydantic_ai_a2a import serve, to_a2a

from ..bounds import LIMIT
from ..cases import each_case
from .command import run_command

PRINT_MODULES = """
import sys
from pydantic_ai_a2a.commands.cli import main
try:
    main()
finally:
    print(*sys.modules, sep='\\n', file=sys.stderr)
"""
PRINT_GARBAGE_COLLECTION = """
import gc
from pydantic_ai_a2a.commands.cli import main
try:
    main(['hash-key', '--help'])
finally:
    print(gc.isenabled(), gc.get_freeze_count() > 10_000)
"""
INTERRUPTING_MODULE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
signal.raise_signal(signal.SIGINT)
"""


@pytest.fixture(scope='module')
def url() -> Iterator[str]:
    with serve(to_a2a(Agent('test', name='joker'))) as server:
        yield server.url


@each_case(
    'arguments, unneeded',
    [
        ('--version', 'pydantic pydantic_ai fasta2a starlette httpx2'),
        ('--help', 'pydantic pydantic_ai fasta2a starlette httpx2'),
        ('card', 'pydantic_ai_a2a.client.transport'),
        *(
            (name, 'pydantic_ai pydantic_ai_a2a.server.app.a2a_app uvicorn')
            for name in ('card', 'tasks', 'cancel', 'doctor', 'send')
        ),
        ('hash-key', 'pydantic_ai pydantic_ai_a2a.server.app.a2a_app uvicorn httpx2'),
    ],
)
def test_command_imports_only_needed_modules(arguments: str, unneeded: str, url: str) -> None:
    given = {'card': [url], 'tasks': [url], 'cancel': [url, 'task'], 'doctor': [url], 'send': [url, 'Hello!']}
    ran = subprocess.run(
        [sys.executable, '-c', PRINT_MODULES, arguments, *given.get(arguments, [])],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ran.returncode == (1 if arguments == 'cancel' else 0), ran.stderr  # there is no task
    loaded = ran.stderr.split()
    assert 'click' in loaded
    assert [module for module in unneeded.split() if module in loaded] == []


def test_garbage_collection_leaves_out_modules_of_command() -> None:
    command = [sys.executable, '-c', PRINT_GARBAGE_COLLECTION]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert ran.stdout.splitlines()[-1] == 'True True'


def test_command_leaves_garbage_collection_disabled(capsys: pytest.CaptureFixture[str]) -> None:
    gc.disable()
    try:
        assert run_command(capsys, 'hash-key', '--help').code == 0
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_help_lists_first_sentence_of_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    listed = re.findall(r'^  (\S+)  +(.+)$', run_command(capsys, '--help').out.partition('Commands:')[2], re.MULTILINE)
    assert len(listed) == 17
    for name, sentence in listed:
        usage, text, *_ = run_command(capsys, name, '--help').out.split('\n\n')
        assert (usage.split()[2], text.strip()) == (name, sentence)


@each_case(
    'module, arguments',
    [('click', '--help'), ('fasta2a', 'card http://127.0.0.1:1'), ('pydantic_ai', 'inbox http://127.0.0.1:1')]
    + [(module, f'{name} agent:app') for name in ('serve', 'worker', 'migrate') for module in ('starlette', 'agent')],
)
def test_ctrl_c_during_import_ends_command(module: str, arguments: str, tmp_path: Path) -> None:
    (tmp_path / f'{module}.py').write_text(INTERRUPTING_MODULE)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ran = subprocess.run(
        [sys.executable, '-m', 'pydantic_ai_a2a', *arguments.split()],
        env={**os.environ, 'PYTHONPATH': path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    (tmp_path / f'{module}.py').unlink()
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, '', 'pydantic-ai-a2a: interrupted\n')
