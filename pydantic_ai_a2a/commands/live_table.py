"""A table that stays on the screen and changes. Needs rich, of the extra `cli`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .terminal import safe

_LINES = 2
"""Lines of the screen around the rows and the notes: the names of the columns, and an empty line."""


class LiveTable(Live):
    """A table on the screen, with notes below. It is drawn when it changes.

    Args:
        columns: The names of the columns.
        screen: True to use the whole screen, which shows what it had before at the end.
    """

    def __init__(self, columns: Sequence[str], *, screen: bool = False) -> None:
        super().__init__(console=Console(highlight=False), screen=screen, auto_refresh=False)
        self._columns = columns

    def show(self, rows: Sequence[Sequence[str]], *notes: str, chosen: int | None = None) -> None:
        """Draw the rows that the screen has room for, around the chosen one, and the notes below.

        Args:
            rows: The rows. The last column gets the rest of the screen's width.
            notes: A line for each.
            chosen: The row with a mark. Default: no row has one, and there is no column for it.
        """
        room = max(self.console.height - _LINES - len(notes), 1)
        first = max(0, min((chosen or 0) - room // 2, len(rows) - room))
        table = Table(box=None, pad_edge=False, header_style='bold', expand=True)
        if chosen is not None:
            table.add_column(width=1)
        for column in self._columns[:-1]:
            table.add_column(column.upper(), no_wrap=True)
        table.add_column(self._columns[-1].upper(), no_wrap=True, ratio=1)
        for n, row in enumerate(rows[first : first + room], first):
            mark = [] if chosen is None else ['>' if n == chosen else ' ']
            cells = [Text(safe(value).replace('\n', ' ')) for value in (*mark, *row)]
            table.add_row(*cells, style='reverse' if n == chosen else None)
        self.update(Group(table, Text(), *(Text(safe(note)) for note in notes)), refresh=True)
