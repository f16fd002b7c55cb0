"""The client schema extension: the JSON Schema that a client wants for an answer, in the metadata of its message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...errors import InvalidParamsError
from ...types.a2a_objects import AgentExtension, Message
from ..schemas.foreign_schemas import UnusableSchema, nodes
from ..schemas.inlined_schemas import inlined_schema

CLIENT_SCHEMA_URI = 'https://pypi.org/project/pydantic-ai-a2a/#client-schema-v1'
"""Name of the extension, and key of its data in the metadata of messages. Data with another meaning gets another
URI."""

CLIENT_SCHEMA = AgentExtension(
    uri=CLIENT_SCHEMA_URI,
    description='A message may have a JSON Schema in its metadata. The answer is then data that fits the schema.',
)
"""Declaration of the extension on agent cards."""

CLIENT_SCHEMA_FIELD = f'message.metadata["{CLIENT_SCHEMA_URI}"]'
"""Path of the extension's data in a request."""
_UNCHECKED = frozenset(
    {
        'additionalItems',
        'contains',
        'dependencies',
        'dependentRequired',
        'dependentSchemas',
        'else',
        'if',
        'maxContains',
        'maxProperties',
        'minContains',
        'minProperties',
        'multipleOf',
        'not',
        'pattern',
        'patternProperties',
        'propertyNames',
        'then',
        'unevaluatedItems',
        'unevaluatedProperties',
        'uniqueItems',
    }
)
"""Keywords for rules that the server does not check."""


def client_schema(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema that a message with such metadata wants for its answer.

    Raises:
        InvalidParamsError: The schema cannot be used.
    """
    value: Any = metadata[CLIENT_SCHEMA_URI]
    try:
        if not isinstance(value, dict) or 'schema' not in value:
            raise UnusableSchema(CLIENT_SCHEMA_FIELD, 'must be an object with a "schema"')
        return check_client_schema(cast('dict[str, Any]', value)['schema'], f'{CLIENT_SCHEMA_FIELD}.schema')
    except UnusableSchema as error:
        raise InvalidParamsError.of(error.field, error.description) from None


def check_client_schema(schema: object, field: str) -> dict[str, Any]:
    """Return a client's schema without references.

    Raises:
        UnusableSchema: The schema is no schema of an object, is too large or recursive, or has rules that the server
            does not check.
    """
    inlined = inlined_schema(schema, field)
    for where, node in nodes(inlined, field):
        if unchecked := sorted(_UNCHECKED & node.keys()):
            raise UnusableSchema(f'{where}.{unchecked[0]}', 'is not supported: remove the rule')
    return inlined


def with_client_schema(message: Message, schema: Mapping[str, Any]) -> Message:
    """Return a message that wants an answer by a schema."""
    metadata: Mapping[str, Any] = message.get('metadata', {})
    extensions: Sequence[str] = message.get('extensions', ())
    return {
        **message,
        'metadata': {**metadata, CLIENT_SCHEMA_URI: {'schema': schema}},
        'extensions': [*extensions, CLIENT_SCHEMA_URI],
    }


def usable_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a schema if the extension for schemas of clients supports the schema."""
    try:
        return None if schema is None else check_client_schema(schema, 'schema')
    except UnusableSchema:
        return None
