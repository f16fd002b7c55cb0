"""The server's own marks in the metadata of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from ...types.a2a_objects import Message

_MARKS = frozenset({'answeredBy', 'resumed'})
"""Names in message metadata for the server's own marks: the sender of an answer, and a call of `resume_task`."""


def without_marks(message: Message, metadata: Mapping[str, Any]) -> Message:
    """Return a client's message without the metadata reserved for the server."""
    if _MARKS.isdisjoint(metadata):
        return message
    return {**message, 'metadata': {name: value for name, value in metadata.items() if name not in _MARKS}}


def with_mark(body: bytes, **mark: Any) -> bytes:
    """Return a stored message with a mark of the server in its metadata, under a name of `_MARKS`."""
    message = from_json(body)
    return to_json({**message, 'metadata': {**message.get('metadata', {}), **mark}})
