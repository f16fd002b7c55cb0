"""The limits of the answers of a remote agent: bytes, JSON values, depth and pace."""

from __future__ import annotations

MAX_ANSWER = 64 * 1024 * 1024
"""Longest accepted answer or event in bytes, and longest task assembled from events in characters."""
MAX_VALUES = 1_000_000
"""Most JSON values of an answer, of an event, and of a task assembled from events."""
MAX_DEPTH = 160
"""Most nested objects and lists of an answer. JSON is read 200 deep: the rest is for the levels that a history and an
answer of this process add."""
PACE = 100_000
"""Bytes for which a request or an answer gets a second more. A server that sends a byte a second is never silent."""
