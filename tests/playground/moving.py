"""Makes the moving picture of README: `python -m tests.playground.moving` writes it into `docs/images`.

A server is killed with `kill -9` in the fourth step of a run, and started again. The playground shows how the run goes
on, and what waits for an approval. The picture leaves out most of the time in which nothing changes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from PIL import Image
from playwright.sync_api import Browser, expect, sync_playwright

from ..e2e.server import Process
from .browser import ARGUMENTS, chromium
from .pictures import IMAGES, MOVING

_WIDTH, _HEIGHT, _TERMINAL, _SCALE = 700, 480, 96, 2
_COLOURS = 16
_STYLE = """
  body { margin: 0; padding: 10px 14px; background: #1b1b26; color: #e6e6f0; }
  pre { margin: 0; font: 13px/19px monospace; }
  i { color: #8d8da6; font-style: normal; }
"""
_PROMPT = 'Plan three days in Lisbon, and book a hotel.'


class Film:
    """Pictures of the playground above a terminal.

    Args:
        browser: The browser.
    """

    def __init__(self, browser: Browser) -> None:
        self.page, self._screen = (
            browser.new_page(viewport={'width': _WIDTH, 'height': height}, device_scale_factor=_SCALE)
            for height in (_HEIGHT, _TERMINAL)
        )
        self._lines: list[str] = []
        self._frames: list[Image.Image] = []
        self._durations: list[int] = []

    def type(self, command: str, comment: str = '') -> None:
        """Write a command into the terminal, and a comment after the command."""
        self._lines.append(f'$ {escape(command)}' + (f'   <i># {escape(comment)}</i>' if comment else ''))

    def write(self, line: str) -> None:
        """Write a line of output into the terminal."""
        self._lines.append(escape(line))

    def take(self, seconds: float) -> None:
        """Take a picture that is shown for a number of seconds."""
        shown = '\n'.join(self._lines[-4:])
        self._screen.set_content(f'<style>{_STYLE}</style><pre>{shown}</pre>')
        frame = Image.new('RGB', (_WIDTH * _SCALE, (_HEIGHT + _TERMINAL) * _SCALE))
        for page, top in ((self.page, 0), (self._screen, _HEIGHT * _SCALE)):
            frame.paste(Image.open(BytesIO(page.screenshot())), (0, top))
        self._frames.append(frame)
        self._durations.append(round(seconds * 1_000))

    def save(self, path: Path) -> None:
        """Write the pictures into a GIF, with one palette for all of them."""
        sheet = Image.new('RGB', (_WIDTH * _SCALE, sum(frame.height for frame in self._frames)))
        for index, frame in enumerate(self._frames):
            sheet.paste(frame, (0, index * frame.height))
        palette = sheet.quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE)
        first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self._frames)
        first.save(path, save_all=True, append_images=others, duration=self._durations, loop=0, optimize=True)


class _Server:
    """A process that serves the agent of the picture, started as the terminal shows it."""

    def __init__(self, film: Film, folder: Path, comment: str = '') -> None:
        film.type('uvicorn trip:app', comment)
        self._process = Process('-m', 'uvicorn', 'trip:app', cwd=folder, fork=False)
        film.write(self._process.wait_for('INFO:     Uvicorn running on .*')[0])
        self._film = film
        self.url = self._process.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.close()

    def kill(self, comment: str) -> None:
        """Kill the process."""
        self._film.type(f'kill -9 {self._process.pid}', comment)
        self._process.signal(SIGKILL)
        self._process.exit_code()


def _play(film: Film, folder: Path, steps: Sequence[str]) -> None:
    page = film.page
    tools, results = page.locator('.block.tool'), page.locator('.block.tool .preview', has_text='→')
    with _Server(film, folder) as server:
        page.goto(f'{server.url}docs')
        page.get_by_role('textbox', name='Message', exact=True).fill(_PROMPT)
        film.take(1.5)
        page.keyboard.press('Enter')
        for done, step in enumerate(steps):
            expect(tools).to_have_text([*[re.compile('done')] * done, re.compile(f'{step}.*runs')])
            expect(results).to_have_count(done)
            film.take(0.8)
        film.take(0.8)
        server.kill('in the fourth step')
        page.get_by_text('Connection lost').wait_for()
        film.take(2.2)
    with _Server(film, folder, 'the run goes on with its fourth step'):
        film.take(1.8)
        page.get_by_text('Connection lost').wait_for(state='hidden')
        film.take(1.5)
        approve = page.get_by_role('button', name='Approve')
        approve.wait_for()
        film.take(2.5)
        approve.hover()
        film.take(0.7)
        approve.click()
        page.get_by_text('I have booked').wait_for()
        expect(results).to_have_count(len(steps) + 1)
        film.take(4)


def main() -> None:
    """Write the picture."""
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        shutil.copy(Path(__file__).with_name('trip.py'), folder)
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        film = Film(browser)
        _play(film, Path(folder), ('flights', 'forecast', 'hotels', 'compare_prices'))
        film.save(IMAGES / MOVING)
        browser.close()


if __name__ == '__main__':
    main()
