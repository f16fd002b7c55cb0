"""Limit of the JSON values of a body, counted before the body is parsed (§13)."""

from __future__ import annotations

import re

from ..errors import PayloadTooLargeError
from .fields import DIGITS_AS_ZERO, LONG_NUMBER

__all__ = ('check_values',)

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
    if _values(body) <= limit:
        return
    # Strings may have any number of commas, so the count leaves strings out, and counts strings apart. A value has at
    # most two strings: the value itself and its key.
    without_texts, texts = _STRING.subn(b'', body, 2 * limit + 1)
    if texts > 2 * limit or _values(without_texts) > limit:
        raise PayloadTooLargeError(f'The request body holds more than {limit} JSON values.')


def _check_long_numbers(digits: bytes) -> None:
    """Refuse many long numbers, in JSON whose digits are all zeros. Numbers within strings do not count."""
    if len(_LONG_NUMBER.findall(digits)) > _LONG_NUMBERS < len(_LONG_NUMBER.findall(_STRING.sub(b'', digits))):
        raise PayloadTooLargeError(
            'The request body holds too many numbers beyond the range of a double: send them as strings.'
        )


def _values(json: bytes) -> int:
    """Return an upper bound of the number of values in JSON."""
    return 1 + json.count(b',') + json.count(b'[') + json.count(b'{')
