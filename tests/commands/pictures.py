"""Makes the pictures of commands in a terminal: `python -m tests.commands.pictures` writes them into `docs/images`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from io import StringIO
from itertools import groupby

import pyte
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pyte.screens import Char
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text
from starlette.types import ASGIApp

from pydantic_ai_a2a import Access, Progress, Results, serve, to_a2a

from ..bounds import LIMIT
from ..client.doctor.test_doctor import BufferingProxy
from ..playground.pictures import IMAGES, travel_agent
from .command import Terminal, process_in_terminal

__all__ = ('NAMES', 'svg')

NAMES = ('terminal-send', 'terminal-chat', 'terminal-doctor')

_COLUMNS, _LINES = 100, 60
_FONTS = re.compile(r'@font-face \{\{.*?\n    \}\}', re.DOTALL)
_FORM = _FONTS.sub('', CONSOLE_SVG_FORMAT).replace('Fira Code, ', '')
"""The form of the pictures, without the fonts of another host."""
_BOOKED = 'I have booked the **Solar do Castelo** from May 15 to May 17, with breakfast.'


def svg(name: str, typed: str, written: str) -> str:
    """Return the picture of a terminal after somebody has typed a command, and the command has written its output."""
    screen = pyte.Screen(_COLUMNS, _LINES)
    pyte.Stream(screen).feed(f'$ {typed}\r\n{written}')
    lines = [_line([screen.buffer[y][x] for x in range(_COLUMNS)]) for y in range(_LINES)]
    while not lines[-1].plain:
        lines.pop()
    console = Console(width=_COLUMNS, record=True, file=StringIO())
    console.print(*lines, sep='\n')
    return console.export_svg(title='pydantic-ai-a2a', code_format=_FORM, unique_id=name)


def _line(characters: Sequence[Char]) -> Text:
    line = Text()
    for style, equals in groupby(characters, _style):
        line.append(''.join(character.data for character in equals), style)
    line.rstrip()
    return line


def _style(character: Char) -> Style:
    colour = character.fg.replace('bright', 'bright_').replace('brown', 'yellow')  # as rich names the colour
    return Style(
        color=f'#{colour}' if re.fullmatch('[0-9a-f]{6}', colour) else colour,
        bold=character.bold,
        italic=character.italics,
        underline=character.underscore,
        reverse=character.reverse,
    )


def _book(terminal: Terminal) -> None:
    """Ask for a hotel, and approve the booking."""
    terminal.until_prompt()
    terminal.type('Which hotel is near the castle?\r')
    terminal.until_prompt(2)
    terminal.type('Book the hotel for two nights.\r')
    terminal.until('Approve?')
    terminal.type('y\r')
    terminal.until_prompt(3)
    terminal.type('/exit\r')


def _write(app: ASGIApp, name: str, command: str, *arguments: str) -> None:
    """Run a command against an app, and draw the terminal."""
    with serve(app, port=8000, anonymous=True) as server:
        url = server.url.removesuffix('/')
        with process_in_terminal(command, url, *arguments) as (terminal, process):
            if command == 'chat':
                _book(terminal)
            assert process.wait(LIMIT) == 0, terminal.text
        terminal.close()
    typed = ' '.join(['pydantic-ai-a2a', command, url, *(f"'{argument}'" for argument in arguments)])
    (IMAGES / f'{name}.svg').write_text(svg(name, typed, terminal.raw))


def _slow_joker() -> ASGIApp:
    """An agent behind a proxy that collects the events of a stream."""

    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'A gummy '
        await asyncio.sleep(0.35)  # a model is slow enough to tell that the events come together
        yield 'bear.'

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart('A gummy bear.')])

    agent = Agent(FunctionModel(answer, stream_function=write), name='joker')
    return BufferingProxy(to_a2a(agent, access=Access(versions=['1.0']), results=Results(stream='mark')))


def main() -> None:
    """Write the pictures."""
    results = Results(progress=Progress(tools=True))
    send, chat, doctor = NAMES
    _write(to_a2a(travel_agent(), results=results), send, 'send', 'Plan three days in Lisbon.')
    _write(to_a2a(travel_agent(_BOOKED)), chat, 'chat')
    _write(_slow_joker(), doctor, 'doctor')


if __name__ == '__main__':
    main()
