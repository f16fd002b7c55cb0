"""Tests of the retention of ended tasks with pending deliveries."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pydantic_ai_a2a.errors import UnsupportedOperationError
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.ports import Backend
from pydantic_ai_a2a.types import TaskQuery

from .base import PortSuite
from .push import fail, finished, in_short, lease, outbox_of, sweep, with_config
from .values import AT, LEASE, OWNER, message, run, submit

__all__ = ('PendingDeliverySuite',)


async def kept(backend: Backend) -> list[str]:
    page = await backend.reader.list(TaskQuery(owner=None, page_size=1000))
    return sorted(task.header.id for task in page.tasks)


class PendingDeliverySuite(PortSuite):
    """Tests of ended tasks whose webhooks have not been notified yet."""

    async def test_it_stays_until_they_have_been_told_however_old_it_is(self, backend: Backend) -> None:
        await finished(backend)
        keep = Retention(tasks=timedelta(seconds=1))
        for heard in ('1 working', '2 completed'):
            await sweep(backend, keep, at=AT + 10_000)
            assert await kept(backend) == ['t']
            [delivery] = await lease(backend)
            assert in_short(delivery.event) == heard
            await outbox_of(backend).done(delivery)
        await sweep(backend, keep, at=AT + 10_000)
        assert await kept(backend) == []

    async def test_it_stays_however_many_there_are_and_takes_nobodys_place(self, backend: Backend) -> None:
        for n in range(60):
            await submit(backend, with_config(message(new=f'untold {n}'), 'c'))
            await backend.queue.cancel(f'untold {n}', OWNER, at=AT + n)
        for n in range(60):
            await submit(backend, message(new=f'other {n:02}'))
            await run(backend, f'other {n:02}', at=AT + 100 + n)
        await sweep(backend, Retention(max_tasks=2), at=AT + 200)
        tasks = await kept(backend)
        assert [task for task in tasks if task.startswith('other')] == ['other 58', 'other 59']
        assert len(tasks) == 62

    async def test_it_stays_while_something_is_to_be_tried_again(self, backend: Backend) -> None:
        await finished(backend)
        [first] = await lease(backend)
        await outbox_of(backend).failed(first, at=AT, pause=LEASE, error='HTTP 500')
        await sweep(backend, Retention(tasks=timedelta(seconds=1)), at=AT + 10_000)
        assert await kept(backend) == ['t']

    async def test_it_goes_with_what_was_given_up_unless_that_is_retried(self, backend: Backend) -> None:
        for task_id in 'tu':
            await submit(backend, with_config(message(new=task_id), task_id))
            await backend.queue.cancel(task_id, OWNER, at=AT)
        for delivery in await lease(backend):
            await fail(backend, delivery)
        [first, second] = await outbox_of(backend).dead()
        await outbox_of(backend).retry(second.id)
        await sweep(backend, Retention(tasks=timedelta(seconds=1)), at=AT + 10_000)
        assert await kept(backend) == [second.task_id]
        assert list(await outbox_of(backend).dead()) == []
        with pytest.raises(UnsupportedOperationError):
            await outbox_of(backend).retry(first.id)

    async def test_it_stays_no_longer_than_a_task_may_wait_for_its_client(self, backend: Backend) -> None:
        await finished(backend)
        keep = Retention(tasks=timedelta(seconds=1), waiting=timedelta(seconds=100))
        await sweep(backend, keep, at=AT + 100_000)
        assert await kept(backend) == ['t']
        await sweep(backend, keep, at=AT + 100_001)
        assert await kept(backend) == []
        assert await lease(backend) == []
