"""What a process remembers of the others: only what somebody here asks about."""

from __future__ import annotations

import asyncio

from pydantic_ai_a2a.backends.others import Listener, Others
from pydantic_ai_a2a.backends.tail import Tails
from pydantic_ai_a2a.types import TaskEvent

NOW = 1_000


async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
    raise AssertionError('nobody reads')


async def test_readers_elsewhere_are_remembered_only_where_tasks_are_run() -> None:
    others = Others(Tails(read, 1000), lambda: NOW)
    others.is_watched('before', NOW + 1)
    others.listeners.append(Listener(asyncio.get_running_loop(), print, print))
    others.is_watched('t', NOW + 1)
    others.is_watched('u', NOW)
    assert [others.watched(task_id) for task_id in ('before', 't', 'u')] == [False, True, False]
