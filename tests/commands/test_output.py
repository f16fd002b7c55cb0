"""Output of commands in processes: characters that a terminal lacks, JSON in UTF-8, and disks without room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Server, serve, to_a2a
from pydantic_ai_a2a.server.store.ports import Backend

from ..bounds import LIMIT
from ..suites.values import message, submit
from .command import add_completed_task, add_dead_letter, process_in_terminal, run_command, with_store

NAME = 'Zoë ☃ 雪'
TEXT = f'# Naïve ✓ 日本語 😀\n\n- {NAME}'
ANN = ('--owner', '/ann')


@pytest.fixture
def server() -> Iterator[Server]:
    app = to_a2a(Agent(TestModel(custom_output_text=TEXT), name=NAME, description=TEXT))
    with serve(app) as server:
        yield server


async def _fill(backend: Backend) -> None:
    await add_completed_task(backend, 'done', context=NAME)
    await add_dead_letter(backend, 'dead', context=NAME)
    await submit(backend, message(TEXT, new='queued', context=NAME))


def run_processes(
    *commands: Sequence[str],
    encoding: str = 'utf-8',
    stdin: bytes = b'',
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> list[tuple[int, bytes, list[str]]]:
    """The exit code of each command in a process, its output, and the lines of its errors in ASCII."""

    def run(command: Sequence[str]) -> tuple[int, bytes, list[str]]:
        ran = subprocess.run(
            [sys.executable, '-m', 'pydantic_ai_a2a', *command],
            env={**os.environ, 'PYTHONIOENCODING': encoding},
            input=stdin,
            stdout=stdout,
            stderr=stderr,
            timeout=LIMIT,
            check=False,
        )
        return ran.returncode, ran.stdout, (ran.stderr or b'').decode('ascii', 'backslashreplace').splitlines()

    with ThreadPoolExecutor() as threads:
        return [*threads.map(run, commands)]


def test_characters_missing_in_encoding_are_escaped(server: Server) -> None:
    shown: dict[str, str] = {}
    for encoding in ('cp1252', 'cp932', 'ascii'):
        [(code, out, err)] = run_processes(('card', server.url), encoding=encoding)
        assert (code, err) == (0, [])
        # Click takes ASCII for a mistake, and writes UTF-8.
        shown[encoding] = out.decode('utf-8' if encoding == 'ascii' else encoding).splitlines()[0]
    assert shown == snapshot(
        {
            'cp1252': 'Name        Zoë \\u2603 \\u96ea 1.0.0',
            'cp932': 'Name        Zo\\xeb \\u2603 雪 1.0.0',
            'ascii': 'Name        Zoë ☃ 雪 1.0.0',
        }
    )


def test_commands_escape_unicode_for_latin_1_terminal(server: Server) -> None:
    with_store(_fill)
    commands = [
        ('chat', server.url),
        ('doctor', server.url, '-v'),
        ('queue', 'list', 'joker:app'),
        ('dead-letters', 'list', 'joker:app'),
    ]
    for code, out, err in run_processes(*commands, encoding='latin-1', stdin=b'\xe9\n'):
        assert (code, 'Traceback' in str(err)) == (0, False), err
        assert 'ë \\u2603 \\u96ea' in out.decode('latin-1')


def test_undecodable_input_bytes_are_replaced(server: Server) -> None:
    [(code, out, err)] = run_processes(('chat', server.url), encoding='ascii', stdin=b'\xe9\n')
    assert (code, NAME in out.decode()) == (0, True), err


@pytest.mark.slow
def test_json_output_is_utf_8_in_every_encoding(server: Server) -> None:
    with_store(_fill)
    erase = ('erase', 'joker:app', *ANN, '--context', NAME, '--yes', '--cancel', '--json')
    groups: dict[str, list[tuple[str, ...]]] = {  # one after the other, for each changes what the next one finds
        'utf-16': [
            ('send', server.url, 'x', '--json'),
            ('send', server.url, 'x', '--jsonl'),
            ('card', server.url, '--json'),
            ('doctor', server.url, '--json'),
        ],
        'cp932': [
            ('tasks', server.url, '--json'),
            ('export', 'joker:app', *ANN),
            ('queue', 'list', 'joker:app', '--json'),
            ('dead-letters', 'list', 'joker:app', '--json'),
        ],
        'cp1252': [('dead-letters', 'retry', 'joker:app', '--task', 'dead', '--json')],
        'latin-1': [erase],
    }
    lines: dict[tuple[str, ...], list[Any]] = {}
    for encoding, commands in groups.items():
        for arguments, (code, out, err) in zip(commands, run_processes(*commands, encoding=encoding), strict=True):
            assert code == 0, err
            lines[arguments] = [json.loads(line.decode()) for line in out.splitlines()]
    assert all(lines.values())
    assert {line['contextId'] for name in (groups['cp932'][2], erase) for line in lines[name]} == {NAME}


def test_terminal_without_utf_8_shows_escaped_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYTHONIOENCODING', 'latin-1')
    with process_in_terminal('send', server.url, 'x') as (terminal, process):
        assert process.wait(LIMIT) == 0
        terminal.until('is completed')
    assert '\\u2713 \\u65e5\\u672c\\u8a9e \\U0001f600\n' in terminal.close()


FULL_DISK_MESSAGE = 'Error: Cannot write: No space left on device. The output is not complete.'


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='only Linux has /dev/full')
def test_full_disk_is_reported_in_single_line(server: Server) -> None:
    with_store(_fill)
    commands = [
        ('--help',),
        ('hash-key',),
        ('send', server.url, 'x', '--json'),
        ('card', server.url),
        ('export', 'joker:app', *ANN),
        ('migrate', '--all-sql', '--backend', 'sqlite:///x.db'),
    ]
    with open('/dev/full', 'wb') as full:
        assert [(code, err) for code, _, err in run_processes(*commands, stdout=full.fileno())] == [
            (1, [FULL_DISK_MESSAGE])
        ] * len(commands)


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='only Linux has /dev/full')
def test_command_succeeds_if_standard_error_is_full() -> None:
    with_store(_fill)
    with open('/dev/full', 'wb') as full:
        [(code, *_)] = run_processes(('queue', 'pause', 'joker:app'), stderr=full.fileno())
    assert code == 0


def test_missing_file_in_app_module_keeps_traceback(app_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (app_directory / 'joker.py').write_text("open('missing.txt')")
    with pytest.raises(FileNotFoundError, match='missing'):
        run_command(capsys, 'serve', 'joker:app')
