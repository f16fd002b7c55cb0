"""Numbers that JSON cannot hold: NaN and infinity, which Pydantic writes as null, and as the key `None`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, cast

__all__ = ('lost_number',)


def lost_number(value: Any, written: Any, path: str) -> str | None:
    """Return the path of the first float that was written as null or as the key `None`; None if there is none.

    Args:
        value: What Pydantic makes of an output in Python.
        written: What Pydantic makes of it in JSON.
        path: Where both are.
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
    return next((found for found in paths if found is not None), None)
