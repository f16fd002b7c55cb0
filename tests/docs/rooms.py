"""Draws the rooms of the package from its imports: `python -m tests.docs.rooms` writes `docs/rooms.svg`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import pairwise

import grimp

from .blocks import ROOT

PICTURE = ROOT / 'docs' / 'rooms.svg'
PACKAGE = 'pydantic_ai_a2a'

_WIDTH, _ROW, _BOX, _GAP = 880, 84, 32, 24
_STYLE = """
  rect { fill: #e8eaf6; stroke: #3f51b5; }
  text { fill: #1a237e; font: 15px sans-serif; text-anchor: middle; dominant-baseline: central; }
  path { fill: none; stroke: #9e9e9e; }
  @media (prefers-color-scheme: dark) {
    rect { fill: #1a237e; stroke: #9fa8da; }
    text { fill: #e8eaf6; }
    path { stroke: #757575; }
  }
"""


@dataclass(frozen=True)
class Box:
    """A room in the picture; x is the middle of the box, y its upper edge."""

    name: str
    x: float
    y: float
    width: float


def layers() -> list[list[str]]:
    """The rooms, layer by layer from the top, as the import contract has them."""
    contracts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['importlinter']['contracts']
    contract = next(contract for contract in contracts if contract['containers'] == [PACKAGE])
    return [layer.split(' | ') for layer in contract['layers']]


def imports() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    graph = grimp.build_graph(PACKAGE)
    rooms: dict[str, set[str]] = {room: set() for layer in layers() for room in layer}
    for module in graph.modules:
        room = _room(module)
        if room in rooms:
            imported = {_room(target) for target in graph.find_modules_directly_imported_by(module)}
            rooms[room] |= imported & rooms.keys() - {room}
    return rooms


def _room(module: str) -> str:
    return module.removeprefix(f'{PACKAGE}.').partition('.')[0]


def arrows(rooms: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that no longer way through other rooms stands for."""

    def reached(room: str) -> set[str]:
        return rooms[room].union(*map(reached, rooms[room]))

    return [
        (room, target)
        for room, targets in rooms.items()
        for target in sorted(targets)
        if not any(target in reached(other) for other in targets)
    ]


def picture() -> str:
    """The picture as SVG: a row for each layer, with the uppermost layer at the top."""
    rows = layers()
    boxes = {box.name: box for index, row in enumerate(rows) for box in _row(row, 8 + index * _ROW)}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {8 + len(rows) * _ROW - _ROW + _BOX + 8}">',
        f'<style>{_STYLE}</style>',
    ]
    for source, target in arrows(imports()):
        above, below = boxes[source], boxes[target]
        start, end = above.y + _BOX, below.y
        bend = (end - start) / 2
        lines.append(
            f'<path d="M{above.x:.0f} {start:.0f} C{above.x:.0f} {start + bend:.0f}'
            f' {below.x:.0f} {end - bend:.0f} {below.x:.0f} {end:.0f}"/>'
        )
    for box in boxes.values():
        lines += [
            f'<rect x="{box.x - box.width / 2:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{_BOX}" rx="6"/>',
            f'<text x="{box.x:.0f}" y="{box.y + _BOX / 2:.0f}">{box.name}</text>',
        ]
    return '\n'.join([*lines, '</svg>', ''])


def _row(names: list[str], y: float) -> list[Box]:
    widths = [9 * len(name) + 24 for name in names]
    left = (_WIDTH - sum(widths) - _GAP * (len(names) - 1)) / 2
    edges = [left]
    for width in widths:
        edges.append(edges[-1] + width + _GAP)
    return [
        Box(name, (start + end - _GAP) / 2, y, end - _GAP - start)
        for name, (start, end) in zip(names, pairwise(edges), strict=True)
    ]


if __name__ == '__main__':
    PICTURE.write_text(picture())
