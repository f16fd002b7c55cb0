"""JSON Schemas of other parties, with the schemas that they refer to in the place of the references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .foreign_schemas import (
    LITERALS,
    MAX_BYTES,
    NAMED,
    ForeignSchema,
    UnusableSchema,
    check_schema,
    check_size,
    definition_name,
)

_ANNOTATIONS = frozenset({'title', 'description', 'default', 'examples', 'deprecated', '$comment'})


def inlined_schema(value: object, field: str) -> ForeignSchema:
    """Return the JSON Schema of an object without references: each is replaced by the schema to which it refers.

    Args:
        value: The schema of another party, as JSON values.
        field: Path of the schema, for errors.

    Raises:
        UnusableSchema: See `check_schema`; or the schema refers to itself in a circle, or is too large or too deep
            without references.
    """
    schema = check_schema(value, field)
    if '$defs' not in schema:
        return schema
    inlined = _Inlining(schema['$defs'], field).schema(schema)
    check_size(inlined, field)
    return inlined


class _Inlining:
    """The replacement of the references in a checked schema.

    Args:
        definitions: The schemas to which the references lead.
        field: Path of the schema, for errors.
    """

    def __init__(self, definitions: Mapping[str, Any], field: str) -> None:
        self._definitions = definitions
        self._field = field
        self._left = MAX_BYTES
        self._open: list[str] = []
        """Names of the definitions around the current schema."""

    def schema(self, node: Any) -> Any:
        """Return a schema, or a list of schemas, without references."""
        # A schema of JSON has more bytes than values. Two references to a schema with two references, and so on, would
        # have exponentially many values.
        self._left -= 1
        if self._left < 0:
            raise UnusableSchema(self._field, f'must not have more than {MAX_BYTES} bytes of JSON without references')
        if isinstance(node, list):
            return [self.schema(item) for item in cast('list[Any]', node)]
        if not isinstance(node, dict):
            return node
        own: ForeignSchema = {
            keyword: self._keyword(keyword, value) for keyword, value in cast('ForeignSchema', node).items()
        }
        own.pop('$defs', None)
        if '$ref' not in own:
            return own
        target = self._target(definition_name(own.pop('$ref')))
        if isinstance(target, dict):
            fields = cast('ForeignSchema', target)
            own = {
                keyword: value for keyword, value in own.items() if keyword not in fields or fields[keyword] != value
            }
            if own.keys() <= _ANNOTATIONS:
                return {**fields, **own}
        others: list[Any] = own.get('allOf', [])
        own['allOf'] = [target, *others]
        return own

    def _keyword(self, keyword: str, value: Any) -> Any:
        if keyword == '$defs' or keyword in LITERALS:
            return value
        if keyword in NAMED and isinstance(value, dict):
            return {name: self.schema(item) for name, item in cast('ForeignSchema', value).items()}
        return self.schema(value)

    def _target(self, name: str | None) -> Any:
        assert name is not None, 'the schema was checked'
        if name in self._open:
            raise UnusableSchema(f'{self._field}.$defs.{name}', 'must not refer to itself: recursion is not supported')
        self._open.append(name)
        target = self.schema(self._definitions[name])
        self._open.pop()
        return target
