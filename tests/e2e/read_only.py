"""Runs a module as a container with a read-only root file system does: `read_only.py FOLDER -m MODULE ARGUMENTS`.

Only the folder can be written, and only if the environment does not have `A2A_TEST_FOLDER=read-only`. The mounts end
with the process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_NEW_MOUNTS = 0x00020000
"""CLONE_NEWNS of `unshare(2)`."""
_TEMPORARY = ('/tmp', '/var/tmp', '/usr/tmp')


def main(folder: str, *arguments: str) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), 'unshare')
    _mount('--make-rprivate', '/')
    _mount('--bind', folder, folder)
    for place in sorted({_mount_of(path) for path in ('/', os.getcwd(), *_TEMPORARY) if Path(path).exists()}):
        _mount('--options', 'remount,bind,ro', place)
    if os.environ.get('A2A_TEST_FOLDER') == 'read-only':
        _mount('--options', 'remount,bind,ro', folder)
    for name in [name for name in os.environ if name.endswith('TMPDIR') or name.startswith('COVERAGE_')]:
        del os.environ[name]  # coverage could not write what it measures
    os.execv(sys.executable, [sys.executable, '-u', *arguments])


def _mount(*arguments: str) -> None:
    subprocess.run(['mount', *arguments], check=True)


def _mount_of(path: str) -> str:
    """The mount that has a path."""
    command: Sequence[str] = ('findmnt', '--first-only', '--noheadings', '--output', 'TARGET', '--target', path)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == '__main__':
    main(*sys.argv[1:])
