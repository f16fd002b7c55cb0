"""What readers share, over a store that takes its time."""

from __future__ import annotations

import asyncio

from pydantic_ai_a2a.backends.tail import Tails
from pydantic_ai_a2a.types import TaskEvent


def event(n: int) -> TaskEvent:
    return TaskEvent(n, 'completed' if n == 2 else None, b'{}')


def nothing() -> None:
    """What a reader does that nobody drops."""


async def test_an_event_that_is_published_while_a_reader_looks_into_the_store_is_not_missed() -> None:
    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        await asyncio.sleep(0)
        tails.publish(task_id, [event(1)])
        return []

    tails = Tails(read, 1000)
    reader = tails.subscribe('t', nothing)
    reader.start(0)
    async with asyncio.timeout(1):
        assert await reader.next() == [event(1)]
    reader.close()


async def test_a_stop_that_is_published_while_somebody_asks_for_it_is_not_missed() -> None:
    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        raise AssertionError('nobody reads')

    async def stopped() -> bool:
        tails.publish('t', [event(2)])
        await asyncio.sleep(0)
        return False

    tails = Tails(read, 1000)
    async with asyncio.timeout(1):
        await tails.wait('t', stopped)
