"""The output of a run by the schema of a client, which the stored request of the message has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic_ai.output import StructuredDict
from pydantic_core import from_json, to_json

from .output_mapper import OutputMapper

_MEMBER = 'outputSchema'
"""Name of the schema in the stored request of a message."""
SCHEMA_MARK = b'"outputSchema":'
"""Part of each stored request with a schema."""
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
    return None if request is None or SCHEMA_MARK not in request else from_json(request).get(_MEMBER)


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
