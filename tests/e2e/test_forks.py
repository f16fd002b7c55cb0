"""A forked process is like a process that was started."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from .server import process

MODULE = """
import json, os, sys, threading, warnings

print(json.dumps([__name__, sys.argv[1:], os.getcwd(), sys.path[0], os.environ['COLOUR'], sys.stdin.read()]))
print('to the other stream', file=sys.stderr)
if sys.argv[1] == 'warn':
    warnings.warn('careful')
elif sys.argv[1] == 'wait':
    print('waiting')
    while not threading.Event().wait(1):  # a signal just before an endless wait would not be handled
        pass
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / 'program.py').write_text(MODULE)
    return tmp_path


FORKED = pytest.mark.parametrize('fork', [True, False], ids=['forked', 'started'])


@FORKED
@pytest.mark.parametrize(('argument', 'code'), [('0', 0), ('7', 7), ('warn', 1)])
def test_process_gets_arguments_folder_environment_and_exit_code(
    folder: Path, argument: str, code: int, fork: bool
) -> None:
    with process('-m', 'program', argument, cwd=folder, env={'COLOUR': 'red'}, fork=fork) as running:
        assert running.exit_code() == code
    first, second, *rest = running.output.splitlines()
    assert json.loads(first) == ['__main__', [argument], str(folder), str(folder), 'red', '']
    assert second == 'to the other stream'
    assert (rest[-1:] == ['UserWarning: careful']) == (argument == 'warn')


@FORKED
def test_script_imports_from_its_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory, fork: bool) -> None:
    elsewhere = tmp_path_factory.mktemp('elsewhere')
    script = str(folder / 'program.py')
    with process(script, '3', cwd=elsewhere, env={'COLOUR': 'red'}, fork=fork) as running:
        assert running.exit_code() == 3
    first, *_ = running.output.splitlines()
    assert json.loads(first) == ['__main__', ['3'], str(elsewhere), str(folder), 'red', '']


@FORKED
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_process_can_be_paused_resumed_and_ended(folder: Path, number: signal.Signals, fork: bool) -> None:
    with process('-m', 'program', 'wait', cwd=folder, env={'COLOUR': 'red'}, fork=fork) as running:
        running.wait_for('waiting')
        for _ in range(2):
            running.stop()
            state = Path(f'/proc/{running.pid}/stat')
            assert not state.exists() or state.read_text().rsplit(')', 1)[1].split()[0] == 'T'
            running.signal(signal.SIGCONT)
        running.signal(number)
        assert running.exit_code() == -number
        running.signal(number)  # nobody is there


@FORKED
def test_running_process_ends_with_its_block(folder: Path, fork: bool) -> None:
    with process('-m', 'program', 'wait', cwd=folder, env={'COLOUR': 'red'}, fork=fork) as running:
        running.wait_for('waiting')
    assert running.exit_code() == -signal.SIGTERM
