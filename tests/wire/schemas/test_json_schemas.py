"""JSON Schemas: which ones of other parties are refused, and which values fit."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel, Field
from pydantic_ai import StructuredDict

from pydantic_ai_a2a.wire.extensions.client_schema import check_client_schema
from pydantic_ai_a2a.wire.schemas.foreign_schemas import UnusableSchema, check_schema
from pydantic_ai_a2a.wire.schemas.inlined_schemas import inlined_schema
from pydantic_ai_a2a.wire.schemas.value_validation import problem

Json = dict[str, Any]


class Stop(BaseModel):
    """A place to stop at."""

    name: str
    nights: int = Field(default=1, ge=1)


class Trip(BaseModel):
    stops: list[Stop]
    home: Stop = Field(description='Where the trip ends.')
    extra: Stop | None = None


def object_schema(**properties: Any) -> Json:
    return {'type': 'object', 'properties': properties}


def nested_schema(depth: int) -> Json:
    schema: Json = {}
    for _ in range(depth):
        schema = {'items': schema}
    return {'type': 'object', 'additionalProperties': schema}


def exponential_schema() -> Json:
    """A small schema that has a billion members without its references."""
    definitions = {
        f'a{n}': object_schema(**{f'p{m}': {'$ref': f'#/$defs/a{n + 1}'} for m in range(10)}) for n in range(9)
    }
    return {'type': 'object', '$ref': '#/$defs/a0', '$defs': {**definitions, 'a9': {'type': 'string'}}}


UNUSABLE: dict[str, tuple[Any, str]] = {
    'no object': ([], 'schema: must be a JSON Schema'),
    'a boolean': (True, 'schema: must be a JSON Schema'),
    'another type': ({'type': 'array'}, 'schema.type: must be "object"'),
    'several types': ({'type': ['object', 'null']}, 'schema.type: must be "object"'),
    'no type': ({'properties': {}}, 'schema.type: must be "object"'),
    'a reference to a text': (
        {'$ref': '#/$defs/A', '$defs': {'A': {'type': 'string'}}},
        'schema.type: must be "object"',
    ),
    'a reference to all': ({'$ref': '#/$defs/A', '$defs': {'A': True}}, 'schema.type: must be "object"'),
    'too long': (object_schema(a={'description': 'x' * 32_000}), 'schema: must not have more than 32000 bytes of JSON'),
    'too deep': (nested_schema(31), 'schema: must not be nested more than 32 deep'),
    'properties': ({'type': 'object', 'properties': []}, 'schema.properties: Input should be a valid dictionary'),
    'a property': (object_schema(a=1), 'schema.properties.a: Input should be a valid dictionary'),
    'a keyword inside': (
        object_schema(a={'anyOf': [{'minimum': '1'}]}),
        'schema.properties.a.anyOf[0].minimum: Input should be a valid number',
    ),
    'definitions': ({'type': 'object', '$defs': 1}, 'schema.$defs: must be an object'),
    'another document': (
        object_schema(a={'$ref': 'https://example.com/schema'}),
        'schema.properties.a.$ref: must be "#/$defs/" and the name of a schema in "$defs"',
    ),
    'nothing': (
        object_schema(a={'items': {'$ref': '#/$defs/B'}}),
        'schema.properties.a.items.$ref: must be "#/$defs/" and the name of a schema in "$defs"',
    ),
    'a list': (
        object_schema(a={'$ref': []}),
        'schema.properties.a.$ref: must be "#/$defs/" and the name of a schema in "$defs"',
    ),
    'an anchor': (
        object_schema(a={'not': {'$dynamicRef': '#b'}}),
        'schema.properties.a.not.$dynamicRef: is not supported: use "$ref" with "#/$defs/..."',
    ),
}


@pytest.mark.parametrize(('schema', 'error'), UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_schema_is_refused_with_its_path(schema: Any, error: str) -> None:
    for check in (check_schema, inlined_schema):
        with pytest.raises(UnusableSchema) as refused:
            check(schema, 'schema')
        assert str(refused.value).startswith(error)
        assert f'{refused.value.field}: {refused.value.description}' == str(refused.value)


def test_inlined_references_keep_their_own_descriptions() -> None:
    schema = inlined_schema(Trip.model_json_schema(), 'schema')
    stop = Stop.model_json_schema()
    assert schema == {
        'title': 'Trip',
        'type': 'object',
        'properties': {
            'stops': {'title': 'Stops', 'type': 'array', 'items': stop},
            'home': {**stop, 'description': 'Where the trip ends.'},
            'extra': {'anyOf': [stop, {'type': 'null'}], 'default': None},
        },
        'required': ['stops', 'home'],
    }
    assert StructuredDict(schema) is not None


def test_reference_beside_keywords_becomes_all_of() -> None:
    schema = {
        **object_schema(a={'$ref': '#/$defs/A~1B', 'minLength': 1, 'allOf': [True]}),
        '$defs': {'A/B': {'type': 'string'}},
    }
    assert inlined_schema(schema, 'schema') == object_schema(a={'minLength': 1, 'allOf': [{'type': 'string'}, True]})
    root = {'$ref': '#/$defs/A', '$defs': {'A': object_schema(a={'type': 'string'})}}
    assert inlined_schema(root, 'schema') == object_schema(a={'type': 'string'})
    yes = {**object_schema(a={'$ref': '#/$defs/any'}), '$defs': {'any': True}}
    assert inlined_schema(yes, 'schema') == object_schema(a={'allOf': [True]})


def test_references_in_schema_data_are_not_resolved() -> None:
    schema = object_schema(**{'$ref': {'enum': [{'$ref': 'x'}], 'default': {'$ref': 'x'}, 'properties': True}})
    schema['properties']['$ref'].pop('properties')
    assert check_schema(schema, 'schema') == schema
    assert inlined_schema(schema, 'schema') == schema
    assert inlined_schema({**schema, '$defs': {}}, 'schema') == schema


def test_non_object_schema_is_accepted_if_allowed() -> None:
    schema = {'type': 'array', 'items': {'type': 'integer'}}
    assert check_schema(schema, 'schema', of_object=False) == schema


def test_whole_floats_in_schemas_become_integers() -> None:
    schema = object_schema(
        a={'minLength': 1.0, 'maximum': 0.5, 'enum': [2.0, [3.0, 1e300]], 'items': {'maxItems': 4.0}}
    )
    for checked in (check_schema(schema, 'schema'), inlined_schema(schema, 'schema')):
        assert repr(checked['properties']['a']) == (
            "{'minLength': 1, 'maximum': 0.5, 'enum': [2, [3, 1e+300]], 'items': {'maxItems': 4}}"
        )
    with pytest.raises(UnusableSchema, match=r'schema\.properties\.a\.minLength: Input should be a valid integer'):
        check_schema(object_schema(a={'minLength': 1.5}), 'schema')


def test_recursive_schema_cannot_be_inlined() -> None:
    node = object_schema(next={'$ref': '#/$defs/Node'})
    schema = {'$ref': '#/$defs/Node', '$defs': {'Node': node}}
    assert check_schema(schema, 'schema') == {'type': 'object', **schema}
    with pytest.raises(UnusableSchema) as refused:
        inlined_schema(schema, 'schema')
    assert str(refused.value) == snapshot('schema.$defs.Node: must not refer to itself: recursion is not supported')


def test_schema_growing_too_large_when_inlined_is_refused() -> None:
    with pytest.raises(UnusableSchema, match='schema: must not have more than 32000 bytes of JSON without references'):
        inlined_schema(exponential_schema(), 'schema')
    twice = {
        **object_schema(**{f'p{n}': {'$ref': '#/$defs/a'} for n in range(9)}),
        '$defs': {'a': {'title': 'x' * 5_000}},
    }
    with pytest.raises(UnusableSchema, match='schema: must not have more than 32000 bytes of JSON'):
        inlined_schema(twice, 'schema')


@pytest.mark.parametrize(
    'rule',
    [
        {'additionalItems': False},
        {'contains': {}},
        {'dependencies': {}},
        {'dependentRequired': {}},
        {'dependentSchemas': {}},
        {'if': {}},
        {'maxContains': 1},
        {'maxProperties': 1},
        {'minContains': 1},
        {'minProperties': 1},
        {'multipleOf': 2},
        {'not': {}},
        {'pattern': 'a'},
        {'patternProperties': {}},
        {'propertyNames': {}},
        {'then': {}},
        {'else': {}},
        {'unevaluatedItems': False},
        {'unevaluatedProperties': False},
        {'uniqueItems': True},
    ],
    ids=str,
)
def test_unchecked_keyword_of_schema_is_refused(rule: Json) -> None:
    with pytest.raises(UnusableSchema) as refused:
        check_client_schema(object_schema(a=rule), 'schema')
    assert str(refused.value) == f'schema.properties.a.{min(rule)}: is not supported: remove the rule'


TREE = {'$defs': {'node': {'type': 'object', 'properties': {'next': {'$ref': '#/$defs/node'}}}}, '$ref': '#/$defs/node'}
CHOICE = {'oneOf': [{'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a']}, {'type': 'null'}]}

VALID: list[tuple[Any, Any]] = [
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
INVALID: list[tuple[Any, Any, tuple[str, str]]] = [
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
    (6, {'maximum': 5}, ('v', 'must be at most 5')),
    (5, {'exclusiveMinimum': 5}, ('v', 'must be more than 5')),
    (5, {'exclusiveMaximum': 5}, ('v', 'must be less than 5')),
    (True, {'enum': [1]}, ('v', 'must be one of 1')),
    (1, {'enum': [True]}, ('v', 'must be one of True')),
]


@pytest.mark.parametrize(('value', 'schema'), VALID)
def test_value_matching_the_schema_is_valid(value: Any, schema: Any) -> None:
    assert problem(value, schema, 'v') is None


@pytest.mark.parametrize(('value', 'schema', 'found'), INVALID)
def test_invalid_value_is_reported_with_path_and_reason(value: Any, schema: Any, found: tuple[str, str]) -> None:
    assert problem(value, schema, 'v') == found


@pytest.mark.parametrize('ways', [1, 2])
def test_validation_ends_for_endless_schema_references(ways: int) -> None:
    assert problem(1, {'anyOf': [{'$ref': '#'}] * ways}, 'v') == ('v', 'matches none of the allowed forms')
