"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Sequence

import click

__all__ = ('write_table',)


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write rows below the names of their columns."""
    table = [[column.upper() for column in columns], *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        click.echo('  '.join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
