"""JSON of other parties, read within the limits of `answer_limits`."""

from __future__ import annotations

from pydantic_core import from_json

from ..wire.protocol.value_count import count_values
from ..wire.schemas.json_depth import is_deep
from .answer_limits import MAX_DEPTH, MAX_VALUES


class TooManyValues(ValueError):
    """An answer holds more than `MAX_VALUES` JSON values."""


class TooDeep(ValueError):
    """An answer is nested more than `MAX_DEPTH` deep."""


def read_json(body: bytes | str) -> object:
    """Return the value of JSON of another party. A value takes many times the memory of its JSON.

    Raises:
        TooManyValues: The JSON holds too many values.
        TooDeep: The JSON is nested too deeply.
        ValueError: The body is no JSON, or is nested more than 200 deep.
    """
    if (
        len(body) > MAX_VALUES
        and count_values(body.encode() if isinstance(body, str) else body, MAX_VALUES) > MAX_VALUES
    ):
        raise TooManyValues
    value: object = from_json(body)
    if is_deep(body.encode() if isinstance(body, str) else body, value, MAX_DEPTH):
        raise TooDeep
    return value
