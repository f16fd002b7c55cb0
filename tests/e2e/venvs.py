"""Environments for clients that cannot be installed beside what the tests use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from functools import cache
from os import environ
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from ..bounds import LIMIT
from ..watchdog import WATCHDOG

REQUIREMENT = 'a2a-sdk[http-server]>=0.3.26,<0.4'
INSTALLATION = 1_800.0
"""Seconds without CPU time that an installation may take, also one by another process."""


class _Made(NamedTuple):
    python: Path
    problem: str | None = None
    """Why it cannot be used."""


def missing(what: str) -> NoReturn:
    """Fail where nothing may be missing, and skip elsewhere."""
    if environ.get('CI'):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def python_with_a2a_sdk_0_3(requirement: str = REQUIREMENT) -> Path:
    """A Python that has an official client of A2A 0.3: its import name is also that of the client of 1.0.

    It is installed once into the environment that runs the tests, and goes with it.
    """
    made = _made(requirement)
    if made.problem is not None:
        missing(made.problem)
    return made.python


@cache
def _made(requirement: str) -> _Made:
    directory = Path(sys.prefix, 'a2a-sdk-0.3' if requirement == REQUIREMENT else requirement.replace('==', '-'))
    python = directory / 'bin' / 'python'
    try:
        with WATCHDOG.waiting(INSTALLATION), _locked(directory.with_name(f'{directory.name}.lock')):
            if not _is_current(directory, requirement):
                _make(directory, python, requirement)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, 'stderr', None) or ''
        return _Made(python, f'{requirement} cannot be installed into {directory}: {error}\n{said}')
    return _Made(python)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Only one process of all is in the block; what it does there is bounded, and so is the wait for it."""
    with path.open('w') as file:
        flock(file, LOCK_EX)
        yield


def _is_current(directory: Path, requirement: str) -> bool:
    stamp = directory / 'made-of'
    return stamp.exists() and stamp.read_text() == _made_of(requirement)


def _made_of(requirement: str) -> str:
    return f'{requirement}\n{sys.base_prefix}\n{sys.version}\n'


def _make(directory: Path, python: Path, requirement: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    _run(sys.executable, '-m', 'venv', str(directory))
    _run(str(python), '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', requirement, 'uvicorn')
    (directory / 'made-of').write_text(_made_of(requirement))


def _run(*command: str) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=LIMIT)
