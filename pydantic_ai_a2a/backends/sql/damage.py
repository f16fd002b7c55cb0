"""Finds stored bodies that are not JSON, so that no answer is made of them."""

from __future__ import annotations

from pydantic_core import from_json

from ...errors import StoredDamaged

__all__ = ('check_stored',)

_PARSED = 65_536
"""Bytes up to which a body is parsed. Of a longer one only the ends and the encoding are looked at: to parse it would
hold up the event loop."""


def check_stored(task_id: str, *bodies: bytes | None) -> None:
    """Check the JSON objects that are stored of a task.

    Raises:
        StoredDamaged: One of them is no JSON object.
    """
    for body in bodies:
        if body is None:
            continue
        try:
            if len(body) <= _PARSED:
                from_json(body)
            else:
                body.decode()
        except ValueError as error:
            raise StoredDamaged(f'Task {task_id} has stored data that is not valid JSON: {error}') from error
        if not (body.startswith(b'{') and body.endswith(b'}')):
            raise StoredDamaged(f'Task {task_id} has stored data that is not a JSON object.')
