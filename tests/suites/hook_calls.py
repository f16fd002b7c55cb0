"""Tests of the calls of the hook `on_waiting` that a store keeps."""

from __future__ import annotations

from dataclasses import replace

from pydantic_ai_a2a.server.store.ports import Backend, HookCall, HookCalls
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .values import EXPIRED, LEASE, OWNER, START, claim_task, finish_of, message, submit

__all__ = ('HookCallSuite',)


def calls_of(backend: Backend) -> HookCalls:
    assert backend.hook_calls is not None
    return backend.hook_calls


async def wait(
    backend: Backend, task_id: str, *, lease: int | None = EXPIRED, state: TaskState = 'input-required'
) -> HookCall:
    """Let a new task wait, and store a call for the pause."""
    await submit(backend, message(new=task_id))
    claim = await claim_task(backend, task_id)
    await backend.queue.finish(claim, replace(finish_of(claim, state), hook_lease=lease))
    return HookCall(task_id, claim.run)


async def take(backend: Backend, *, lease: int = LEASE, limit: int = 10) -> list[str]:
    return sorted(call.task_id for call in await calls_of(backend).take(lease=lease, limit=limit))


class HookCallSuite(PortSuite):
    """Tests of `HookCalls`, for backends with the hook."""

    async def test_pause_without_lease_stores_no_hook_call(self, backend: Backend) -> None:
        await wait(backend, 'a', lease=None)
        assert await take(backend) == []

    async def test_hook_call_is_taken_once_its_lease_has_expired(self, backend: Backend) -> None:
        await wait(backend, 'a')
        await wait(backend, 'b', lease=LEASE)
        assert await take(backend) == ['a']
        assert await take(backend) == []

    async def test_limit_bounds_the_taken_hook_calls(self, backend: Backend) -> None:
        for name in 'abc':
            await wait(backend, name)
        assert len(await take(backend, limit=2)) == 2
        assert len(await take(backend, limit=2)) == 1

    async def test_renewed_hook_call_is_not_taken(self, backend: Backend) -> None:
        kept, lost = await wait(backend, 'a'), await wait(backend, 'b')
        await calls_of(backend).renew([kept], lease=LEASE)
        assert await take(backend) == [lost.task_id]

    async def test_done_hook_call_is_not_taken(self, backend: Backend) -> None:
        call = await wait(backend, 'a')
        await calls_of(backend).done(call)
        await calls_of(backend).renew([call], lease=EXPIRED)
        assert await take(backend) == []

    async def test_hook_call_has_header_and_pause_of_its_task(self, backend: Backend) -> None:
        for name, state in (('a', 'input-required'), ('b', 'auth-required')):
            call = await wait(backend, name, state=state)  # pyright: ignore[reportArgumentType]
            task = await backend.reader.load(name, OWNER, history_length=0)
            assert task is not None
            assert await calls_of(backend).pause(call) == (task.header, await backend.reader.pause(name, OWNER))

    async def test_hook_call_has_no_pause_after_answer(self, backend: Backend) -> None:
        first = await wait(backend, 'a')
        await submit(backend, message('more', to='a'))
        assert await calls_of(backend).pause(first) is None
        claim = await claim_task(backend, 'a')
        await backend.queue.finish(claim, replace(finish_of(claim, 'input-required'), hook_lease=EXPIRED))
        second = HookCall('a', claim.run)
        assert await calls_of(backend).pause(first) is None
        assert await calls_of(backend).pause(second) is not None
        assert sorted(await calls_of(backend).take(lease=LEASE, limit=10)) == [first, second]

    async def test_end_of_hook_call_keeps_later_call(self, backend: Backend) -> None:
        first = await wait(backend, 'a')
        await submit(backend, message('more', to='a'))
        claim = await claim_task(backend, 'a')
        await backend.queue.finish(claim, replace(finish_of(claim, 'input-required'), hook_lease=EXPIRED))
        await calls_of(backend).done(first)
        assert list(await calls_of(backend).take(lease=LEASE, limit=10)) == [HookCall('a', claim.run)]

    async def test_hook_call_has_no_pause_after_cancel(self, backend: Backend) -> None:
        call = await wait(backend, 'a')
        await backend.queue.cancel('a', OWNER, at=START)
        assert await calls_of(backend).pause(call) is None

    async def test_erased_task_has_no_hook_call(self, backend: Backend) -> None:
        call = await wait(backend, 'a')
        await backend.housekeeping.erase_task('a', None, at=START)
        assert await calls_of(backend).pause(call) is None
        assert await take(backend) == []
