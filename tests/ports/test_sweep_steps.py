"""How much our own backends delete in one step; how much that is, is up to each backend."""

from __future__ import annotations

from pydantic_ai_a2a.ports import Backend, Erased
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskQuery

from .values import AT, OWNER, chunk, claim_one, ending, message, run, submit


async def long_task(backend: Backend, task_id: str, events: int, *, at: int = AT) -> None:
    await submit(backend, message(new=task_id))
    claimed = await claim_one(backend, task_id)
    await backend.queue.emit(claimed, [chunk(n, '.') for n in range(2, events)])
    await backend.queue.finish(claimed, ending(claimed, after=events - 1, at=at))


async def test_a_few_tasks_with_much_to_them_are_enough_for_one_step(backend: Backend) -> None:
    for n in range(3):
        await long_task(backend, f't{n}', 300, at=AT + n)
    keep = Retention(max_tasks=1)
    assert await backend.housekeeping.sweep(keep, at=AT) > 0
    page = await backend.reader.list(TaskQuery(owner=None))
    assert [task.header.id for task in page.tasks] == ['t2']
    assert await backend.housekeeping.sweep(keep, at=AT) == 0


async def test_what_is_erased_of_an_owner_goes_in_steps_of_some_hundred_rows(backend: Backend) -> None:
    await long_task(backend, 'long', 1201)
    for n in range(120):
        await submit(backend, message(new=f't{n}'))
        await run(backend, f't{n}')
    batches: list[Erased] = []
    while batch := await backend.housekeeping.erase(OWNER, at=AT):
        batches.append(batch)
    assert max(batch.tasks + batch.events for batch in batches) <= 550
    assert sum(batches, Erased()).tasks == 121
