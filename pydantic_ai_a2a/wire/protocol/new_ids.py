"""New ids, which begin with the time."""

from __future__ import annotations

from os import urandom
from time import time_ns


def new_id() -> str:
    """Return an id with 80 random bits. The id begins with the time: an index of ids grows at one end."""
    return f'{time_ns() // 1_000_000:012x}{urandom(10).hex()}'


def time_of(identifier: str) -> float:
    """Return the time at which `new_id` made an id, in seconds since the epoch."""
    return int(identifier[:12], 16) / 1000
