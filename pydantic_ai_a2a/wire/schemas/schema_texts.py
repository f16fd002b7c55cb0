"""JSON Schemas without their texts: titles, descriptions, examples and defaults."""

from __future__ import annotations

from typing import Any, cast

_TEXTS = frozenset({'title', 'description', 'examples', 'default', '$comment'})
_NAMED = frozenset({'properties', '$defs'})
"""Keywords of a JSON Schema whose members have names of the schema's author."""


def without_texts(schema: Any) -> Any:
    """Return a JSON Schema without texts for readers."""
    if isinstance(schema, list):
        return [without_texts(item) for item in cast('list[Any]', schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast('dict[str, Any]', schema)
    return {
        name: {key: without_texts(member) for key, member in value.items()} if name in _NAMED else without_texts(value)
        for name, value in fields.items()
        if name not in _TEXTS
    }
