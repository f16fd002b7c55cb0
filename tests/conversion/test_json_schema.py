"""What fits a JSON Schema, by the keywords that are known."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_ai_a2a.conversion.schemas import problem

TREE = {'$defs': {'node': {'type': 'object', 'properties': {'next': {'$ref': '#/$defs/node'}}}}, '$ref': '#/$defs/node'}
CHOICE = {'oneOf': [{'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a']}, {'type': 'null'}]}

FITTING: list[tuple[Any, Any]] = [
    ('x', {}),
    ('x', {'type': 'string'}),
    ('x', {'type': ['null', 'string']}),
    ('x', {'type': 'of another draft'}),
    (1.0, {'type': 'integer'}),
    (10**400, {'type': 'integer'}),
    (None, CHOICE),
    ({'a': 1}, CHOICE),
    ({'next': {'next': {}}}, TREE),
    ('anything', {'$ref': '#/nowhere/at/all'}),
    ([1, 'x', 'y'], {'prefixItems': [{'type': 'integer'}], 'items': {'type': 'string'}}),
    ({'b': 2}, {'additionalProperties': {'type': 'integer'}}),
    ('ab', {'minLength': 2, 'maxLength': 2, 'pattern': '^x'}),
    (5, {'minimum': 5, 'maximum': 5, 'exclusiveMinimum': 4, 'exclusiveMaximum': 6, 'allOf': [{'type': 'number'}]}),
    (True, {'enum': [1, True]}),
]
BAD: list[tuple[Any, Any, tuple[str, str]]] = [
    (True, {'type': 'integer'}, ('v', 'must be an integer')),
    ('x', {'type': ['null', 'object']}, ('v', 'must be null or an object')),
    (1.5, {'type': 'integer'}, ('v', 'must be an integer')),
    (True, {'const': 1}, ('v', 'must be 1')),
    ('c', {'enum': ['a', 'b']}, ('v', "must be one of 'a', 'b'")),
    ({'a': 'x'}, CHOICE, ('v.a', 'must be an integer')),
    (3, CHOICE, ('v', 'matches none of the allowed forms')),
    (3, {'oneOf': [{}, {'type': 'integer'}]}, ('v', 'matches more than one of the allowed forms')),
    (3, {'anyOf': [{'type': 'string'}]}, ('v', 'matches none of the allowed forms')),
    (3, {'allOf': [{}, {'type': 'string'}]}, ('v', 'must be a string')),
    ({'next': {'next': 1}}, TREE, ('v.next.next', 'must be an object')),
    ([1], {'items': {'type': 'string'}}, ('v[0]', 'must be a string')),
    ({'a': 1}, {'additionalProperties': False}, ('v.a', 'is not allowed')),
    ({}, {'required': ['a']}, ('v.a', 'is required')),
    (1, {'minimum': 2}, ('v', 'must be at least 2')),
    ('', {'minLength': 1}, ('v', 'must have 1 to any number of characters')),
    ([1, 2], {'maxItems': 1}, ('v', 'must have 0 to 1 items')),
]


@pytest.mark.parametrize(('value', 'schema'), FITTING)
def test_what_fits_has_no_problem(value: Any, schema: Any) -> None:
    assert problem(value, schema, 'v') is None


@pytest.mark.parametrize(('value', 'schema', 'found'), BAD)
def test_what_does_not_fit_is_told_where_and_why(value: Any, schema: Any, found: tuple[str, str]) -> None:
    assert problem(value, schema, 'v') == found


@pytest.mark.parametrize('ways', [1, 2])
def test_a_schema_that_has_no_end_comes_to_one(ways: int) -> None:
    assert problem(1, {'anyOf': [{'$ref': '#'}] * ways}, 'v') == ('v', 'matches none of the allowed forms')
