"""A test that hangs is reported and ended. A slow test is not, nor one that was stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from os import environ
from pathlib import Path

import pytest

from .cases import each_case
from .watchdog import Limits, Progress

ROOT = Path(__file__).parents[1]
END = 1.5
"""Idle seconds until the watchdog ends a test below."""
CONFTEST = f"""
from os import environ
from tests.watchdog import Limits, Watchdog

WATCHDOG = Watchdog(Limits(report=0.5, end={END}, quiet=float(environ['QUIET_SECONDS']), pause=0.1))

def pytest_configure(config):
    config.pluginmanager.register(WATCHDOG)
"""
TESTS = f"""
import asyncio, os, signal, subprocess, sys, threading, time
from conftest import WATCHDOG

WAITS = [sys.executable, '-c', 'import sys; sys.stdin.read()']
COMPUTES = [sys.executable, '-c', 'import os; parent = os.getppid()\\nwhile os.getppid() == parent: pass']

async def wait_for_answer():
    await asyncio.Event().wait()

def wait_for_thread():
    threading.Event().wait()

def test_async():
    asyncio.run(wait_for_answer())

def test_thread():
    thread = threading.Thread(target=wait_for_thread, daemon=True)
    thread.start()
    thread.join()

def test_process():
    subprocess.run(WAITS, stdin=os.pipe()[0])

def test_temporal():
    os.symlink(sys.executable, 'temporal')
    subprocess.run(['./temporal', *COMPUTES[1:]])

def test_polling():
    while True:
        time.sleep(0.1)

def test_computing():
    while True:
        pass

def test_computing_process():
    subprocess.run(COMPUTES)

def test_slow_process():
    processes = [subprocess.Popen(COMPUTES) for _ in range(4)]
    time.sleep({2 * END})
    for process in processes:
        process.kill()

def test_installation():
    with WATCHDOG.waiting({4 * END}):
        time.sleep({2 * END})

def test_stopped():
    os.kill(os.getpid(), signal.SIGSTOP)

def test_quick():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / 'conftest.py').write_text(CONFTEST)
    (tmp_path / 'test_program.py').write_text(TESTS)
    return tmp_path


def start(project: Path, *tests: str, options: str = '', quiet: float = 600.0) -> subprocess.Popen[str]:
    """Start a pytest with tests of the program."""
    return subprocess.Popen(
        [
            *(sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', *options.split()),
            *(f'test_program.py::test_{test}' for test in tests),
        ],
        cwd=project,
        env={
            **environ,
            'QUIET_SECONDS': str(quiet),
            'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1',
            'PYTHONPATH': str(ROOT),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_hanging_test_is_reported_and_ended(project: Path, subtests: pytest.Subtests) -> None:
    reports = {
        'async': r'Task Task-1:\n  .*test_program\.py:\d+ in wait_for_answer\n',
        'thread': r'line \d+ in wait_for_thread\n',
        'process': r'Process \d+ \(sleeping\): .* -c import sys; sys\.stdin\.read\(\)\n',
        'temporal': r'Process \d+ \(\w+\): \./temporal -c ',
        'polling': r'line \d+ in test_polling\n',
    }
    running = {test: start(project, test) for test in reports}
    for test, report in reports.items():
        with subtests.test(msg=test):
            output, _ = running[test].communicate()
            assert running[test].returncode == 1
            name = rf'test_program\.py::test_{test}'
            assert re.search(rf'{name} has not computed for \d seconds\.\n[\s\S]*{report}', output), output
            assert re.search(rf'{name} is ended after \d idle and \d quiet seconds\.\n[\s\S]*{report}', output), output


def test_endless_computation_is_ended(project: Path) -> None:
    running = [start(project, test, quiet=0.1) for test in ('computing', 'computing_process')]
    for process in running:
        output, _ = process.communicate()
        assert process.returncode == 1
        assert 'is ended after 0 idle and 0 quiet seconds.' in output


def test_other_tests_run_after_a_hanging_test(project: Path) -> None:
    process = start(project, 'async', 'quick', options='-p xdist -n 1 -rf')
    output, _ = process.communicate()
    assert re.search("worker 'gw0' crashed while running 'test_program.py::test_async'", output), output
    assert '1 failed, 1 passed' in output


def test_slow_process_and_installation_are_not_ended(project: Path) -> None:
    for process in [start(project, test) for test in ('slow_process', 'installation')]:
        output, _ = process.communicate()
        assert '1 passed' in output


def test_stopped_process_is_not_ended(project: Path) -> None:
    process = start(project, 'stopped')
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    time.sleep(2 * END)  # so long, nothing of the test computes
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate()
    assert '1 passed' in output


@each_case(
    'share, idle',
    [(0.0, 3600), (0.01, 2400), (0.03, 0), (0.1, 0), (2.0, 0)],
    ids=['waits', 'a server that waits', 'at the limit', 'beside a load of 18', 'two cores'],
)
def test_idle_seconds_depend_on_cpu_time(share: float, idle: int) -> None:
    progress = Progress()
    for _ in range(3600):
        progress.add(1.0, share, load=1.0)
    assert round(progress.idle) == idle


@each_case('load, quiet', [(0.2, 3600), (1.0, 3600), (9.0, 400)], ids=['idle', 'quiet', 'a load of 18 on two cores'])
def test_quiet_seconds_depend_on_load(load: float, quiet: int) -> None:
    progress = Progress()
    for _ in range(3600):
        progress.add(1.0, 1.0, load=load)
    assert round(progress.quiet) == quiet


def test_watchdog_acts_after_60_and_180_idle_seconds() -> None:
    assert (Limits().report, Limits().end) == (60.0, 180.0)
