"""Names for requests and commands, for answers and logs."""

from __future__ import annotations

from os import urandom


def new_correlation_id() -> str:
    """Return a name for one request or command, for its answer and the logs."""
    return urandom(8).hex()
