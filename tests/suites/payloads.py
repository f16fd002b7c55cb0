"""Tests of the data of runs at an engine."""

from __future__ import annotations

from datetime import timedelta

from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.ports import Backend

from .base import PortSuite
from .values import AT, OWNER, message, run, submit

__all__ = ('PayloadSuite',)


class PayloadSuite(PortSuite):
    """Tests of `PayloadStore`, for backends on a database."""

    async def test_a_payload_is_of_one_task_and_never_changes(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        await backend.payloads.put('t', {'a': b'1', 'b': b'2'})
        await backend.payloads.put('t', {'a': b'3'})
        assert [await backend.payloads.get('t', name) for name in 'abc'] == [b'1', b'2', None]
        assert await backend.payloads.get('other', 'a') is None

    async def test_a_payload_goes_with_the_events_of_its_task_and_not_before_the_end(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        await backend.payloads.put('t', {'a': b'1'})
        retention = Retention(events=timedelta(seconds=1))
        await backend.housekeeping.sweep(retention, at=AT + 10_000)
        assert await backend.payloads.get('t', 'a') == b'1'
        await run(backend, 't')
        while await backend.housekeeping.sweep(retention, at=AT + 10_000):
            pass
        assert await backend.payloads.get('t', 'a') is None

    async def test_an_erased_task_has_no_payloads(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        await backend.payloads.put('t', {'a': b'1'})
        await run(backend, 't', 'input-required')
        await backend.housekeeping.erase_task('t', OWNER, at=AT)
        await backend.payloads.put('t', {'b': b'2'})
        assert [await backend.payloads.get('t', name) for name in 'ab'] == [None, None]
