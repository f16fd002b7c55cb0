"""What a process remembers of the others: only what somebody here asks about."""

from __future__ import annotations

import asyncio

from pydantic_ai_a2a.store.events import EventBus
from pydantic_ai_a2a.store.shared import Peers, WorkerCallbacks
from pydantic_ai_a2a.store.sql.reads import watch_mark
from pydantic_ai_a2a.types import TaskEvent

NOW = 1_000


async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
    raise AssertionError('nobody reads')


async def test_readers_elsewhere_are_remembered_only_where_tasks_are_run() -> None:
    peers = Peers(EventBus(read, 1000), lambda: NOW)
    peers.is_watched('before', NOW + 1)
    peers.listeners.append(WorkerCallbacks(asyncio.get_running_loop(), print, print))
    peers.is_watched('t', NOW + 1)
    peers.is_watched('u', NOW)
    assert [peers.watched(task_id) for task_id in ('before', 't', 'u')] == [False, True, False]


async def test_a_later_mark_without_live_text_keeps_the_mark_of_a_reader_of_live_text() -> None:
    now = NOW
    peers = Peers(EventBus(read, 1000), lambda: now)
    peers.listeners.append(WorkerCallbacks(asyncio.get_running_loop(), print, print))
    for mark in (watch_mark(NOW, live=True), watch_mark(NOW + 10, live=False), watch_mark(NOW, live=False)):
        peers.is_watched('t', mark)
        assert peers.watched('t', live=True)
    now = watch_mark(NOW + 11, live=True)  # the mark has expired
    peers.is_watched('t', watch_mark(now, live=False))
    assert (peers.watched('t'), peers.watched('t', live=True)) == (True, False)


async def test_the_events_of_a_task_are_private_until_another_process_asks_about_the_task() -> None:
    peers = Peers(EventBus(read, 1000), lambda: NOW)
    peers.listeners.append(WorkerCallbacks(asyncio.get_running_loop(), print, print))
    peers.keep_private(['watched', 'canceled', 'over', 'private'])
    peers.is_watched('watched', NOW + 1)
    peers.cancel('canceled')
    peers.share(['over'])
    private = [task_id for task_id in ('watched', 'canceled', 'over', 'private', 'unknown') if peers.private(task_id)]
    assert private == ['private']
