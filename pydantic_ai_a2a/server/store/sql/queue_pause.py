"""The pause of a queue by an operator."""

from __future__ import annotations

from .transaction import Done, Transaction

_PAUSE = (
    'INSERT INTO queue (agent, paused_at) VALUES (?, ?)'
    ' ON CONFLICT (agent) DO UPDATE SET paused_at = excluded.paused_at'
)
PAUSED = 'SELECT 1 FROM queue WHERE paused_at IS NOT NULL AND queue.agent ='
"""A row if an operator has paused the queue of the agent that follows."""


def pause(agent: str, at: int | None) -> Transaction[Done[None]]:
    """See `Housekeeping.pause`."""
    yield [(_PAUSE, [(agent, at)])]
    return Done(None, ready=True)


def paused(agent: str) -> Transaction[bool]:
    """See `Backend.paused`."""
    return bool((yield 'SELECT 1 FROM queue WHERE agent = ? AND paused_at IS NOT NULL', (agent,)))
