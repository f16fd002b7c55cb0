"""Joins many stored values for an answer, with few copies."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

_PIECE = 60_000
"""Bytes of joined values: with the separators less than 64 kB, which is one send."""
_UNCOPIED = 32_768
"""Bytes from which a value is a piece of its own."""


def joined(values: Sequence[bytes], separator: bytes) -> list[bytes]:
    """Join values with a separator, in pieces of about 60 kB. Long values are not copied.

    Thousands of short values take no calls of Python for each value.
    """
    ends = [*accumulate(map(len, values))]
    pieces: list[bytes] = []
    begin = size = 0
    while begin < len(values):
        end = max(begin + 1, bisect_right(ends, size + _PIECE))
        if end == begin + 1 and ends[begin] - size >= _UNCOPIED:
            pieces += (separator, values[begin]) if begin else (values[begin],)
        else:
            pieces.append(separator.join([b'', *values[begin:end]] if begin else values[:end]))
        begin, size = end, ends[end - 1]
    return pieces
