"""Numbers that JSON cannot hold: NaN and infinity, which Pydantic writes as null, and as the key `None`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, cast

__all__ = ('lost_number',)


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
