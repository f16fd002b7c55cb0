"""The form of values: dataclasses that nobody changes, made at little cost."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from reprlib import recursive_repr
from typing import Any, TypeVar

from typing_extensions import dataclass_transform

T = TypeVar('T')


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a dataclass with keyword-only fields and slots, whose objects do not change.

    Type checkers refuse changes, and running code does not. A frozen dataclass would write and compile six methods for
    each class, which took a third of the time of `from pydantic_ai_a2a import to_a2a`. A value has only its own
    `__init__`, and shares the other methods. Public options stay frozen dataclasses.
    """
    made = dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)
    for name, method in (('__eq__', _equal), ('__hash__', None), ('__repr__', _shown)):
        setattr(made, name, method)
    return made


def _equal(self: Any, other: object) -> bool:
    if type(other) is not type(self):
        return NotImplemented
    names = (item.name for item in fields(self) if item.compare)
    return all(getattr(self, name) == getattr(other, name) for name in names)


@recursive_repr()
def _shown(self: Any) -> str:
    values = (f'{item.name}={getattr(self, item.name)!r}' for item in fields(self) if item.repr)
    return f'{type(self).__qualname__}({", ".join(values)})'
