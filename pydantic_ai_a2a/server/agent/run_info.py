"""What tools know of their run, beside its task."""

from __future__ import annotations

from typing_extensions import TypedDict


class RunInfo(TypedDict):
    """Information for tools, under `a2a` in `RunContext.metadata`."""

    task_id: str
    context_id: str
    attempt: int
    """1, and one more for each process lost during the run."""
    idempotency_key: str
    """Names the run, the same in all attempts. With `RunContext.tool_call_id`, names one call of a tool."""
