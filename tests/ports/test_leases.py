"""Leases of many tasks are renewed together."""

from __future__ import annotations

import asyncio

from pydantic_ai_a2a.store.ports import Backend

from ..suites.values import AT, LEASE, OVER, claim, message, run, submit

MANY = 501
"""More than one statement renews."""


async def test_the_leases_of_many_tasks_are_renewed_at_once(backend: Backend) -> None:
    ids = [f'task {n}' for n in range(MANY)]
    await asyncio.gather(*(submit(backend, message(new=each), queue_limit=MANY) for each in ids))
    claims = {each.header.id: each for each in await claim(backend, limit=MANY)}
    assert sorted(claims) == sorted(ids)
    await backend.queue.cancel('task 0', None, at=AT)
    await backend.queue.release(claims['task 500'])
    await run(backend, 'task 500')
    await backend.queue.renew('holder', ids, lease=OVER)
    marks = await backend.queue.renew('holder', ids, lease=LEASE)
    assert ([*marks.lost], [*marks.cancel]) == (['task 500'], ['task 0'])
    assert await claim(backend, 'thief') == []
    await backend.queue.renew('holder', ids, lease=OVER)
    assert len(await claim(backend, 'thief', limit=MANY)) == MANY - 1
