"""Draws the states of a task from the table of the package: `python -m tests.docs.pictures`.

A light panel is behind the boxes, so that the picture is legible on a light page and on a dark page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from pydantic_ai_a2a.task_states import INTERRUPTED, LIVE, TERMINAL
from pydantic_ai_a2a.types import TaskState

from ..suites.model import may_move
from .blocks import ROOT

__all__ = ('STATES', 'moves', 'states')

STATES = ROOT / 'docs' / 'task-states.svg'

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


def states() -> str:
    """Return the picture as SVG."""
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
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 370" role="img">',
        '<title>The states of a task</title>',
        f'<style>{_STYLE}</style>',
        f'<defs>{_HEAD}</defs>',
        '<rect class="panel" x="1" y="1" width="698" height="368" rx="8"/>',
        *elements,
        '</svg>',
        '',
    ]
    return '\n'.join(lines)


def _back(source: Box, target: Box) -> str:
    """Return an arrow from the left edge of a box to the lower edge of a box on the left."""
    shift = (source.y - 280) // 2
    x, left = target.x + shift, source.x - source.width // 2
    return f'<path class="arrow" d="M{left} {source.y + 8} C{x} {source.y + 8} {x} {source.y} {x} {target.y + 18}"/>'


if __name__ == '__main__':
    STATES.write_text(states())
