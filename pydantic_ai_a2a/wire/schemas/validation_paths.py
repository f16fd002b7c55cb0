"""The path of a problem in data, by Pydantic's location of the problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast


def place_of(loc: Sequence[int | str], data: Any, *, missing: bool = False) -> str:
    """Return the path of a problem in data, without the members of unions in Pydantic's location."""
    path = ''
    for step in loc:
        if _has(data, step):
            data, path = data[step], path + _step(step)
    return path + _step(loc[-1]) if missing else path


def _has(data: Any, step: int | str) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(cast('list[Any]', data))
    return isinstance(data, dict) and step in data


def _step(step: int | str) -> str:
    return f'[{step}]' if isinstance(step, int) else f'.{step}'
