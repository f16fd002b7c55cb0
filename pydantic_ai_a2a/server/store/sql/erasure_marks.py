"""Owners, and contexts, whose data is being erased: their new messages are refused."""

from __future__ import annotations

from ....errors import BeingErased
from .transaction import Transaction

_ERASING = (
    'INSERT INTO erasure (agent, owner, context_id, until) VALUES (?, ?, ?, ?)'
    ' ON CONFLICT (agent, owner, context_id) DO UPDATE SET until = excluded.until'
)
_NOT_ERASING = 'DELETE FROM erasure WHERE agent = ? AND owner = ? AND context_id = ?'
_REFUSED = "SELECT 1 FROM erasure WHERE agent = ? AND owner = ? AND context_id IN ('', ?) AND until > ?"


def set_erasing(agent: str, owner: str, context_id: str | None, *, until: int | None) -> Transaction[None]:
    """See `Housekeeping.set_erasing`."""
    row = (agent, owner, context_id or '')
    yield [(_NOT_ERASING, [row]) if until is None else (_ERASING, [(*row, until)])]


def check_erasing(agent: str, owner: str, context_id: str, *, at: int) -> Transaction[None]:
    """See `Housekeeping.check_erasing`."""
    if (yield _REFUSED, (agent, owner, context_id, at)):
        raise BeingErased
