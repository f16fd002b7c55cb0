"""Checks the files of a release in dist/: `python -m tests.package`, which `make package` runs.

The wheel must have exactly the files of the package and its metadata, and the source archive all that builds the wheel.
The wheel must also work in an empty environment, which `tests/installed.py` tries, and pytest must find the fixtures.
With `RELEASE=1` in the environment, the changelog must have a dated section for the version, and the page on PyPI needs
the addresses of the project, and a README whose links work there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from email import message_from_string
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

ROOT = Path(__file__).parent.parent
PIP = (sys.executable, '-m', 'pip', '--disable-pip-version-check')
LIMIT = 86_400.0
"""Seconds for a program, as in `tests/bounds.py`."""
FIXTURES = ('a2a_client', 'a2a_server')
PACKAGE = 'pydantic_ai_a2a'
PLUGIN = 'pydantic_ai_a2a_pytest.py'
METADATA = {'METADATA', 'RECORD', 'WHEEL', 'entry_points.txt', 'licenses/LICENSE'}
LOCAL = ('.venv/', '.grimp_cache/', 'dist/', 'site/')
ADDRESSES = {'Changelog', 'Documentation', 'Issues', 'Source'}
SOURCES = {'LICENSE', 'README.md', 'PKG-INFO', 'pyproject.toml'}


def package_files(root: Path) -> set[str]:
    """Return the files that the wheel must have: modules, the playground, the skill for coding agents, a marker."""
    static = (path for path in root.glob(f'{PACKAGE}/server/http/playground/static/**/*') if path.is_file())
    skills = root.glob(f'{PACKAGE}/.agents/skills/*/SKILL.md')
    paths = [*root.glob(f'{PACKAGE}/**/*.py'), *static, *skills, root / PACKAGE / 'py.typed', root / PLUGIN]
    return {path.relative_to(root).as_posix() for path in paths}


def faults(wheel: Path, archive: Path, version: str, root: Path = ROOT) -> Iterator[str]:
    """Return a line for each file that a release lacks or has too much."""
    package = package_files(root)
    info = f'{PACKAGE}-{version}.dist-info'
    with ZipFile(wheel) as files:
        names = {*files.namelist()}
        yield from _differences('the wheel', names, package | {f'{info}/{name}' for name in METADATA})
        if f'{info}/METADATA' in names and f'\nVersion: {version}\n' not in files.read(f'{info}/METADATA').decode():
            yield f'the wheel: METADATA does not have the version {version}'
    with tarfile.open(archive) as members:
        packed = {member.name.partition('/')[2] for member in members if member.isfile()}
    wanted = package | SOURCES
    yield from _differences(
        'the source archive', {name for name in packed if name.startswith(PACKAGE)} | SOURCES, wanted
    )
    yield from (f'the source archive lacks {name}' for name in sorted(SOURCES - packed))
    yield from (f'the source archive has {name}' for name in sorted(packed) if name.startswith(LOCAL))


def _differences(place: str, names: set[str], wanted: set[str]) -> Iterator[str]:
    yield from (f'{place} lacks {name}' for name in sorted(wanted - names))
    yield from (f'{place} has {name}' for name in sorted(names - wanted))


def installed_faults(wheel: Path, folder: Path, *commands: str, packages: str | None = None) -> Iterator[str]:
    """Install the wheel into an empty environment, and return a line for each thing that does not work.

    Args:
        wheel: The wheel.
        folder: The folder of the environment.
        commands: The commands of the package to try, without any all of them.
        packages: A folder of packages that the environment imports, instead of an installation of the dependencies.
    """
    pip = (*PIP, '--python', str(environment_python(folder)), 'install', '--quiet')
    try:
        _run(sys.executable, '-m', 'venv', '--without-pip', str(folder / 'environment'))
        _run(*pip, *(('--no-deps',) if packages else ()), str(wheel))
        if packages:
            site = next((folder / 'environment' / 'lib').glob('python*/site-packages'))
            (site / 'dependencies.pth').write_text(packages)
        yield from faults_of(folder, *commands)
        if not packages:
            _run(*pip, 'pytest')
        fixtures = _run(str(environment_python(folder)), '-m', 'pytest', '--fixtures', cwd=folder)
        yield from (f'pytest has no fixture {name}' for name in FIXTURES if f'{name} -- ' not in fixtures)
    except subprocess.CalledProcessError as error:
        yield f'{error}\n{error.stderr}'


def environment_python(folder: Path) -> Path:
    """Return the Python of the environment in the folder."""
    return folder / 'environment' / 'bin' / 'python'


def faults_of(folder: Path, *commands: str) -> list[str]:
    """Return a line for each thing that does not work in the environment of the folder."""
    script = ROOT / 'tests' / 'installed.py'
    return _run(str(environment_python(folder)), '-I', str(script), *commands, cwd=folder).splitlines()


def _run(*command: str, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(('COVERAGE_', 'PYTHON'))}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True, timeout=LIMIT)
    return done.stdout


def changelog_faults(changelog: str, version: str) -> Iterator[str]:
    """Return a line if the changelog has no dated section for the version."""
    if not re.search(rf'^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$', changelog, re.MULTILINE):
        yield f'CHANGELOG.md has no section "## {version} (YYYY-MM-DD)"'


def metadata_faults(wheel: Path) -> Iterator[str]:
    """Return a line for each address that the page on PyPI lacks, and one for the links of README that end there."""
    with ZipFile(wheel) as files:
        [name] = [name for name in files.namelist() if name.endswith('.dist-info/METADATA')]
        metadata = message_from_string(files.read(name).decode())
    named = {address.partition(',')[0] for address in metadata.get_all('Project-URL', ())}
    yield from (f'pyproject.toml: [project.urls] has no {name}' for name in sorted(ADDRESSES - named))
    links = re.findall(r'\]\((?!https?://|#)([^)]+)\)', str(metadata.get_payload()))
    if links:
        yield f'README.md: PyPI cannot follow {len(links)} links, such as {links[0]}'


def main(environment: Mapping[str, str] = os.environ) -> int:
    version = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']
    name = ROOT / 'dist' / f'{PACKAGE}-{version}'
    wheel = Path(f'{name}-py3-none-any.whl')
    with TemporaryDirectory() as folder:
        lines = [*faults(wheel, Path(f'{name}.tar.gz'), version), *installed_faults(wheel, Path(folder))]
    if environment.get('RELEASE'):
        lines.extend(changelog_faults((ROOT / 'CHANGELOG.md').read_text(), version))
        lines.extend(metadata_faults(wheel))
    print(
        '\n'.join(lines) or f'The wheel and the source archive of {version} have what they need, and the wheel works.'
    )
    return bool(lines)


if __name__ == '__main__':
    sys.exit(main())
