"""Chains of agents: a run that calls another agent says how deep the chain is, and lends its slot while it waits."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

from .errors import UnsupportedOperationError

HEADER = 'x-a2a-depth'
"""The header of a message from a run: the number of agents above the one that it calls."""
LIMIT = 10
"""The largest depth of a message that is accepted: agents that call each other in a circle end there."""

depth: ContextVar[int | None] = ContextVar('depth', default=None)
"""The depth of the message that is handled or run; None outside of runs, and for a message without the header."""
waiting: ContextVar[AbstractAsyncContextManager[Any]] = ContextVar('waiting', default=nullcontext())  # noqa: B039 - it has no state
"""Entered by a run while it waits for another agent, several times at once too."""


def depth_of(header: str | None) -> int:
    """Return the depth of a message by its header; 0 without a header, or for one that is no number.

    Raises:
        UnsupportedOperationError: The message has passed too many agents.
    """
    found = int(header) if header and header.isascii() and header.isdigit() and len(header) < 9 else 0
    if found > LIMIT:
        raise UnsupportedOperationError(
            f'The message has come through more than {LIMIT} agents. They probably call each other in a circle.'
        )
    return found
