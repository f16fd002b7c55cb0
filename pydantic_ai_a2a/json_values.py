"""JSON values: written, and read from other parties, whose values may be of any type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

from pydantic_core import ErrorDetails, ValidationError
from pydantic_core import to_json as _strict_json


def as_object(value: object) -> dict[str, Any]:
    """Return a value that should be a JSON object. Any other value becomes an empty object."""
    return cast('dict[str, Any]', value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a value that should be a JSON list. Any other value becomes an empty list."""
    return cast('list[Any]', value) if isinstance(value, list) else []


def faults_of(error: ValidationError) -> Sequence[ErrorDetails]:
    """Return the faults of a value, without the value."""
    return error.errors(include_url=False, include_context=False, include_input=False)


def dump_json(value: Any, *, inf_nan_mode: Literal['null', 'constants', 'strings'] = 'constants') -> bytes:
    """Write JSON. Lone surrogates become U+FFFD."""
    try:
        return _strict_json(value, inf_nan_mode=inf_nan_mode)
    except ValueError:  # rarely: first look for surrogates only then
        return _strict_json(without_surrogates(value), inf_nan_mode=inf_nan_mode)


def without_surrogates(value: Any) -> Any:
    """Return a value with U+FFFD in the place of each lone surrogate in its texts. Both halves of a pair are joined.

    A model may cut an emoji in two, and UTF-8 has no form for the halves.
    """
    match value:
        case str():
            return value.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')
        case dict():
            items = cast('dict[Any, Any]', value).items()
            return {without_surrogates(key): without_surrogates(item) for key, item in items}
        case list() | tuple():
            return [without_surrogates(item) for item in cast('Sequence[Any]', value)]
        case _:
            return value
