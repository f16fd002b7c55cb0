"""The limit of the JSON values of a body, counted before the body is parsed (§13)."""

from __future__ import annotations

import re

from ...errors import PayloadTooLargeError
from .request_fields import DIGITS_AS_ZERO, LONG_NUMBER

_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
"""A JSON string; an unterminated string extends to the end."""

_LONG_NUMBER = re.compile(rb'0{309,}+')
_LONG_NUMBERS = 8
"""Most long numbers that are parsed, to be refused by their fields: parsing takes time by the square of the digits."""


def check_values(body: bytes, limit: int) -> None:
    """Refuse JSON with more values than the limit, or with many numbers beyond a double, without parsing it.

    Raises:
        PayloadTooLargeError: The body has too many values or numbers.
    """
    if LONG_NUMBER in (digits := body.translate(DIGITS_AS_ZERO)):
        _check_long_numbers(digits)
    if count_values(body, limit) > limit:
        raise PayloadTooLargeError(f'The request body holds more than {limit} JSON values.')


def count_values(body: bytes, limit: int) -> int:
    """Return a number of JSON values that the body holds at most, without parsing it; more than the limit if it may.

    Up to 64 values are estimated: commas and brackets within strings count too.
    """
    if (estimate := _values(body)) <= min(limit, 64):
        return estimate
    # Strings may have any number of commas, so the count leaves strings out, and counts strings apart. A value has at
    # most two strings, the value itself and its key, and a string has two quotes. The parts between quotes are by turns
    # outside and inside of strings, once escaped quotes are removed.
    parts = body.replace(rb'\\', b'').replace(rb'\"', b'').split(b'"', 4 * limit + 2)
    return limit + 1 if len(parts) > 4 * limit + 2 else _values(b''.join(parts[::2]))


def _check_long_numbers(digits: bytes) -> None:
    """Refuse many long numbers, in JSON whose digits are all zeros. Numbers within strings do not count."""
    if len(_LONG_NUMBER.findall(digits)) > _LONG_NUMBERS < len(_LONG_NUMBER.findall(_STRING.sub(b'', digits))):
        raise PayloadTooLargeError(
            'The request body holds too many numbers beyond the range of a double: send them as strings.'
        )


def _values(json: bytes) -> int:
    """Return an upper bound of the number of values in JSON."""
    return 1 + json.count(b',') + json.count(b'[') + json.count(b'{')
