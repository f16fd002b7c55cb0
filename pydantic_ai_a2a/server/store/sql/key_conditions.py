"""Conditions of queries by the keys of rows, with their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from .transaction import Statement

KEYS = 50
"""The most keys for `among`."""


def where(conditions: Mapping[str, str | int | tuple[Any, ...] | None]) -> Statement:
    """Join conditions of a query, each with its value; a tuple has the values of several placeholders.

    A condition with None as its value is left out.
    """
    present = {condition: value for condition, value in conditions.items() if value is not None}
    values = (value if isinstance(value, tuple) else (value,) for value in present.values())
    return ' AND '.join(present), tuple(chain.from_iterable(values))


def among(columns: str, keys: Sequence[tuple[Any, ...]]) -> Statement:
    """Return the condition that the columns of a row have the values of one of the keys.

    The condition has the same text for any number of keys, so that the database prepares one statement.
    """
    row = f'({", ".join("?" * len(keys[0]))})'
    names = ', '.join(f'column{n}' for n, _ in enumerate(keys[0], 1))
    padded = [*keys, *[keys[-1]] * (KEYS - len(keys))]
    # SQLite uses an index for the rows of a SELECT, and not for VALUES alone.
    rows = f'SELECT {names} FROM (VALUES {", ".join([row] * KEYS)}) AS keys'
    return f'({columns}) IN ({rows})', tuple(chain.from_iterable(padded))
