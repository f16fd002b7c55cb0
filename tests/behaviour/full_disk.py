"""Disks that are full for a while, for tests of stores: a small tmpfs, and the limit of a file's size."""

from __future__ import annotations

import os
import resource
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ('Disk', 'FileSizeLimit', 'SmallFileSystem', 'small_file_system')

_SIZE = 2_000_000
"""Bytes of a small file system."""


class Disk(ABC):
    """A folder for a store, whose disk a test fills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def fill(self) -> None:
        """Let every write fail that needs room."""

    @abstractmethod
    def free(self) -> None:
        """Let writes succeed again."""


class SmallFileSystem(Disk):
    """A tmpfs that another file fills: SQLite gets ENOSPC."""

    def fill(self) -> None:
        with (self.folder / 'filler').open('wb', buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(1024))
        assert not os.statvfs(self.folder).f_bavail

    def free(self) -> None:
        (self.folder / 'filler').unlink()


class FileSizeLimit(Disk):
    """RLIMIT_FSIZE of this process, which needs no rights: SQLite gets EFBIG."""

    def fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def small_file_system(folder: Path) -> Generator[Path]:
    """The folder with a tmpfs mounted on it. Skips the test where this process may not mount one."""
    mount = ['mount', '-t', 'tmpfs', '-o', f'size={_SIZE}', 'tmpfs', str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip('this process may not mount a tmpfs: the same is tested with a limit of the size of files')
    try:
        yield folder
    finally:
        subprocess.run(['umount', '--lazy', str(folder)], check=True)


@pytest.fixture(params=[SmallFileSystem, FileSizeLimit])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """Each kind of disk, and room on it again after the test."""
    if request.param is FileSizeLimit:
        limited = FileSizeLimit(tmp_path)
        yield limited
        limited.free()
        return
    with small_file_system(tmp_path) as folder:
        yield SmallFileSystem(folder)
