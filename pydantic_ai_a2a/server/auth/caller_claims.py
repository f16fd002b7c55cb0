"""The bounds of claims about callers, which are stored with tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

MAX_CLAIMS = 10_000
"""Maximum bytes of the claims of a caller, as JSON."""


def are_claims(claims: Mapping[str, Any]) -> bool:
    """Return True if claims are a JSON object of at most `MAX_CLAIMS` bytes."""
    try:
        body = to_json(claims)
        return len(body) <= MAX_CLAIMS and from_json(body) == claims
    except (ValueError, TypeError, RecursionError):
        return False
