"""Rows of results, and the Markdown table made from them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_name('results.json')

Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One figure."""

    name: str
    value: float
    unit: str
    low: float
    high: float
    """Quartiles over the rounds."""
    rounds: int

    @classmethod
    def of(cls, name: str, values: Iterable[float], unit: str = 'x') -> Row:
        """Make a row from the values of the rounds."""
        values = [*values]
        low, _, high = quantiles(values, n=4, method='inclusive') if len(values) > 1 else values * 3
        return cls(name, round(median(values), 4), unit, round(low, 4), round(high, 4), len(values))


def shown(value: float, unit: str) -> str:
    """Write a value with its unit."""
    return number(value) if unit == 'x' else f'{number(value)} {unit}'


def number(value: float) -> str:
    """Write a number with three digits or more."""
    return f'{value:,.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}'


def change(row: Json, before: Json | None) -> str:
    """Write how a value has changed since the last result; a dash if it is new."""
    if before is None or before['unit'] != row['unit'] or not before['value']:
        return '–'
    return f'{row["value"] / before["value"] - 1:+.0%}'


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table whose first column has text and whose other columns have numbers."""
    head = [columns, ['---', *('---:' for _ in columns[1:])]]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in [*head, *lines]) + '\n'


def markdown(results: Json, last: Json | None) -> str:
    """Write the results beside the last ones."""
    before: Mapping[str, Json] = {} if last is None else {row['name']: row for row in last['rows']}
    lines = [
        [
            row['name'],
            shown(row['value'], row['unit']),
            f'{number(row["low"])} to {number(row["high"])}',
            change(row, before.get(row['name'])),
        ]
        for row in results['rows']
    ]
    since = '' if last is None else f' Change: since {place(last["taken"])}.'
    return f'# Results\n\n{place(results["taken"], long=True)}.{since}\n\n' + table(
        ['', 'median', 'quartiles of the rounds', 'change'], lines
    )


def place(taken: Json, *, long: bool = False) -> str:
    """Name where and when results were taken."""
    name = f'{taken["date"]}, commit {taken["commit"]}, {taken["form"]} form'
    versions = ', '.join(f'{package} {version}' for package, version in taken['versions'].items())
    load = f'load average {taken["load"]:.1f} at the start'
    return f'{name}; {taken["machine"]}, {load}; {versions}' if long else name


def committed() -> Json | None:
    """Return the last committed results, or None."""
    text = git('show', 'HEAD:benchmarks/results.json')
    return json.loads(text) if text else None


def git(*arguments: str) -> str:
    """Return the output of a git command, or an empty string where it fails."""
    try:
        ran = subprocess.run(['git', *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    except OSError:
        return ''
    return ran.stdout if not ran.returncode else ''


def as_json(rows: Iterable[Row]) -> list[Json]:
    return [asdict(row) for row in rows]
