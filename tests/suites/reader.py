"""Consistent reads of tasks: one, or pages of many, and their total after anything that changes tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_ai_a2a.errors import A2AError
from pydantic_ai_a2a.server.store.ports import Backend, Claim, Slot, Status, TaskReader
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.task_states import INTERRUPTED, LIVE, TERMINAL
from pydantic_ai_a2a.types import TaskQuery, TaskState

from .base import MakeBackend, PortSuite
from .values import (
    LEASE,
    OWNER,
    START,
    artifact_chunk,
    claim_and_finish,
    claim_task,
    finish_and_continue,
    finish_of,
    load,
    message,
    model_turn,
    status_event,
    submit,
    text_of_body,
)

__all__ = (
    'TaskReaderSuite',
    'TotalsSuite',
)


def texts(bodies: Sequence[bytes] | None) -> list[str] | None:
    return None if bodies is None else [text_of_body(body) for body in bodies]


async def five_tasks(backend: Backend) -> None:
    """Tasks `a` to `e`, each with a newer status than the one before; only `d` is Bob's, only `e` runs."""
    for n, task_id in enumerate('abcde'):
        owner = '/bob' if task_id == 'd' else OWNER
        await submit(backend, message(new=task_id, context='odd' if n % 2 else 'even', owner=owner, at=START + n))
    for n, task_id in enumerate('abcd'):
        await claim_and_finish(backend, task_id, at=START + n)
    await claim_task(backend, 'e', at=START + 4)


