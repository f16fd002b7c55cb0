"""Checks of JSON Schemas of other parties: of clients in messages, and of remote agents on cards.

A schema that passes is small, refers only to itself, and has the forms that JSON Schema gives to its keywords, so
later code reads the schema without checks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, TypeAlias, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from ...json_values import faults_of
from .json_depth import deeper_than
from .validation_paths import place_of

logger = logging.getLogger('pydantic_ai_a2a')

MAX_BYTES = 32_000
"""Most bytes of JSON of a schema, before and after its references are replaced."""
MAX_DEPTH = 32
"""Most nested objects and lists of a schema, before and after its references are replaced."""

_EXACT = 2**53
"""Largest whole number up to which all whole numbers are exact as floats."""
_DEFINITIONS = '#/$defs/'
LITERALS = frozenset({'const', 'default', 'enum', 'examples'})
"""Keywords whose values are data, not schemas."""
NAMED = frozenset({'properties', 'patternProperties', 'dependentSchemas', '$defs'})
"""Keywords whose values have schemas under names of the author."""
_UNSUPPORTED = ('$dynamicRef', '$recursiveRef', '$anchor', '$dynamicAnchor')
"""Keywords for references that only whole implementations of JSON Schema resolve."""

ForeignSchema: TypeAlias = dict[str, Any]


class UnusableSchema(ValueError):
    """A JSON Schema of another party that cannot be used.

    Args:
        field: Path of the fault.
        description: The fault, and the correct form.
    """

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f'{field}: {description}')
        self.field = field
        self.description = description


class _Keywords(TypedDict, total=False):
    """The forms of the keywords that the package reads."""

    __pydantic_config__ = ConfigDict(extra='allow', strict=True)  # pyright: ignore[reportGeneralTypeIssues]

    type: str | list[str]
    title: str
    description: str
    enum: list[Any]
    required: list[str]
    properties: dict[str, _Keywords | bool]
    additionalProperties: _Keywords | bool
    items: _Keywords | bool
    prefixItems: list[_Keywords | bool]
    allOf: list[_Keywords | bool]
    anyOf: list[_Keywords | bool]
    oneOf: list[_Keywords | bool]
    minimum: float
    maximum: float
    exclusiveMinimum: float
    exclusiveMaximum: float
    minLength: int
    maxLength: int
    minItems: int
    maxItems: int


@cache
def _keywords_ta() -> TypeAdapter[_Keywords]:
    return TypeAdapter(_Keywords)


def check_schema(value: object, field: str, *, of_object: bool = True) -> ForeignSchema:
    """Return a JSON Schema, which may refer to its own `$defs`, also in circles.

    Args:
        value: The schema of another party, as JSON values.
        field: Path of the schema, for errors.
        of_object: True, the default, to take only schemas of objects. The returned schema then has the type `object`.

    Raises:
        UnusableSchema: The value is no such schema, is too large or too deep, or refers to another document.
    """
    check_size(value, field)
    value = _with_integers(value)
    if not isinstance(value, dict):
        raise UnusableSchema(field, 'must be a JSON Schema')
    schema = cast('ForeignSchema', value)
    definitions: ForeignSchema = schema.get('$defs', {})
    _check_keywords(schema, definitions, field)
    if not of_object or schema.get('type') == 'object':
        return schema
    # Pydantic describes a recursive model by a reference.
    target: object = definitions.get(definition_name(schema.get('$ref')) or '')
    if 'type' in schema or not isinstance(target, dict) or cast('ForeignSchema', target).get('type') != 'object':
        raise UnusableSchema(f'{field}.type', 'must be "object"')
    return {'type': 'object', **schema}


def _check_keywords(schema: ForeignSchema, definitions: ForeignSchema, field: str) -> None:
    """Check the forms of all keywords, and that all references lead to definitions."""
    for where, node in nodes(schema, field):
        if not isinstance(node.get('$defs', {}), dict):
            raise UnusableSchema(f'{where}.$defs', 'must be an object')
        try:
            _keywords_ta().validate_python(node)
        except ValidationError as error:
            [fault, *_] = faults_of(error)
            raise UnusableSchema(where + place_of(fault['loc'], node), fault['msg']) from None
        if unsupported := [keyword for keyword in _UNSUPPORTED if keyword in node]:
            raise UnusableSchema(f'{where}.{unsupported[0]}', 'is not supported: use "$ref" with "#/$defs/..."')
        if '$ref' in node and definition_name(node['$ref']) not in definitions:
            raise UnusableSchema(f'{where}.$ref', 'must be "#/$defs/" and the name of a schema in "$defs"')


def is_small(value: object) -> bool:
    """Return True if JSON values are within the limits of the size and the depth."""
    return not deeper_than(MAX_DEPTH, value) and len(to_json(value)) <= MAX_BYTES


def check_size(value: object, field: str) -> None:
    """Refuse a schema that is too large or too deep.

    Raises:
        UnusableSchema: The schema is not within the limits.
    """
    if deeper_than(MAX_DEPTH, value):
        raise UnusableSchema(field, f'must not be nested more than {MAX_DEPTH} deep')
    if not is_small(value):
        raise UnusableSchema(field, f'must not have more than {MAX_BYTES} bytes of JSON')


def _with_integers(value: Any) -> Any:
    """Return JSON with whole numbers as integers. Protobuf writes the integers of metadata and of cards as 1.0."""
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in cast('dict[str, Any]', value).items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in cast('list[Any]', value)]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT
    return int(value) if is_whole else value


def definition_name(reference: object) -> str | None:
    """Return the name of a definition; None for another reference."""
    if not isinstance(reference, str) or not reference.startswith(_DEFINITIONS):
        return None
    return reference.removeprefix(_DEFINITIONS).replace('~1', '/').replace('~0', '~')


def nodes(node: object, where: str) -> Iterator[tuple[str, ForeignSchema]]:
    """Yield a schema and the schemas in it, with their paths, as far as they are objects."""
    if isinstance(node, list):
        for n, item in enumerate(cast('list[object]', node)):
            yield from nodes(item, f'{where}[{n}]')
    if not isinstance(node, dict):
        return
    schema = cast('ForeignSchema', node)
    yield where, schema
    for keyword, value in schema.items():
        if keyword in NAMED and isinstance(value, dict):
            for name, item in cast('ForeignSchema', value).items():
                yield from nodes(item, f'{where}.{keyword}.{name}')
        elif keyword not in LITERALS:
            yield from nodes(value, f'{where}.{keyword}')


@lru_cache(maxsize=1_000)
def warn_ignored(error: str) -> None:
    """Log that a schema is ignored. Each fault is logged once."""
    logger.warning('%s The schema is ignored.', error)
