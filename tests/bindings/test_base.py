from __future__ import annotations

import pytest

from pydantic_ai_a2a.bindings.base import header


@pytest.mark.parametrize(
    ('name', 'value'), [(b'one', '1'), (b'several', '2,3,4'), (b'none', None)], ids=['one', 'several', 'none']
)
def test_the_values_of_a_header_are_one(name: bytes, value: str | None) -> None:
    headers = [(b'several', b'2'), (b'one', b'1'), (b'several', b'3'), (b'several', b'4')]
    assert header({'headers': headers}, name) == value
