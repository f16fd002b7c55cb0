"""What A2A 1.0 asks of a server, and which tests show it: reads `requirements.toml`, and writes the table of the docs.

MkDocs loads this file as a hook, so it imports nothing of the tests.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

__all__ = ('PLACE', 'Requirement', 'on_page_markdown', 'requirements', 'tables')

PLACE = '<!-- The tables of tests/requirements.toml are put here. -->'
"""What stands in a page for the tables."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One thing that the specification asks."""

    name: str
    area: str
    section: str
    """Of the specification; A is its appendix."""
    level: Literal['must', 'should', 'may']
    text: str
    tests: list[str] = field(default_factory=list[str])
    """Ids without parameters, below `tests/`, or of the suites in `testing/` of the package."""
    deviates: str | None = None
    """What the server does instead, by default, as the tests show."""
    later: str | None = None
    """Why it is not done yet."""
    not_here: str | None = None
    """Why it is nothing for this package."""


def requirements() -> Mapping[str, Requirement]:
    """All of them, by name."""
    text = Path(__file__).with_suffix('.toml').read_text()
    return {name: Requirement(name=name, **fields) for name, fields in tomllib.loads(text).items()}


def tables() -> str:
    """What the docs say of them, in Markdown."""
    lines = ['### Deviations', '', '| | Section | What is asked | What this server does |', '|---|---|---|---|']
    lines += [
        f'| {each.name} | {each.section} | {each.text} | {each.deviates} |'
        for each in requirements().values()
        if each.deviates is not None
    ]
    lines.append('')
    for area, those in groupby(requirements().values(), lambda each: each.area):
        lines += [f'### {area}', '', '| | Section | | What | |', '|---|---|---|---|---|']
        lines += [f'| {each.name} | {each.section} | {each.level} | {each.text} | {_state(each)} |' for each in those]
        lines.append('')
    return '\n'.join(lines)


def _state(requirement: Requirement) -> str:
    if (why := requirement.later or requirement.not_here) is not None:
        return f'No. {why}' if requirement.later else why
    shown = 'Yes' if requirement.deviates is None else 'Deviates'
    return f'{shown}, see ' + ', '.join(f'`{test.partition("::")[0]}`' for test in _files(requirement.tests))


def _files(tests: list[str]) -> list[str]:
    return list(dict.fromkeys(test.partition('::')[0] for test in tests))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs asks for each page."""
    return markdown.replace(PLACE, tables())
