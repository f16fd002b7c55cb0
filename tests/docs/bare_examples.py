"""Runs each example as somebody new does: `python -m tests.docs.bare_examples [EXAMPLE ...]`.

An empty environment gets the package and the packages that `examples/README.md` names. The commands are those of the
docstrings, and a server is asked for its card. The output is printed. If an example fails, the exit code is 1. The
script needs the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from .blocks import ROOT, table

EXAMPLES = ROOT / 'examples'
SECONDS = 600
"""The most time that an installation or a script may take."""
_COMMAND = re.compile(r'`((?:uvicorn|python|pydantic-ai-a2a serve) [^`]+)`')
_PATH = re.compile(r'at `(/\w+)`')
"""The path of the first of several agents."""
_URL = re.compile(r'Uvicorn running on (\S+)')


def main(names: Sequence[str]) -> int:
    """Run the examples with these names, or all; return 1 if one fails."""
    failed: list[str] = []
    with TemporaryDirectory() as directory:
        for name, cell, *_ in table(EXAMPLES / 'README.md', 'Example'):
            packages = cell.strip('–')
            if name in (names or [name]):
                print(f'\n--- {name} {packages and f"with {packages}"}', flush=True)
                try:
                    _run(name, _environment(Path(directory), packages))
                except (RuntimeError, subprocess.SubprocessError) as error:
                    print(f'FAILED: {error!r}', flush=True)
                    failed.append(name)
    print(f'\nFailed: {", ".join(failed) or "none"}')
    return bool(failed)


@cache
def _environment(directory: Path, packages: str) -> Path:
    """Return an environment with the package and other packages, and a copy of the examples."""
    environment = directory / re.sub(r'\W+', '-', f'with {packages}')
    venv.create(environment, with_pip=True)
    install = [str(environment / 'bin' / 'pip'), 'install', '--quiet', str(ROOT), *packages.split()]
    subprocess.run(install, check=True, timeout=SECONDS)
    shutil.copytree(EXAMPLES, environment / 'examples')
    return environment


def _run(name: str, environment: Path) -> None:
    """Run an example in its directory to its end, or until a server shows its card."""
    example = environment / 'examples' / name
    program = next(path for path in (example, example / 'demo.py', example / 'app.py') if path.is_file())
    source = program.read_text()
    if program.suffix == '.ipynb':
        command = f'jupyter execute {program.name}'
    else:
        command = documented[1] if (documented := _COMMAND.search(source)) else f'python {program.name}'
    print(f'$ {command}', flush=True)
    variables = {**os.environ, 'OPENAI_API_KEY': 'none', 'PATH': f'{environment / "bin"}:{os.environ["PATH"]}'}
    if command.startswith(('python', 'jupyter')):
        subprocess.run(command.split(), cwd=program.parent, env=variables, check=True, timeout=SECONDS)
        return
    listening = [*command.split(), '--port', '0']
    with subprocess.Popen(
        listening, cwd=program.parent, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        try:
            url = _url(server.stdout).rstrip('/') + (path[1] if (path := _PATH.search(source)) else '')
            subprocess.run(['pydantic-ai-a2a', 'card', url], env=variables, check=True, timeout=SECONDS)
        finally:
            server.kill()


def _url(output: Iterable[str]) -> str:
    """Print the output of a server until it names its URL."""
    for line in output:
        print(line, end='')
        if url := _URL.search(line):
            return url[1]
    raise RuntimeError('the server has ended')


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
