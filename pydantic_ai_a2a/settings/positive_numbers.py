"""The check of numbers and time spans in settings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def positive(settings: DataclassInstance, *, or_zero: Collection[str] = ()) -> None:
    """Refuse numbers and time spans below their minimum: 0 for fields in `or_zero` or with default 0, else above 0.

    Raises:
        ValueError: A number or time span is too small.
    """
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        number = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
            continue
        zero = setting.default == 0 or setting.name in or_zero
        if number < 0 or (number == 0 and not zero):
            wanted = '0 or more' if zero else 'positive'
            raise ValueError(f'{type(settings).__name__}.{setting.name} must be {wanted}, not {number!r}.')
