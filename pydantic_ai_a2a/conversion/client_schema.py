"""The client schema extension: the JSON Schema that a client wants for an answer, in the metadata of its message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from fasta2a.schema import AgentExtension
from pydantic_ai.output import NativeOutput, PromptedOutput, StructuredDict, ToolOutput
from pydantic_core import from_json, to_json

from ..errors import InvalidParamsError
from ..types import Message
from .foreign_schema import UnusableSchema, inlined_schema, nodes
from .outbound import NO_ANSWERS, OutputMapper
from .output_types import declared_types

__all__ = (
    'CLIENT_SCHEMA',
    'MARK',
    'CLIENT_SCHEMA_URI',
    'ClientOutput',
    'checked',
    'client_output',
    'client_schema',
    'inherited',
    'request_fields',
    'states_of',
    'with_client_schema',
)

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

_MEMBER = 'outputSchema'
"""Name of the schema in the stored request of a message."""
MARK = b'"outputSchema":'
"""Part of each stored request with a schema."""
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
_NO_NAME = re.compile(r'[^a-zA-Z0-9_-]')
"""Characters that providers of models refuse in names."""
_LONGEST_NAME = 40
"""Most characters of a schema's name for the model. Providers take 64 characters, with Pydantic AI's prefix."""


@dataclass(frozen=True)
class ClientOutput:
    """The output of a run, by the schema of a client."""

    schema: Mapping[str, Any]
    type: Any
    """The output type for Pydantic AI."""
    outputs: OutputMapper
    """Converts the output."""


def client_schema(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema that a message with such metadata wants for its answer.

    Raises:
        InvalidParamsError: The schema cannot be used.
    """
    value: Any = metadata[CLIENT_SCHEMA_URI]
    try:
        if not isinstance(value, dict) or 'schema' not in value:
            raise UnusableSchema(CLIENT_SCHEMA_FIELD, 'must be an object with a "schema"')
        return checked(cast('dict[str, Any]', value)['schema'], f'{CLIENT_SCHEMA_FIELD}.schema')
    except UnusableSchema as error:
        raise InvalidParamsError.of(error.field, error.description) from None


def checked(schema: object, field: str) -> dict[str, Any]:
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


# --- the stored request ---------------------------------------------------------------------------------------------


def request_fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored request with a schema."""
    return {_MEMBER: schema}


def inherited(request: bytes | None, before: bytes | None) -> bytes | None:
    """Return the stored request of an answer, with the schema of the waiting run if the answer has no schema."""
    schema, own = _schema(before), _schema(request)
    if schema is None or own is not None:
        return request
    fields: dict[str, Any] = {} if request is None else from_json(request)
    return to_json({**fields, **request_fields(schema)})


def _schema(request: bytes | None) -> dict[str, Any] | None:
    return None if request is None or MARK not in request else from_json(request).get(_MEMBER)


def client_output(request: bytes | None, *, data_as_text: bool) -> ClientOutput | None:
    """Return the output of a run, by the stored request of its message; None for the output of the agent."""
    schema = _schema(request)
    return None if schema is None else _output(to_json(schema), data_as_text)


@lru_cache(maxsize=128)
def _output(schema: bytes, data_as_text: bool) -> ClientOutput:
    fields = from_json(schema)
    outputs = OutputMapper(StructuredDict(from_json(schema)), data_as_text=data_as_text)
    return ClientOutput(fields, StructuredDict(from_json(schema), name=_output_name(fields.get('title', ''))), outputs)


def _output_name(title: str) -> str:
    """Return a title in the form that providers of models take as a name."""
    return _NO_NAME.sub('', title)[:_LONGEST_NAME] or 'Answer'


# --- the output type ------------------------------------------------------------------------------------------------


def states_of(spec: Any) -> Iterator[Any]:
    """Yield the members of an output type that end a run without an answer, such as `InputRequired`."""
    if isinstance(spec, (NativeOutput, PromptedOutput)):
        yield from states_of(cast('NativeOutput[Any]', spec).outputs)
    elif isinstance(spec, Sequence):
        for item in cast('Sequence[Any]', spec):
            yield from states_of(item)
    else:
        types = [*declared_types(spec)]
        states = [tp for tp in types if tp in NO_ANSWERS]
        is_whole = types == states and (len(types) == 1 or isinstance(spec, ToolOutput))
        yield from (spec,) if is_whole else states
