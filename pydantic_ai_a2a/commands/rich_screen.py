"""A screen with growing Markdown, for terminals. Needs rich, of the extra `cli`."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from ..types.a2a_objects import Message, Task
from .plain_screen import Screen
from .terminal import safe


class RichScreen(Screen):
    """Shows the answer to a message as Markdown."""

    def __init__(self, before: str = '', console: Console | None = None) -> None:
        super().__init__(before)
        self._console = console or Console(highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        self._live: Live | None = None

    def write(self, text: str, *, whole: str) -> None:
        """Draw the whole text anew."""
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=10, vertical_overflow='visible')
            self._live.start()
        self._live.update(Markdown(safe(whole), hyperlinks=False))

    def close(self) -> None:
        """Draw the text for the last time."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._text = ''

    def progress(self, text: str) -> None:
        """Show a step of the agent, in a faint colour."""
        for line in text.splitlines():
            self._errors.print(Text(f'  {safe(line)}', style='dim'))

    def end(self, outcome: Task | Message, *, is_asked: bool = False) -> None:
        """Show the rest of the answer. A question of a prompt is left out."""
        try:
            super().end(outcome, is_asked=is_asked)
        finally:
            self.close()
