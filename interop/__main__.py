"""Runs the A2A clients of other frameworks against real servers, and calls servers of other frameworks.

    make interop
    make interop ARGS='--only crewai'

Each client and server gets an environment of its own below `.interop/`, with the versions that `clients.toml` names.
What users see goes into `results.json` and `servers.json`; the tables in `results.md` and one in `docs/clients.md` are
made from both. This is not part of `make test`: the environments take six gigabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interop.calling import called
from interop.tables import PAGE, REPORT, RESULTS, SERVERS, report, write

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / '.interop'
INSTALL, RUN = 1800, 600
"""Seconds that an installation and a driver may take."""


def main() -> int:
    parser = argparse.ArgumentParser(prog='make interop', description='Run clients and servers of other frameworks.')
    parser.add_argument('--only', action='append', metavar='CLIENT', help='a name in clients.toml; the others keep')
    only = parser.parse_args().only
    listed = tomllib.loads((HERE / 'clients.toml').read_text())
    clients, servers = listed['client'], listed['server']
    with served() as urls:
        for client in clients:
            if only is None or client['name'] in only:
                print(f'{client["name"]} ...', flush=True)
                record(RESULTS, client['name'], shown(client, urls), clients)
    for server in servers:
        if only is None or server['name'] in only:
            print(f'{server["name"]} ...', flush=True)
            record(SERVERS, server['name'], answered(server), servers)
    print(f'The tables in {PAGE.name} are up to date.')
    return 0


def record(file: Path, name: str, seen: dict[str, Any], listed: Sequence[dict[str, Any]]) -> None:
    """Write what a client or a server shows into its file and the page, before the next one can fail."""
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    results[name] = seen
    results = {each['name']: results[each['name']] for each in listed if each['name'] in results}
    file.write_text(json.dumps(results, indent=2, ensure_ascii=False) + '\n')
    PAGE.write_text(write(PAGE.read_text()))
    REPORT.write_text(report())


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """The URLs of the servers, by name."""
    command = [sys.executable, '-m', 'interop.server']
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.kill()


def shown(client: dict[str, Any], urls: dict[str, str]) -> dict[str, Any]:
    """What a client shows its user of each server."""
    driver, packages = HERE / 'drivers' / client['driver'], client['packages']
    folder = ENVIRONMENTS / re.sub(r'\W+', '-', ' '.join(packages))
    if driver.suffix == '.mjs':
        command, version = _npm(folder, packages, driver)
    elif driver.suffix == '.java':
        command, version = _debian(folder, packages, driver)
    else:
        command, version = _pip(folder, packages, driver, client.get('python', sys.executable))
    done = subprocess.run(
        [*command, *(f'{name}={url}' for name, url in urls.items())],
        env={**os.environ, 'EXTENSIONS': client.get('extensions', '')},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN,
        check=False,
    )
    (folder / 'driver.log').write_text(done.stdout + done.stderr)
    lines = [line.removeprefix('SEEN ') for line in done.stdout.splitlines() if line.startswith('SEEN ')]
    if not lines:
        raise SystemExit(f'{driver.name} has shown nothing; see {folder / "driver.log"}')
    return {
        'packages': packages,
        'sdk': version,
        'date': datetime.now(UTC).date().isoformat(),
        'seen': [json.loads(line) for line in lines],
    }


def answered(server: dict[str, Any]) -> dict[str, Any]:
    """What the client of this package shows of a server."""
    packages = server['packages']
    folder = ENVIRONMENTS / re.sub(r'\W+', '-', ' '.join(packages))
    command, version = _pip(folder, packages, HERE / 'servers' / server['driver'], sys.executable)
    date = datetime.now(UTC).date().isoformat()
    return {'packages': packages, 'sdk': version, 'date': date, **called(command)}


def _pip(folder: Path, packages: Sequence[str], driver: Path, interpreter: str) -> tuple[list[str], str]:
    python = folder / 'bin' / 'python'
    if not (folder / 'made').exists():
        _run(interpreter, '-m', 'venv', '--clear', str(folder))
        _run(str(python), '-m', 'pip', 'install', '-qq', '--disable-pip-version-check', *packages)
        (folder / 'made').touch()
    version = "from importlib.metadata import version; print(version('a2a-sdk'))"
    sdk = subprocess.run([str(python), '-c', version], capture_output=True, text=True, check=True, timeout=RUN)
    return [str(python), str(driver)], f'a2a-sdk {sdk.stdout.strip()}'


def _npm(folder: Path, packages: Sequence[str], driver: Path) -> tuple[list[str], str]:
    if not (folder / 'made').exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / 'package.json').write_text('{"private": true}')
        _run('npm', 'install', '--no-progress', '--prefix', str(folder), *packages)
        (folder / 'made').touch()
    for file in (driver, driver.with_name('driver.mjs')):  # Node.js looks for packages beside the file
        (folder / file.name).write_text(file.read_text())
    sdk = json.loads((folder / 'node_modules/@a2a-js/sdk/package.json').read_text())
    return ['node', str(folder / driver.name)], f'@a2a-js/sdk {sdk["version"]}'


def _debian(folder: Path, packages: Sequence[str], driver: Path) -> tuple[list[str], str]:
    query = ['dpkg-query', '--show', '--showformat=${Version}', packages[0]]
    version = subprocess.run(query, capture_output=True, text=True, check=False, timeout=RUN).stdout
    if not version:
        raise SystemExit(f'{driver.name} needs packages of Debian: apt-get install {" ".join(packages)}')
    folder.mkdir(parents=True, exist_ok=True)
    return ['java', '-cp', '/usr/share/java/gson.jar', str(driver)], f'JDK {version.partition("+")[0]}'


def _run(*command: str) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=INSTALL)


if __name__ == '__main__':
    raise SystemExit(main())
