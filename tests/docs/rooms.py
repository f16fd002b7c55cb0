"""Draws the houses and rooms of the package from its imports: `python -m tests.docs.rooms` writes `docs/rooms.svg`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import grimp

from .blocks import ROOT

PICTURE = ROOT / 'docs' / 'rooms.svg'
PACKAGE = 'pydantic_ai_a2a'
HOUSES = ('client', 'server', 'wire')
LEAVES = 'leaves'
"""The modules that all houses may import."""

_WIDTH, _ROW, _BOX, _GAP, _EDGE = 880, 68, 30, 24, 8
_TITLE = 34
"""Height of the name of a house above its rooms."""
_CLIENT_WIDTH = 260
_STYLE = """
  rect { fill: #e8eaf6; stroke: #3f51b5; }
  rect.house { fill: none; stroke-dasharray: 4 3; }
  text { fill: #1a237e; font: 15px sans-serif; text-anchor: middle; dominant-baseline: central; }
  text.house { font-weight: bold; }
  path { fill: none; stroke: #9e9e9e; }
  @media (prefers-color-scheme: dark) {
    rect { fill: #1a237e; stroke: #9fa8da; }
    text { fill: #e8eaf6; }
    path { stroke: #757575; }
  }
"""

Layers = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Box:
    """A room or a house in the picture; x is the middle of the box, y its upper edge."""

    name: str
    x: float
    y: float
    width: float
    height: float = _BOX


def layers(house: str = '') -> Layers:
    """The rooms of a house, or the houses and what stands beside them, from the top: see the import contracts."""
    container = f'{PACKAGE}.{house}' if house else PACKAGE
    contracts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['importlinter']['contracts']
    contract = next(contract for contract in contracts if contract.get('containers') == [container])
    return [layer.split(' | ') for layer in contract['layers']]


def rooms() -> list[str]:
    """The rooms of all houses, and the modules beside the houses, by their paths in the package."""
    inside = [f'{house}/{room}' for house in HOUSES for layer in layers(house) for room in layer]
    return [*inside, *(room for layer in layers() for room in layer if room not in HOUSES)]


def imports(house: str = '') -> dict[str, set[str]]:
    """What each room of a house imports of the others. Files beside the rooms are a room with the name of the house."""
    container = f'{PACKAGE}.{house}.' if house else f'{PACKAGE}.'
    graph = grimp.build_graph(PACKAGE)
    imported: dict[str, set[str]] = {room: set() for layer in layers(house) for room in layer}

    def room_of(module: str) -> str:
        room = module.removeprefix(container).partition('.')[0]
        return '' if not module.startswith(container) else room if room in imported else house

    for module in graph.modules:
        if (room := room_of(module)) in imported:
            targets = map(room_of, graph.find_modules_directly_imported_by(module))
            imported[room].update({*targets} & imported.keys() - {room})
    return imported


def arrows(imported: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that no longer way through other rooms stands for."""

    def reached(room: str) -> set[str]:
        return imported[room].union(*map(reached, imported[room]))

    return [
        (room, target)
        for room, targets in imported.items()
        for target in sorted(targets)
        if not any(target in reached(other) for other in targets)
    ]


def picture() -> str:
    """The picture as SVG: the houses, and a row for each layer, with the uppermost layer at the top."""
    users, (client, server), (wire,), *leaves = layers()
    full = _WIDTH - 2 * _EDGE
    width = full - _CLIENT_WIDTH - _GAP
    floors = {house: layers(house) for house in HOUSES} | {
        LEAVES: [row for layer in leaves for row in _rows(layer, full)]
    }
    heights = {name: _TITLE + len(rows) * _ROW - _ROW + _BOX + _EDGE for name, rows in floors.items()}
    y = _EDGE + _ROW
    between = _ROW - _BOX
    houses = [
        Box(client, _EDGE + _CLIENT_WIDTH / 2, y, _CLIENT_WIDTH, heights[client]),
        Box(server, _WIDTH - _EDGE - width / 2, y, width, heights[server]),
        Box(wire, _WIDTH / 2, y := y + max(heights[client], heights[server]) + between, full, heights[wire]),
        Box(LEAVES, _WIDTH / 2, y := y + heights[wire] + between, full, heights[LEAVES]),
    ]
    outside = imports()
    whole = {room: targets for room, targets in outside.items() if not any(room in row for row in leaves)}
    known = {room: {target if target in whole else LEAVES for target in targets} for room, targets in whole.items()}
    boxes = {box.name: box for box in (*_row(users, _EDGE, _EDGE, full), *houses)}
    lines = [_arrow(boxes[source], boxes[target]) for source, target in arrows({**known, LEAVES: set()})]
    lines += [line for box in boxes.values() for line in _drawn(box, house=box in houses)]
    for house in houses:
        rows = floors[house.name]
        left, top = house.x - house.width / 2, house.y + _TITLE
        inside = {
            box.name: box for index, row in enumerate(rows) for box in _row(row, top + index * _ROW, left, house.width)
        }
        imported = imports(house.name) if house.name in HOUSES else {room: outside[room] for room in inside}
        lines += [_arrow(inside[source], inside[target]) for source, target in arrows(imported)]
        lines += [line for box in inside.values() for line in _drawn(box)]
    size = f'0 0 {_WIDTH} {y + heights[LEAVES] + _EDGE:.0f}'
    return '\n'.join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}">', f'<style>{_STYLE}</style>', *lines, '</svg>', '']
    )


def _rows(layer: Sequence[str], width: float) -> Layers:
    """A layer in as many rows as fit into a width."""
    rows: list[list[str]] = [[]]
    for name in layer:
        if _length([*rows[-1], name]) > width:
            rows.append([])
        rows[-1].append(name)
    return rows


def _length(names: Sequence[str]) -> int:
    return sum(map(_width, names)) + _GAP * (len(names) - 1)


def _width(name: str) -> int:
    return 9 * len(name) + 20


def _row(names: Sequence[str], y: float, left: float, width: float) -> list[Box]:
    widths = map(_width, names)
    edges = [left + (width - _length(names)) / 2]
    for each in widths:
        edges.append(edges[-1] + each + _GAP)
    return [
        Box(name, (start + end - _GAP) / 2, y, end - _GAP - start)
        for name, (start, end) in zip(names, pairwise(edges), strict=True)
    ]


def _arrow(above: Box, below: Box) -> str:
    """A line down, between houses as straight as can be."""
    start, end = above.y + above.height, below.y
    bend = (end - start) / 2
    upper, lower = _nearest(above, below), _nearest(below, above)
    points = (upper, start), (upper, start + bend), (lower, end - bend), (lower, end)
    first, *curve = (f'{x:.0f} {y:.0f}' for x, y in points)
    return f'<path d="M{first} C{" ".join(curve)}"/>'


def _nearest(box: Box, to: Box) -> float:
    """The x at a box that is the nearest to the middle of another box: any at a house, the middle of a room."""
    half = max(0, box.width / 2 - _WIDTH / 8)
    return max(box.x - half, min(to.x, box.x + half))


def _drawn(box: Box, *, house: bool = False) -> list[str]:
    kind = ' class="house"' if house else ''
    left, middle = box.x - box.width / 2, box.y + (_TITLE if house else box.height) / 2
    return [
        f'<rect{kind} x="{left:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="6"/>',
        f'<text{kind} x="{box.x:.0f}" y="{middle:.0f}">{box.name}</text>',
    ]


if __name__ == '__main__':
    PICTURE.write_text(picture())
