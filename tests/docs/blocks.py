"""The fenced blocks of code in Markdown files and docstrings, and the tables, each with its place for messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

__all__ = ('ROOT', 'Block', 'Place', 'blocks', 'in_order', 'table')

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r' *```(?P<language>\w*)(?P<options>.*)')
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Place:
    """Where something is written."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f'{self.path.relative_to(ROOT)}:{self.line}'


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    language: str
    title: str | None
    """A Python file's name; `Output` for what the Python or curl block before it is said to write."""
    text: str
    place: Place
    """Of its first line of text."""

    @property
    def words(self) -> list[list[str]]:
        """The words of each of its commands: of each line that does not go on with the one before."""
        lines = self.text.replace('\\\n', ' ').splitlines()
        return [line.split() for line in lines if line.strip() and not line.startswith((' ', '#'))]


def blocks(path: Path) -> Iterator[Block]:
    """All fenced blocks of a file, in order; in a Python file, they stand in docstrings."""
    lines = iter(enumerate(path.read_text().splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        if fence is None:
            continue
        text: list[str] = []
        for _, inner in lines:
            if inner.strip() == '```':
                break
            text.append(inner)
        title = _TITLE.search(fence['options'])
        yield Block(fence['language'], title and title[1], dedent('\n'.join(text)), Place(path, number + 1))


def in_order(folder: Path) -> list[Path]:
    """Return the pages of a folder of the documentation in the order of the navigation."""
    listed = re.findall(rf': ({folder.name}/\S+\.md)$', (ROOT / 'mkdocs.yml').read_text(), re.MULTILINE)
    return [folder.parent / page for page in listed]


def table(path: Path, first_heading: str) -> list[list[str]]:
    """Return the rows of the Markdown tables with this heading of the first column, as text without code marks."""
    rows: list[list[str]] = []
    inside = False
    for line in path.read_text().splitlines():
        begins = line.startswith(f'| {first_heading} |')
        inside = begins or (inside and line.startswith('|'))
        if inside and not begins and not line.startswith('|---'):
            rows.append([cell.strip().replace('`', '') for cell in line.strip('|').split(' | ')])
    assert rows, f'{path.name} has no table with {first_heading!r}'
    return rows
