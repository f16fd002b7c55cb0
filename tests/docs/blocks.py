"""The fenced blocks of code in Markdown files and docstrings, and the tables, each with its place for messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import TypeGuard

__all__ = ('ROOT', 'Block', 'Place', 'blocks', 'in_order', 'same_json', 'same_text', 'table')

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


# --- comparisons of what an example writes with what the documentation says
#
# There, `…` stands for anything within a line, and on a line of its own for any lines.


_ELLIPSIS = '…'
_LINES = re.compile(r'^…$', re.MULTILINE)


def same_text(documented: str, written: str) -> None:
    """Fail unless the text is as documented, line by line."""
    wanted, got = _lines(documented), _lines(written)
    assert _fits(wanted, got), f'documented:\n{wanted}\nwritten:\n{got}'


def _lines(text: str) -> str:
    return '\n'.join(line.rstrip() for line in text.strip().splitlines())


def same_json(documented: str, written: str) -> None:
    """Fail unless the JSON is as documented; `"…": "…"` leaves members out, a last item `"…"` items."""
    got = json.loads(written)
    differences = list(_differences(json.loads(documented), got, '$'))
    assert not differences, '\n'.join([*differences, 'written:', json.dumps(got, indent=2)])


def _fits(wanted: str, got: str) -> bool:
    spans = ('.*'.join(map(re.escape, span.split(_ELLIPSIS))) for span in _LINES.split(wanted))
    return re.fullmatch(r'(?s:.*)'.join(spans), got) is not None


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _differences(wanted: object, got: object, path: str) -> Iterator[str]:
    if _is_object(wanted) and _is_object(got):
        yield from _in_objects(wanted, got, path)
    elif _is_array(wanted) and _is_array(got):
        yield from _in_arrays(wanted, got, path)
    elif not _same_value(wanted, got):
        yield f'{path}: {got!r}, documented as {wanted!r}'


def _same_value(wanted: object, got: object) -> bool:
    if isinstance(wanted, str) and isinstance(got, str):
        return _fits(wanted, got)
    return wanted == got and type(wanted) is type(got)


def _in_objects(wanted: dict[str, object], got: dict[str, object], path: str) -> Iterator[str]:
    named = {key: value for key, value in wanted.items() if key != _ELLIPSIS}
    for key in sorted(named.keys() - got.keys()):
        yield f'{path}.{key}: documented, not written'
    if _ELLIPSIS not in wanted:
        for key in sorted(got.keys() - named.keys()):
            yield f'{path}.{key}: written, not documented'
    for key in sorted(named.keys() & got.keys()):
        yield from _differences(named[key], got[key], f'{path}.{key}')


def _in_arrays(wanted: list[object], got: list[object], path: str) -> Iterator[str]:
    if wanted[-1:] == [_ELLIPSIS]:
        wanted, got = wanted[:-1], got[: len(wanted) - 1]
    if len(wanted) != len(got):
        yield f'{path}: {len(got)} items, documented as {len(wanted)}'
    for index, (one, other) in enumerate(zip(wanted, got, strict=False)):
        yield from _differences(one, other, f'{path}[{index}]')
