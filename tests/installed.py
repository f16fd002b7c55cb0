"""Tries the installed package as a user does, and writes a line for each fault.

`tests.package` runs this file in an environment that has only the wheel and the dependencies of the wheel.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import urlopen

COMMAND = Path(sys.executable).with_name('pydantic-ai-a2a')
LIMIT = 86_400.0
"""Seconds for an answer or a program, as in `tests/bounds.py`."""
_LINKS = re.compile(r'(?:src|href)="([\w./-]+)"|from \'([\w./-]+)\'')


def page_faults(url: str) -> Iterator[str]:
    """Fetch the playground, and each file that the page or its scripts name."""
    seen: set[str] = set()
    urls = [url]
    while urls:
        url = urls.pop()
        if url in seen:
            continue
        seen.add(url)
        try:
            text = urlopen(url, timeout=LIMIT).read().decode()
        except HTTPError as error:
            yield f'the playground: {url} is HTTP {error.code}'
        else:
            urls += [urljoin(url, source or module) for source, module in _LINKS.findall(text)]
    if len(seen) < 10:
        yield f'the playground has only {sorted(seen)}'


def answer_faults(url: str) -> Iterator[str]:
    """Ask the agent with the client of the package."""
    from pydantic_ai_a2a import RemoteAgent

    answer = RemoteAgent(url).run_sync('Hello.').output
    if answer != 'success (no tool calls)':
        yield f'RemoteAgent: the answer is {answer!r}'


def command_faults(url: str, names: Sequence[str]) -> Iterator[str]:
    """Start the commands with the names; without names, the list of commands and each command that calls a server."""
    for arguments in (['--help'], ['card', url], ['send', url, 'Hello.'], ['tasks', url], ['doctor', url]):
        if names and arguments[0] not in names:
            continue
        done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=LIMIT)
        if done.returncode:
            yield f'pydantic-ai-a2a {arguments[0]}: {done.stderr.strip().splitlines()[-1:]}'


def licence_faults() -> Iterator[str]:
    """Look for the licence of the package, and for the licence of each vendored file."""
    paths = [Path(str(path.locate())) for path in distribution('pydantic-ai-a2a').files or ()]
    names = {path.name for path in paths if path.is_file()}
    # The grammars of a highlighter have its licence: highlight-python.js has highlight.LICENSE.
    scripts = [path for path in paths if path.parent.name == 'vendor' and path.suffix == '.js']
    vendored = sorted({path.stem.partition('-')[0] for path in scripts})
    if not vendored:
        yield 'the wheel has no vendored scripts'
    for name in ('LICENSE', *(f'{stem}.LICENSE' for stem in vendored)):
        if name not in names:
            yield f'the licence {name} is not installed'


def plugin_faults() -> Iterator[str]:
    """Look for the module of the pytest plugin."""
    modules = [entry.value for entry in distribution('pydantic-ai-a2a').entry_points.select(group='pytest11')]
    if [find_spec(module) is None for module in modules] != [False]:
        yield f'the pytest plugin is not installed: {modules}'


def main() -> None:
    from pydantic_ai import Agent

    from pydantic_ai_a2a import serve

    with serve(Agent('test')) as server:
        assert server.docs_url is not None
        for fault in (
            *page_faults(server.docs_url),
            *answer_faults(server.url),
            *command_faults(server.url, sys.argv[1:]),
            *licence_faults(),
            *plugin_faults(),
        ):
            print(fault)


if __name__ == '__main__':
    main()
