"""Tests of a backend as a whole: hints to listeners, and the conversation that a run continues."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

from pydantic_ai_a2a.server.store.ports import Backend

from .base import PortSuite
from .values import (
    OWNER,
    START,
    claim_and_finish,
    claim_task,
    finish_of,
    ignore,
    message,
    model_texts,
    model_turn,
    state_of,
    submit,
)

__all__ = ('ListenSuite',)

_request: ContextVar[str] = ContextVar('_request')


class ListenSuite(PortSuite):
    """Hints to workers, and what the ports say together."""

    async def test_workers_are_hinted_only_of_runnable_tasks(self, backend: Backend) -> None:
        ready: list[str | None] = []
        stop = backend.listen(ready.append, ignore)
        await submit(backend, message('hi', new='t'))
        await submit(backend, message('hi', new='t'))  # the same again
        claimed = await claim_task(backend, 't')
        await submit(backend, message('more', to='t'))  # its holder runs it
        await backend.queue.finish(claimed, finish_of(claimed, 'input-required'))
        await submit(backend, message('still more', to='t'))
        stop()
        await submit(backend, message('hi', new='u'))
        assert [task_id for task_id in ready if task_id is not None] == ['t', 't']
        assert await state_of(backend, 'u') == 'submitted'

    async def test_hint_runs_in_thread_and_contextvars_of_request(self, backend: Backend) -> None:
        """So that a run can go on in the context of its request, with its trace."""
        heard: list[tuple[str | None, str, int]] = []

        def hear(task_id: str | None) -> None:
            heard.append((task_id, _request.get('nobody'), threading.get_ident()))

        async def request() -> int:
            _request.set('Ada')
            await submit(backend, message(new='t'))
            await backend.queue.cancel('t', OWNER, at=START)
            return threading.get_ident()

        stop = backend.listen(hear, hear)
        here = await asyncio.ensure_future(request())
        there = await asyncio.to_thread(lambda: asyncio.run(request_from_thread(backend)))
        stop()
        hints = [hint for hint in heard if hint[0] is not None]
        assert hints == [('t', 'Ada', here), ('t', 'Ada', here), ('u', 'Bob', there)]

    async def test_backend_reports_work_only_while_task_is_queued(self, backend: Backend) -> None:
        assert not await backend.queued()
        await submit(backend, message(new='t', owner='/bob'))
        assert await backend.queued()
        claimed = await claim_task(backend, 't')
        assert not await backend.queued()
        await backend.queue.finish(claimed, finish_of(claimed, 'input-required'))
        assert not await backend.queued()
        await submit(backend, message('answer', to='t', owner='/bob'))
        assert await backend.queued()

    async def test_resumed_run_reads_old_context_then_own_messages(self, backend: Backend) -> None:
        await submit(backend, message('zero', new='before', context='c'))
        assert model_texts(await backend.history(await claim_task(backend, 'before'))) == []
        await backend.queue.cancel('before', OWNER, at=START, force=True)
        await submit(backend, message('one', new='a', context='c'))
        await claim_and_finish(backend, 'a', messages=model_turn('one', '1'))
        await submit(backend, message('two', new='t', context='c'))
        first = await claim_task(backend, 't')
        assert model_texts(await backend.history(first)) == ['one', '1']
        await backend.queue.finish(first, finish_of(first, 'input-required', messages=model_turn('two', 'which?')))
        await submit(backend, message('three', new='b', context='c'))
        await claim_and_finish(backend, 'b', messages=model_turn('three', '3'))
        await submit(backend, message('this', to='t'))
        assert model_texts(await backend.history(await claim_task(backend, 't'))) == ['one', '1', 'two', 'which?']

    async def test_mutating_history_of_run_does_not_change_store(self, backend: Backend) -> None:
        for task_id in 'ab':
            await submit(backend, message(new=task_id, context='c'))
        await claim_and_finish(backend, 'a', messages=model_turn('one', '1'))
        claimed = await claim_task(backend, 'b')
        history = await backend.history(claimed)
        assert isinstance(history, list)
        history += model_turn('two', '2')
        assert model_texts(await backend.history(claimed)) == ['one', '1']


async def request_from_thread(backend: Backend) -> int:
    """A message that comes in another event loop; the thread."""
    _request.set('Bob')
    await submit(backend, message(new='u'))
    return threading.get_ident()
