"""Draws the pictures of the documentation: `python -m tests.docs.pictures` writes them into `docs/`.

Each picture has a light panel behind its boxes, so that it is legible on a light page and on a dark page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from pydantic_ai_a2a.task_states import INTERRUPTED, LIVE, TERMINAL
from pydantic_ai_a2a.types import TaskState

from ..suites.model import may_move
from .blocks import ROOT

__all__ = ('PICTURES', 'moves')

DOCS = ROOT / 'docs'

_HEIGHT = 36
_STYLE = """
  .panel { fill: #fafafa; stroke: #c5cae9; }
  .box { fill: #e8eaf6; stroke: #3f51b5; }
  text { fill: #1a237e; font: 14px sans-serif; text-anchor: middle; dominant-baseline: central; }
  .label { fill: #424242; font-size: 12px; }
  .arrow { fill: none; stroke: #616161; marker-end: url(#head); }
"""
_HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#616161"/></marker>'
)


@dataclass(frozen=True)
class Box:
    """A box with a text; x and y are its middle."""

    text: str
    x: int
    y: int
    width: int = 130

    def svg(self) -> str:
        """Return the elements of the box."""
        left, top = self.x - self.width // 2, self.y - _HEIGHT // 2
        return (
            f'<rect class="box" x="{left}" y="{top}" width="{self.width}" height="{_HEIGHT}" rx="6"/>\n'
            f'<text x="{self.x}" y="{self.y}">{escape(self.text)}</text>'
        )


def _picture(width: int, height: int, title: str, elements: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f'<title>{escape(title)}</title>',
        f'<style>{_STYLE}</style>',
        f'<defs>{_HEAD}</defs>',
        f'<rect class="panel" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8"/>',
        *elements,
        '</svg>',
        '',
    ]
    return '\n'.join(lines)


def _across(source: Box, target: Box, shift: int = 0) -> str:
    """Return an arrow from the right edge of a box to the left edge of another box."""
    start, end = source.x + source.width // 2, target.x - target.width // 2
    bend = (start + end) // 2
    return (
        f'<path class="arrow" d="M{start} {source.y + shift} C{bend} {source.y + shift}'
        f' {bend} {target.y + shift} {end} {target.y + shift}"/>'
    )


def _down(source: Box, target: Box, shift: int = 0) -> str:
    """Return a vertical arrow between two boxes, upwards if the target is higher."""
    sign = 1 if target.y > source.y else -1
    half = sign * _HEIGHT // 2
    return f'<path class="arrow" d="M{source.x + shift} {source.y + half} L{target.x + shift} {target.y - half}"/>'


def _label(text: str, x: int, y: int) -> str:
    return f'<text class="label" x="{x}" y="{y}">{escape(text)}</text>'


_STATES: Mapping[TaskState, Box] = {
    'submitted': Box('submitted', 100, 60),
    'working': Box('working', 100, 180),
    'input-required': Box('input-required', 330, 250),
    'auth-required': Box('auth-required', 330, 310),
    'completed': Box('completed', 600, 180),
    'failed': Box('failed', 600, 60),
    'canceled': Box('canceled', 600, 120),
    'rejected': Box('rejected', 600, 240),
}


def moves() -> list[tuple[TaskState, TaskState]]:
    """Return the changes of state between two different states, from the table of the package."""
    return [
        (source, target) for source in _STATES for target in _STATES if source != target and may_move(source, target)
    ]


def _states() -> str:
    elements: list[str] = []
    for source, target in moves():
        start, end = _STATES[source], _STATES[target]
        if {source, target} <= LIVE:
            elements.append(_down(start, end))
        elif source in INTERRUPTED and target in LIVE:
            elements.append(_back(start, end))
        else:
            elements.append(_across(start, end))
    elements += [box.svg() for box in _STATES.values()]
    elements += [
        _label('live', 100, 24),
        _label('waiting for the client', 330, 346),
        _label('ended', 600, 24),
    ]
    assert set(_STATES) == LIVE | INTERRUPTED | TERMINAL
    return _picture(700, 370, 'The states of a task', elements)


def _back(source: Box, target: Box) -> str:
    """Return an arrow from the left edge of a box to the lower edge of a box on the left."""
    shift = (source.y - 280) // 2
    x, left = target.x + shift, source.x - source.width // 2
    return f'<path class="arrow" d="M{left} {source.y + 8} C{x} {source.y + 8} {x} {source.y} {x} {target.y + 18}"/>'


def _message() -> str:
    steps = [
        ('http', 'reads the request'),
        ('auth', 'finds the caller'),
        ('protocol', 'decodes the JSON'),
        ('service', 'checks rights and rates'),
        ('service', 'performs the operation'),
        ('store', 'stores task and message'),
        ('runs', 'claims the task'),
        ('agent', 'runs the agent'),
        ('conversion', 'makes parts of the result'),
        ('store', 'stores and publishes events'),
        ('protocol', 'encodes the events'),
        ('http', 'sends the stream'),
    ]
    boxes: list[Box] = []
    for index in range(len(steps)):
        row, column = divmod(index, 4)
        boxes.append(Box(steps[index][0], 110 + (column if row % 2 == 0 else 3 - column) * 190, 50 + row * 110))
    elements = [box.svg() for box in boxes]
    elements += [_label(text, box.x, box.y + 32) for box, (_, text) in zip(boxes, steps, strict=True)]
    for source, target in pairwise(boxes):
        if source.x == target.x:
            elements.append(f'<path class="arrow" d="M{source.x} {source.y + 42} L{target.x} {target.y - 18}"/>')
        else:
            side = 65 if target.x > source.x else -65
            elements.append(f'<path class="arrow" d="M{source.x + side} {source.y} L{target.x - side} {target.y}"/>')
    return _picture(790, 330, 'The path of a message', elements)


def _deployments() -> str:
    elements: list[str] = []
    shapes = [
        (130, 'One process', ['server and worker'], 'memory'),
        (400, 'One machine', ['server and worker', 'server and worker'], 'SQLite file'),
        (710, 'Many machines', ['servers', 'workers'], 'PostgreSQL'),
    ]
    for x, title, processes, store in shapes:
        client, stored = Box('clients', x, 80), Box(store, x, 260)
        places = [x] if len(processes) == 1 else [x - 75, x + 75]
        middle = [Box(text, place, 170, 140) for text, place in zip(processes, places, strict=True)]
        elements.append(_label(title, x, 32))
        for box in middle:
            if box.text != 'workers':
                elements.append(f'<path class="arrow" d="M{x} 98 L{box.x} 152"/>')
            elements.append(f'<path class="arrow" d="M{box.x} 188 L{x} 242"/>')
        elements += [box.svg() for box in (client, *middle, stored)]
    return _picture(880, 300, 'Shapes of a deployment', elements)


def _engines() -> str:
    clients, servers, temporal, workers = (
        Box(text, 110 + 220 * n, 80, 140) for n, text in enumerate(['clients', 'servers', 'Temporal', 'workers'])
    )
    database = Box('PostgreSQL', 550, 190, 140)
    arrows = ['M180 80 L260 80', 'M400 80 L480 80', 'M700 80 L620 80', 'M360 98 L490 172', 'M740 98 L610 172']
    elements = [f'<path class="arrow" d="{arrow}"/>' for arrow in arrows]
    labels = [_label('starts, watches, cancels', 440, 40), _label('takes steps', 660, 40), _label('all data', 550, 140)]
    return _picture(
        880,
        240,
        'Servers and workers of Temporal',
        [*elements, *labels, *(box.svg() for box in (clients, servers, temporal, workers, database))],
    )


PICTURES = {
    DOCS / 'engines.svg': _engines,
    DOCS / 'task-states.svg': _states,
    DOCS / 'message-path.svg': _message,
    DOCS / 'deployments.svg': _deployments,
}
"""The function that draws each file."""


if __name__ == '__main__':
    for path, draw in PICTURES.items():
        path.write_text(draw())
