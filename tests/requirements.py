"""The requirements of A2A 1.0, with their tests: reads `requirements.toml`, writes the tables of the docs.

MkDocs loads this file as a hook, so the file imports nothing of the tests.
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
"""The place of the tables in a page."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A requirement of the specification."""

    name: str
    area: str
    section: str
    """Of the specification; A is its appendix."""
    level: Literal['must', 'should', 'may']
    text: str
    tests: list[str] = field(default_factory=list[str])
    """Ids without parameters, below `tests/`."""
    deviates: str | None = None
    """What the server does instead, by default, as the tests show."""
    later: str | None = None
    """Why it is not done yet."""
    not_here: str | None = None
    """Why it is nothing for this package."""


def requirements() -> Mapping[str, Requirement]:
    """Return all requirements by name."""
    text = Path(__file__).with_suffix('.toml').read_text()
    return {name: Requirement(name=name, **fields) for name, fields in tomllib.loads(text).items()}


def tables() -> str:
    """Return the tables of the requirements, in Markdown."""
    lines = ['### Deviations', '', '| Number | Section | Requirement | Server |', '|---|---|---|---|']
    lines += [
        f'| {requirement.name} | {requirement.section} | {requirement.text} | {requirement.deviates} |'
        for requirement in requirements().values()
        if requirement.deviates is not None
    ]
    lines.append('')
    for area, members in groupby(requirements().values(), lambda requirement: requirement.area):
        lines += [f'### {area}', '', '| Number | Section | Level | Requirement | Shown |', '|---|---|---|---|---|']
        lines += [f'| {row.name} | {row.section} | {row.level} | {row.text} | {_state(row)} |' for row in members]
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
    """Put the tables into the page of the protocol, as a hook of MkDocs."""
    return markdown.replace(PLACE, tables())
