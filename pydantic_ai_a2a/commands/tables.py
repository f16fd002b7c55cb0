"""Rows as a table or as JSON Lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from pydantic_core import to_json

from ..wire.protocol import stored
from .terminal import echo, echo_json, safe

json_lines = click.option('--json', 'as_json', is_flag=True, help='Write one JSON object a line.')


def write_rows(columns: Sequence[str], rows: Sequence[dict[str, Any]], as_json: bool) -> int:
    """Write rows as JSON Lines or as a table, and return the exit code."""
    if as_json:
        for row in rows:
            echo_json(to_json(row).decode())
    elif rows:
        write_table(columns, [cells_of(row) for row in rows])
    return 0


def cells_of(row: dict[str, Any]) -> list[str]:
    """Return the values of a row as text."""
    return ['-' if value in (None, '') else str(value) for value in row.values()]


def time_text(at: int) -> str:
    """Return a time (ms) as text."""
    return stored.timestamp(at).decode().strip('"')


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write rows below the names of their columns."""
    table = [[column.upper() for column in columns], *([safe(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        echo('  '.join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
