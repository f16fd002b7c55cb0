"""Which tasks of this process have webhooks: remembered up to a bound."""

from __future__ import annotations

from pydantic_ai_a2a.store.sql.ports import Due


def test_as_many_tasks_are_remembered_as_there_is_room_for() -> None:
    due = Due()
    for n in range(10_001):
        due.add(str(n))
    assert due.tasks == {'10000'}
