"""Compares what an example wrote with what the documentation says it writes.

There, `…` stands for anything within a line, and on a line of its own for any lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TypeGuard

__all__ = ('same_json', 'same_text')

_ELLIPSIS = '…'
_LINES = re.compile(r'^…$', re.MULTILINE)


def same_text(documented: str, written: str) -> None:
    """Fail unless the text is as documented, line by line."""
    wanted, got = _lines(documented), _lines(written)
    assert _fits(wanted, got), f'documented:\n{wanted}\nwritten:\n{got}'


def _lines(text: str) -> str:
    return '\n'.join(line.rstrip() for line in text.strip().splitlines())


def same_json(documented: str, written: str) -> None:
    """Fail unless the JSON is as documented; `"…": "…"` leaves members out, a last item `"…"` items."""
    got = json.loads(written)
    differences = list(_differences(json.loads(documented), got, '$'))
    assert not differences, '\n'.join([*differences, 'written:', json.dumps(got, indent=2)])


def _fits(wanted: str, got: str) -> bool:
    spans = ('.*'.join(map(re.escape, span.split(_ELLIPSIS))) for span in _LINES.split(wanted))
    return re.fullmatch(r'(?s:.*)'.join(spans), got) is not None


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _differences(wanted: object, got: object, path: str) -> Iterator[str]:
    if _is_object(wanted) and _is_object(got):
        yield from _in_objects(wanted, got, path)
    elif _is_array(wanted) and _is_array(got):
        yield from _in_arrays(wanted, got, path)
    elif not _same_value(wanted, got):
        yield f'{path}: {got!r}, documented as {wanted!r}'


def _same_value(wanted: object, got: object) -> bool:
    if isinstance(wanted, str) and isinstance(got, str):
        return _fits(wanted, got)
    return wanted == got and type(wanted) is type(got)


def _in_objects(wanted: dict[str, object], got: dict[str, object], path: str) -> Iterator[str]:
    named = {key: value for key, value in wanted.items() if key != _ELLIPSIS}
    for key in sorted(named.keys() - got.keys()):
        yield f'{path}.{key}: documented, not written'
    if _ELLIPSIS not in wanted:
        for key in sorted(got.keys() - named.keys()):
            yield f'{path}.{key}: written, not documented'
    for key in sorted(named.keys() & got.keys()):
        yield from _differences(named[key], got[key], f'{path}.{key}')


def _in_arrays(wanted: list[object], got: list[object], path: str) -> Iterator[str]:
    if wanted[-1:] == [_ELLIPSIS]:
        wanted, got = wanted[:-1], got[: len(wanted) - 1]
    if len(wanted) != len(got):
        yield f'{path}: {len(got)} items, documented as {len(wanted)}'
    for index, (one, other) in enumerate(zip(wanted, got, strict=False)):
        yield from _differences(one, other, f'{path}[{index}]')
