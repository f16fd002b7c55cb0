"""Writes what a command lists. Knows no command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ('write_table',)


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write rows under their columns' names."""
    table = [[column.upper() for column in columns], *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        line = '  '.join(value.ljust(width) for value, width in zip(row, widths, strict=True))
        sys.stdout.write(f'{line.rstrip()}\n')
