"""Time spans, in seconds or as a `timedelta`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

S = TypeVar('S')
_REQUIRED: Any = object()


class Span(Generic[S]):
    """A dataclass field for seconds or a `timedelta`, converted to the type of its default.

    Args:
        default: A number of seconds, a `timedelta`, or None. Without a default, the field is required and converted to
            a `timedelta`.
    """

    def __init__(self, default: S = _REQUIRED) -> None:
        self._default = default
        self._name = ''

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> S:
        if instance is not None:
            return instance.__dict__[self._name]
        if self._default is _REQUIRED:  # the dataclass then treats the field as required
            raise AttributeError(self._name)
        return self._default

    def __set__(self, instance: object, value: S | timedelta | float) -> None:
        as_timedelta = self._default is _REQUIRED or isinstance(self._default, timedelta)
        span = None if value is None else seconds(cast('timedelta | float', value))
        instance.__dict__[self._name] = timedelta(seconds=span) if as_timedelta and span is not None else span


def seconds(span: timedelta | float) -> float:
    """Return a time span in seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else float(span)
