"""The changes of the state of a task that A2A allows (§4.1.3): every backend is held against them."""

from __future__ import annotations

from pydantic_ai_a2a.types import STOPPED, TERMINAL, TaskState

_MOVES: dict[TaskState, frozenset[TaskState]] = {
    'submitted': frozenset({'working', 'failed', 'canceled', 'rejected'}),
    'working': STOPPED | frozenset[TaskState]({'working'}),
    'input-required': frozenset({'working', 'failed', 'canceled', 'input-required'}),
    'auth-required': frozenset({'working', 'failed', 'canceled'}),
    **dict.fromkeys(TERMINAL, frozenset[TaskState]()),
}


def may_move(state: TaskState, to: TaskState) -> bool:
    """Return True if a task may go from `state` to `to`; a terminal task never moves again."""
    return to in _MOVES[state]
