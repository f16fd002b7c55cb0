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

REQUIREMENT = 'a2a-sdk[http-server]>=0.3.26,<0.4'


class _Made(NamedTuple):
    python: Path
    problem: str | None = None
    """Why it cannot be used."""


def missing(what: str) -> NoReturn:
    """Fail where nothing may be missing, and skip elsewhere."""
    if environ.get('CI'):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def python_with_a2a_sdk_0_3() -> Path:
    """A Python that has the official client of A2A 0.3: its import name is also that of the client of 1.0.

    It is installed once into the environment that runs the tests, and goes with it.
    """
    made = _made()
    if made.problem is not None:
        missing(made.problem)
    return made.python


@cache
def _made() -> _Made:
    directory = Path(sys.prefix, 'a2a-sdk-0.3')
    python = directory / 'bin' / 'python'
    try:
        with _locked(directory.with_name(f'{directory.name}.lock')):
            if not _is_current(directory):
                _make(directory, python)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, 'stderr', None) or ''
        return _Made(python, f'{REQUIREMENT} cannot be installed into {directory}: {error}\n{said}')
    return _Made(python)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Only one process of all is in the block; what it does there is bounded, and so is the wait for it."""
    with path.open('w') as file:
        flock(file, LOCK_EX)
        yield


def _is_current(directory: Path) -> bool:
    stamp = directory / 'made-of'
    return stamp.exists() and stamp.read_text() == _made_of()


def _made_of() -> str:
    return f'{REQUIREMENT}\n{sys.base_prefix}\n{sys.version}\n'


def _make(directory: Path, python: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    _run(sys.executable, '-m', 'venv', str(directory))
    _run(str(python), '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', REQUIREMENT, 'uvicorn')
    (directory / 'made-of').write_text(_made_of())


def _run(*command: str) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=LIMIT)
