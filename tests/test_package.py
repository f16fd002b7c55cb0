"""A release is refused if its files lack something, or have what only the developer's machine needs."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from inline_snapshot import snapshot

from .bounds import LIMIT
from .e2e.venvs import INSTALLATION, missing
from .package import (
    METADATA,
    PLUGIN,
    ROOT,
    SOURCES,
    changelog_faults,
    faults,
    faults_of,
    installed_faults,
    metadata_faults,
)
from .sizes import short_or_long
from .watchdog import WATCHDOG

PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
INFO = 'pydantic_ai_a2a-0.1.0.dist-info'
MODULES = {'pydantic_ai_a2a/__init__.py', 'pydantic_ai_a2a/py.typed', 'pydantic_ai_a2a/server/http/replies.py', PLUGIN}
WHEEL = {*MODULES, *(f'{INFO}/{name}' for name in METADATA)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with four files of the package."""
    for name in MODULES | SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def release_faults(root: Path, wheel: set[str], archive: set[str], version: str = '0.1.0') -> list[str]:
    with ZipFile(root / 'files.whl', 'w') as files:
        for name in wheel:
            files.writestr(name, f'Name: pydantic-ai-a2a\nVersion: {version}\n')
    with tarfile.open(root / 'files.tar.gz', 'w:gz') as members:
        for name in archive:
            members.add(root / 'pyproject.toml', f'pydantic_ai_a2a-0.1.0/{name}')
    return [*faults(root / 'files.whl', root / 'files.tar.gz', '0.1.0', root)]


def test_complete_release_has_no_faults(root: Path) -> None:
    assert release_faults(root, WHEEL, MODULES | SOURCES | {'docs/index.md'}) == []


def test_missing_and_extra_release_files_are_named(root: Path) -> None:
    wheel = WHEEL - {'pydantic_ai_a2a/py.typed', PLUGIN, f'{INFO}/METADATA'} | {'tests/server/test_card.py'}
    archive = (MODULES | SOURCES | {'.venv/bin/python'}) - {'pydantic_ai_a2a/server/http/replies.py', 'README.md'}
    assert release_faults(root, wheel, archive) == snapshot(
        [
            'the wheel lacks pydantic_ai_a2a-0.1.0.dist-info/METADATA',
            'the wheel lacks pydantic_ai_a2a/py.typed',
            'the wheel lacks pydantic_ai_a2a_pytest.py',
            'the wheel has tests/server/test_card.py',
            'the source archive lacks pydantic_ai_a2a/server/http/replies.py',
            'the source archive lacks README.md',
            'the source archive has .venv/bin/python',
        ]
    )


def test_wheel_metadata_version_must_match_project(root: Path) -> None:
    assert release_faults(root, WHEEL, MODULES | SOURCES, version='0.0.9') == [
        'the wheel: METADATA does not have the version 0.1.0'
    ]


@pytest.mark.parametrize(
    ('heading', 'count'), [('## 0.1.0 (2026-12-01)', 0), ('## 0.1.0 (unreleased)', 1), ('## 0.2.0 (2026-12-01)', 1)]
)
def test_release_needs_dated_changelog_section(heading: str, count: int) -> None:
    assert len([*changelog_faults(f'# Changelog\n\n{heading}\n\n- Something.\n', '0.1.0')]) == count


def test_release_needs_project_urls_and_absolute_readme_links(tmp_path: Path) -> None:
    with ZipFile(tmp_path / 'files.whl', 'w') as files:
        addresses = ''.join(f'Project-URL: {name}, https://example.com/\n' for name in ('Source', 'Changelog'))
        links = '[A](docs/a.md#b) [b](#b) [c](https://example.com/c.md)\n![D](d.png)'
        files.writestr(f'{INFO}/METADATA', f'Name: pydantic-ai-a2a\n{addresses}\n# Title\n\n{links}\n')
    assert [*metadata_faults(tmp_path / 'files.whl')] == [
        'pyproject.toml: [project.urls] has no Documentation',
        'pyproject.toml: [project.urls] has no Issues',
        'README.md: PyPI cannot follow 2 links, such as docs/a.md#b',
    ]


def build_checkout(folder: Path, *options: str) -> list[Path]:
    """Build this checkout."""
    command = [sys.executable, '-m', 'uv', 'build', '--quiet', '--out-dir', str(folder), *options, str(ROOT)]
    with WATCHDOG.waiting(INSTALLATION):
        built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    if built.returncode:
        missing(f'The package cannot be built: {built.stderr}')
    return sorted(folder.glob('pydantic_ai_a2a-*'))


@pytest.fixture(scope='module')
def dist(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel and the source archive of this checkout: the wheel is built from the archive."""
    return build_checkout(tmp_path_factory.mktemp('dist'))


@pytest.fixture(scope='module')
def wheel(dist: list[Path]) -> Path:
    """The wheel of this checkout."""
    return dist[0]


def test_checkout_builds_release_without_faults(dist: list[Path]) -> None:
    wheel, archive = dist
    assert [*faults(wheel, archive, PROJECT['version'])] == []


def test_wheel_from_source_archive_equals_wheel_from_checkout(wheel: Path, tmp_path: Path) -> None:
    [built] = build_checkout(tmp_path, '--wheel')
    with ZipFile(wheel) as files, ZipFile(built) as others:
        assert files.namelist() == others.namelist()
        assert [info.CRC for info in files.infolist()] == [info.CRC for info in others.infolist()]


@pytest.mark.long
def test_installed_wheel_works_and_lost_files_are_named(wheel: Path, tmp_path: Path) -> None:
    packages = short_or_long(sysconfig.get_path('purelib'), None)
    commands = short_or_long(('send',), ('--help', 'card', 'send', 'tasks', 'doctor'))
    with WATCHDOG.waiting(INSTALLATION):
        assert [*installed_faults(wheel, tmp_path, *commands, packages=packages)] == []
    for lost in ('static/log.js', 'vendor/marked.LICENSE', 'commands/cli.py'):
        next(tmp_path.rglob(f'pydantic_ai_a2a/**/{lost}')).unlink()
    page, *others = faults_of(tmp_path, *commands)
    assert re.fullmatch(r'the playground: http://127\.0\.0\.1:\d+/docs/log\.js is HTTP 404', page)
    assert [fault.partition(': ')[0] for fault in others] == [
        *(f'pydantic-ai-a2a {command}' for command in commands),
        'the licence marked.LICENSE is not installed',
    ]


def test_broken_wheel_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / 'pydantic_ai_a2a-0.1.0-py3-none-any.whl'
    broken.touch()
    [fault] = installed_faults(broken, tmp_path)
    assert 'pip' in fault
