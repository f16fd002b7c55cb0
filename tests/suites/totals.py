"""The total of a list beside the number of tasks, after anything that adds, moves or deletes tasks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_ai_a2a.errors import A2AError
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.ports import Backend, Claim, Slot
from pydantic_ai_a2a.types import INTERRUPTED, LIVE, TERMINAL, TaskQuery, TaskState

from .base import MakeBackend, PortSuite
from .values import AT, LEASE, OWNER, ending, message, submit, turn

__all__ = ('TotalsSuite',)

OWNERS = (OWNER, '/bob')
ENDS: list[TaskState] = sorted(TERMINAL | INTERRUPTED)
STATES: list[TaskState] = sorted(LIVE | TERMINAL | INTERRUPTED)
STEPS = ('begin', 'begin', 'claim', 'finish', 'finish', 'answer', 'cancel', 'erase a task', 'erase', 'retry', 'sweep')
STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, 11))


class _Tasks:
    """Tasks of two owners. Each step takes a number that chooses the task, the owner or the state."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tasks: list[tuple[str, str]] = []
        self._claims: list[Claim] = []
        self._steps = 0

    async def take(self, step: str, number: int) -> None:
        """Take a step, if the tasks allow it."""
        self._steps += 1
        with suppress(A2AError):
            if step == 'begin':
                await self._begin(OWNERS[number % 2], f'context {number % 3}')
            elif step == 'claim':
                self._claims += await self._backend.queue.claim(Slot('holder', LEASE), at=AT, limit=1 + number % 3)
            elif step == 'finish' and self._claims:
                await self._finish(ENDS[number % len(ENDS)])
            elif step == 'sweep':
                await self._sweep(number)
            elif step == 'erase':
                await self._backend.housekeeping.erase(OWNERS[number % 2], at=AT)
            elif self._tasks:
                await self._change(step, *self._tasks[number % len(self._tasks)], force=number % 2 == 0)

    async def _begin(self, owner: str, context: str) -> None:
        task_id = f'task {self._steps}'
        await submit(self._backend, message(new=task_id, context=context, owner=owner))
        self._tasks.append((owner, task_id))

    async def _finish(self, state: TaskState) -> None:
        claim = self._claims.pop(0)
        failure = 'attempts' if state == 'failed' else None
        task = await self._backend.reader.load(claim.header.id, None)
        if task is not None and task.header.state == 'working':
            end = ending(claim, state, after=task.header.last_event, messages=turn('hi', 'hello'), failure=failure)
            if (following := await self._backend.queue.finish(claim, end)) is not None:
                self._claims.append(following)

    async def _sweep(self, number: int) -> None:
        span = timedelta(seconds=5 if number % 2 else 3600)
        retention = Retention(tasks=span, events=span, waiting=span, max_tasks=1 + number % 3)
        for _ in range(1 + number % 3):
            await self._backend.housekeeping.sweep(retention, at=AT + 10_000)

    async def _change(self, step: str, owner: str, task_id: str, *, force: bool) -> None:
        if step == 'answer':
            await submit(self._backend, message(f'message {self._steps}', to=task_id, owner=owner))
        elif step == 'cancel':
            await self._backend.queue.cancel(task_id, owner, at=AT, force=force)
        elif step == 'erase a task':
            await self._backend.housekeeping.erase_task(task_id, owner, at=AT)
        else:
            await self._backend.housekeeping.retry(task_id, new_id=f'task {self._steps}', at=AT)

    async def check(self) -> None:
        """Compare the total of each kind of list with the number of tasks in it."""
        for owner, state, context in product((*OWNERS, None), (*STATES, None), ('context 1', None)):
            query = TaskQuery(owner=owner, state=state, context_id=context, page_size=1000, history_length=0)
            page = await self._backend.reader.list(query)
            assert page.total == len(page.tasks), (owner, state, context)


class TotalsSuite(PortSuite):
    """The total of a list, after any order of what can happen to tasks."""

    orders = 25
    """Orders to try, each of at most 40 steps; more find more, and take longer."""

    def test_the_total_of_a_list_is_the_number_of_its_tasks(self, make_backend: MakeBackend) -> None:
        @settings(max_examples=self.orders, deadline=None, database=None)
        @given(st.lists(STEP, min_size=20, max_size=40))
        def try_order(steps: list[tuple[str, int]]) -> None:
            asyncio.run(take_all(steps))

        async def take_all(steps: list[tuple[str, int]]) -> None:
            backend = make_backend()
            try:
                tasks = _Tasks(backend)
                for step, number in steps:
                    await tasks.take(step, number)
                    if step == 'finish':
                        await tasks.check()
                await tasks.check()
            finally:
                backend.close()

        try_order()
