"""The names that spans and metrics share."""

from __future__ import annotations

from ..types import TaskState

SCOPE = 'pydantic_ai_a2a'
"""Instrumentation scope of spans and metrics, and name of the logger."""
STATE = 'a2a.task.state'
"""The attribute with the state of a task."""


def state_name(state: TaskState) -> str:
    """Return a state as the attribute has it, which is A2A's name."""
    return f'TASK_STATE_{state.upper().replace("-", "_")}'
