"""The check of the data in an answer by the JSON Schema on the card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..types.a2a_objects import Message, Task
from ..wire.schemas.value_validation import problem
from .answer_content import value_of


def output_problem(answer: Task | Message, schema: Mapping[str, Any] | None) -> str | None:
    """Return the fault of the data in an answer by the JSON Schema on the card; None if the data is valid."""
    if schema is None:
        return None
    if 'parts' in answer:
        parts = answer['parts']
    else:
        results = (artifact for artifact in answer.get('artifacts', ()) if artifact.get('name') == 'result')
        parts = [part for artifact in results for part in artifact['parts']]
    for part in parts:
        if 'json_schema' in part.get('metadata', {}) and 'data' in part:
            fault = problem(value_of(part), schema, 'result')
            if fault is not None:
                return ' '.join(fault)
    return None
