"""Outputs that JSON cannot hold: NaN, infinity, and values that cannot be written.

Pydantic writes NaN and infinity as null, and as the key `None`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, cast

from pydantic_ai.exceptions import UnexpectedModelBehavior


class UnserializableOutput(TypeError):
    """The agent's output cannot be written as JSON. Never sent to a client."""


class NotFinite(UnexpectedModelBehavior):
    """The output holds NaN or infinity, which JSON has no number for. Never sent to a client."""


def lost_number(value: Any, written: Any, path: str) -> str | None:
    """Return the path of the first float that was written as null or as the key `None`; None without such a float.

    Args:
        value: The output as Python values.
        written: The output as JSON values.
        path: Path of both.
    """
    if written is None:
        return path if isinstance(value, float) and not isfinite(value) else None
    pairs: Iterable[tuple[Any, tuple[Any, Any]]] = ()
    if isinstance(written, dict) and isinstance(value, Mapping):
        mapping = cast('Mapping[Any, Any]', value)
        if 'None' in written and (keys := [key for key in mapping if isinstance(key, float) and not isfinite(key)]):
            return f'{path}[{keys[0]!r}]'
        pairs = zip(mapping.values(), cast('dict[str, Any]', written).items(), strict=False)
    elif isinstance(written, list) and isinstance(value, Iterable):
        pairs = zip(cast('Iterable[Any]', value), enumerate(cast('list[Any]', written)), strict=False)
    paths = (lost_number(inner, json, f'{path}[{key!r}]') for inner, (key, json) in pairs)
    return next((inner for inner in paths if inner is not None), None)
