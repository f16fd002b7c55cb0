"""The limits of the answers of a remote agent: bytes, JSON values, depth and pace."""

from __future__ import annotations

from pydantic_core import from_json

from ..conversion.json_depth import is_deep
from ..protocol.value_count import count_values

MAX_ANSWER = 64 * 1024 * 1024
"""Longest accepted answer or event in bytes, and longest task assembled from events in characters."""
MAX_VALUES = 1_000_000
"""Most JSON values of an answer, of an event, and of a task assembled from events."""
MAX_DEPTH = 160
"""Most nested objects and lists of an answer. JSON is read 200 deep: the rest is for the levels that a history and an
answer of this process add."""
PACE = 100_000
"""Bytes for which a request or an answer gets a second more. A server that sends a byte a second is never silent."""


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
