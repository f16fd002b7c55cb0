"""The tasks with webhooks that a process remembers."""

from __future__ import annotations

from pydantic_ai_a2a.server.store.sql.webhook_ports import Due


def test_remembered_tasks_with_webhooks_are_bounded() -> None:
    due = Due()
    for n in range(10_001):
        due.add(str(n))
    assert due.tasks == {'10000'}
