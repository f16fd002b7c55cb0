"""Settings with other constants: short times and small numbers, which no user can set."""

from __future__ import annotations

from dataclasses import fields
from inspect import isfunction
from typing import Any, TypeVar

T = TypeVar('T')


def with_constants(group: type[T], **values: Any) -> T:
    """Return the settings of a group, with values for its fields and for its constants."""
    settable = {field.name for field in fields(group)}  # pyright: ignore[reportArgumentType]
    constants = {name: value for name, value in values.items() if name not in settable}
    assert all(hasattr(group, name) for name in constants), constants
    methods = {name: staticmethod(value) if isfunction(value) else value for name, value in constants.items()}
    kind: Any = type(group.__name__, (group,), methods)
    return kind(**{name: values[name] for name in values.keys() & settable})
