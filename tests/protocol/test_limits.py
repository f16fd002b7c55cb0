"""The number of JSON values in a body is limited before the body is parsed."""

from __future__ import annotations

import pytest

from pydantic_ai_a2a.errors import PayloadTooLargeError
from pydantic_ai_a2a.protocol.envelope import check_values


@pytest.mark.parametrize(
    'body',
    [
        b'[0,0,0,0,0,0,0,0,0]',
        b'[[],[],[],[],[]]',
        b'{"a":{"a":{"a":{"a":{"a":{}}}}}}',
        b'["",",[{",[],[],[],{},{},{},{}]',
        b'["\\\\",0,0,0,0,0,0,0,0,0,0]',
        b'["\\"",0,0,0,0,0,0,0,0,0,0,"]',
        b'[[[[[[[[[[[[[[[[[[[[[[[[[[',
    ],
)
def test_a_body_with_too_many_values_is_refused_unread(body: bytes) -> None:
    with pytest.raises(PayloadTooLargeError, match='more than 5 JSON values'):
        check_values(body, 5)


@pytest.mark.parametrize(
    'body',
    [
        b'[0,0,0]',
        b'["a long text, with, many, commas, and [[[[ brackets {{{{", 1]',
        b'["\\", [[[[[[[[", "\\\\", "\\\\\\", [[[[[["]',
        b'["it does not end, [[[[[[[[[[[[[\\"[[[[[[[[[',
        b'"' + b'\\"[' * 100_000,
        b'"' + b',' * 100_000 + b'\\',
        b' ' * 100_000,
    ],
)
def test_what_only_looks_like_many_values_is_not_refused(body: bytes) -> None:
    check_values(body, 5)
