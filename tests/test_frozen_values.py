"""Frozen values: how they are compared and shown, and what they refuse."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import pytest

from pydantic_ai_a2a.types.frozen_values import frozen


@frozen
class Point:
    x: int = 0
    y: int
    secret: str = field(default='', repr=False)
    note: str = field(default='', compare=False)


@frozen
class Other:
    y: int


def test_equal_values_have_same_class_and_fields() -> None:
    point = Point(y=1, secret='a')
    assert point == Point(x=0, y=1, secret='a', note='not compared')
    assert point != replace(point, y=2)
    assert point != replace(point, secret='b')
    assert Other(y=1) != Point(y=1)


def test_value_repr_hides_secrets() -> None:
    assert repr(Point(y=1, secret='a')) == "Point(x=0, y=1, note='')"


def test_value_refuses_extra_fields_hash_and_positional_arguments() -> None:
    point: Any = Point(y=1)
    with pytest.raises(AttributeError):
        point.z = 3
    with pytest.raises(TypeError, match='unhashable'):
        hash(point)
    make: Any = Point
    with pytest.raises(TypeError, match='positional'):
        make(1, 2)