class TaskReaderSuite(PortSuite):
    """Tests of `TaskReader`: tasks of one owner, with the requested history, in pages without gap or overlap."""

    async def test_task_of_another_owner_is_not_readable(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        assert await backend.reader.load('t', '/bob') is None
        assert await backend.reader.load('nowhere', None) is None
        assert (await load(backend)) == (await load(backend, owner=None))

    async def test_queued_tasks_are_picked_from_given_tasks(self, backend: Backend) -> None:
        task_ids = [f'queued {n}' for n in range(60)]
        for task_id in (*task_ids, 'runs', 'another'):
            await submit(backend, message(new=task_id))
        await claim_task(backend, 'runs')
        asked = [*task_ids, 'runs', 'nowhere']
        assert {*await backend.reader.queued_among(asked)} == {*task_ids}
        assert {*await TaskReader.queued_among(backend.reader, asked)} == {*task_ids}

    @pytest.mark.parametrize(
        ('length', 'history'), [(None, ['one', 'two', 'three']), (0, None), (1, ['three']), (2, ['two', 'three'])]
    )
    async def test_history_length_limits_history_to_newest_messages(
        self, backend: Backend, length: int | None, history: list[str] | None
    ) -> None:
        await submit(backend, message('one', new='t'))
        for text in ('two', 'three'):
            await submit(backend, message(text, to='t'))
        assert texts((await load(backend, history_length=length)).history) == history

    @pytest.mark.parametrize(
        ('size', 'pages'), [(None, ['cba']), (0, ['c', 'b', 'a']), (17_000, ['cb', 'a']), (30_000, ['cba'])]
    )
    async def test_list_page_exceeds_byte_limit_only_for_first_task(
        self, backend: Backend, size: int | None, pages: list[str]
    ) -> None:
        for n, task_id in enumerate('abc'):
            await submit(backend, message(task_id * 4000, new=task_id, at=START + n))
        ids: list[str] = []
        query = TaskQuery(owner=OWNER, max_bytes=size)
        while True:
            page = await backend.reader.list(query)
            ids.append(''.join(task.header.id for task in page.tasks))
            assert page.total == 3
            if page.next is None:
                break
            query = replace(query, before=page.next)
        assert ids == pages

    @pytest.mark.parametrize('artifacts', [True, False])
    async def test_list_byte_limit_counts_only_included_artifacts(self, backend: Backend, artifacts: bool) -> None:
        body = b'{"artifactId":"a","parts":[{"text":"%s"}]}' % (b'x' * 1000)
        for task_id in 'ab':
            await submit(backend, message(new=task_id))
            claimed = await claim_task(backend, task_id)
            await backend.queue.finish(claimed, finish_of(claimed, artifacts=[('a', body)]))
        query = TaskQuery(owner=OWNER, max_bytes=1500, include_artifacts=artifacts)
        assert len((await backend.reader.list(query)).tasks) == (1 if artifacts else 2)

    async def test_artifacts_of_running_task_are_read_as_streamed(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        assert texts((await load(backend)).artifacts) == []
        await backend.queue.emit(claimed, [artifact_chunk(2, 'Hel', append=False), artifact_chunk(3, 'lo')])
        await backend.queue.emit(claimed, [status_event(4, 'working')], Status('working', START, None))
        assert texts((await load(backend)).artifacts) == ['Hello']
        await backend.queue.emit(claimed, [artifact_chunk(5, 'anew', append=False)])
        assert texts((await load(backend)).artifacts) == ['anew']
        assert (await load(backend, artifacts=False)).artifacts is None
        final = b'{"artifactId":"a","parts":[{"text":"final"}]}'
        await backend.queue.finish(claimed, finish_of(claimed, after=5, artifacts=[('a', final)]))
        assert (await load(backend)).artifacts == [final]

    async def test_next_turn_adds_artifacts_and_replaces_same_ids(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        await submit(backend, message('two', to='t'))
        first = await claim_task(backend, 't')

        def artifact(name: str, text: str) -> tuple[str, bytes]:
            return name, b'{"artifactId":"%s","parts":[{"text":"%s"}]}' % (name.encode(), text.encode())

        results = [artifact('a', 'first'), artifact('b', 'other')]
        second = await finish_and_continue(backend, first, finish_of(first, artifacts=results))
        assert texts((await load(backend)).artifacts) == ['first', 'other']
        await backend.queue.emit(second, [artifact_chunk(2, 'second', append=False)])
        assert texts((await load(backend)).artifacts) == ['second', 'other']
        results = [artifact('a', 'the second'), artifact('c', 'third')]
        await backend.queue.finish(second, finish_of(second, after=2, artifacts=results))
        assert texts((await load(backend)).artifacts) == ['other', 'the second', 'third']

    async def test_failed_turn_keeps_streamed_artifacts_when_task_continues(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        await submit(backend, message('two', to='t'))
        first = await claim_task(backend, 't')
        await backend.queue.emit(first, [artifact_chunk(2, 'streamed', append=False)])
        second = await finish_and_continue(backend, first, finish_of(first, 'failed', after=2))
        assert texts((await load(backend)).artifacts) == ['streamed']
        await backend.queue.finish(
            second, finish_of(second, after=3, artifacts=[('b', b'{"artifactId":"b","parts":[]}')])
        )
        assert texts((await load(backend)).artifacts) == ['streamed', '']

    @pytest.mark.parametrize(
        ('query', 'expected'),
        [
            (TaskQuery(owner=OWNER), 'ecba'),
            (TaskQuery(owner=None), 'edcba'),
            (TaskQuery(owner='/carol'), ''),
            (TaskQuery(owner=OWNER, context_id='even'), 'eca'),
            (TaskQuery(owner=OWNER, context_id='nowhere'), ''),
            (TaskQuery(owner=OWNER, state='completed'), 'cba'),
            (TaskQuery(owner=OWNER, state='working', context_id='even'), 'e'),
            (TaskQuery(owner=OWNER, state='failed'), ''),
            (TaskQuery(owner=OWNER, since=START + 2), 'ec'),
            (TaskQuery(owner=OWNER, since=START + 5), ''),
        ],
    )
    async def test_list_returns_matching_tasks_newest_first(
        self, backend: Backend, query: TaskQuery, expected: str
    ) -> None:
        await five_tasks(backend)
        page = await backend.reader.list(query)
        assert ''.join(task.header.id for task in page.tasks) == expected
        assert (page.next, page.total) == (None, len(expected))

    async def test_context_filter_lists_only_tasks_of_owner(self, backend: Backend) -> None:
        await five_tasks(backend)
        for owner, expected in ((OWNER, 'b'), ('/bob', 'd'), ('/carol', '')):
            page = await backend.reader.list(TaskQuery(owner=owner, context_id='odd'))
            assert (''.join(task.header.id for task in page.tasks), page.total) == (expected, len(expected))

    @pytest.mark.parametrize('size', [1, 2, 3, 4, 5])
    async def test_list_pages_have_no_gap_or_overlap(self, backend: Backend, size: int) -> None:
        await five_tasks(backend)
        pages: list[str] = []
        query = TaskQuery(owner=None, page_size=size)
        while True:
            page = await backend.reader.list(query)
            assert page.total == 5
            pages.append(''.join(task.header.id for task in page.tasks))
            if page.next is None:
                break
            query = TaskQuery(owner=None, page_size=size, before=page.next)
        assert ''.join(pages) == 'edcba'
        assert all(len(page) == size for page in pages[:-1])

    async def test_list_pages_include_all_tasks_with_equal_timestamp(self, backend: Backend) -> None:
        for n in range(7):
            await submit(backend, message(new=f't{n}'))
        first = await backend.reader.list(TaskQuery(owner=None, page_size=4))
        rest = await backend.reader.list(TaskQuery(owner=None, page_size=4, before=first.next))
        assert {task.header.id for task in (*first.tasks, *rest.tasks)} == {f't{n}' for n in range(7)}

    async def test_list_includes_requested_history_and_artifacts(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        answer = ('', b'{"parts":[{"text":"two"}]}')
        await claim_and_finish(
            backend, 't', history=[answer], artifacts=[('a', b'{"artifactId":"a","parts":[{"text":"it"}]}')]
        )

        async def listed(**options: Any) -> tuple[list[str] | None, list[str] | None]:
            [task] = (await backend.reader.list(TaskQuery(owner=OWNER, **options))).tasks
            return texts(task.history), texts(task.artifacts)

        assert await listed() == (['one', 'two'], None)
        assert await listed(history_length=0) == (None, None)
        assert await listed(history_length=1, include_artifacts=True) == (['two'], ['it'])


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
                self._claims += await self._backend.queue.claim(Slot('holder', LEASE), at=START, limit=1 + number % 3)
            elif step == 'finish' and self._claims:
                await self._finish(ENDS[number % len(ENDS)])
            elif step == 'sweep':
                await self._sweep(number)
            elif step == 'erase':
                await self._backend.housekeeping.erase(OWNERS[number % 2], at=START)
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
            end = finish_of(
                claim, state, after=task.header.last_event, messages=model_turn('hi', 'hello'), failure=failure
            )
            if (following := await self._backend.queue.finish(claim, end)) is not None:
                self._claims.append(following)

    async def _sweep(self, number: int) -> None:
        span = timedelta(seconds=5 if number % 2 else 3600)
        retention = Retention(tasks=span, events=span, waiting=span, max_tasks=1 + number % 3)
        for _ in range(1 + number % 3):
            await self._backend.housekeeping.sweep(retention, at=START + 10_000)

    async def _change(self, step: str, owner: str, task_id: str, *, force: bool) -> None:
        if step == 'answer':
            await submit(self._backend, message(f'message {self._steps}', to=task_id, owner=owner))
        elif step == 'cancel':
            await self._backend.queue.cancel(task_id, owner, at=START, force=force)
        elif step == 'erase a task':
            await self._backend.housekeeping.erase_task(task_id, owner, at=START)
        else:
            await self._backend.housekeeping.retry(task_id, new_id=f'task {self._steps}', at=START)

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

    def test_list_total_equals_number_of_matching_tasks(self, make_backend: MakeBackend) -> None:
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
