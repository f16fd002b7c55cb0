"""Text on its way to a store that takes its time: what is stored together, and what a cancelled run leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from pydantic_ai.usage import RunUsage
from pydantic_core import from_json

from pydantic_ai_a2a.errors import LeaseLost, StoreFailed, StoreUnavailable
from pydantic_ai_a2a.server.conversion.failures import Failure
from pydantic_ai_a2a.server.runs.recorder import Recorder
from pydantic_ai_a2a.server.store.ports import Checkpoint, Claim, Finish, Status
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.settings.results import Results
from pydantic_ai_a2a.store import WrappedQueue
from pydantic_ai_a2a.types import Artifact, Note, Part, TaskEvent, TextDelta

from ...app_client import LIMIT
from ...behaviour.faulty_queues import StorageError
from ...suites.values import START, claim_task, events, expire_lease, message, model_turn, state_of, submit


class GatedQueue(WrappedQueue):
    """Stores events when the gate is open, and remembers how many at once."""

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__(backend.queue)
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.stored: list[int] = []
        self.fails = 0

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.asked.set()
        await self.gate.wait()
        if self.fails:
            self.fails -= 1
            raise StorageError
        await super().emit(claim, events, status, checkpoint)
        self.stored.append(len(events))


@pytest.fixture
async def backend() -> AsyncIterator[MemoryBackend]:
    made = MemoryBackend('agent', reader_lag=10**6)
    async with asyncio.timeout(LIMIT):
        yield made
    made.close()


async def recorder_of(
    backend: MemoryBackend, queue: GatedQueue, *, flush_delay: float = 0.001, **options: Any
) -> Recorder:
    await submit(backend, message(new='t'))
    return Recorder(await claim_task(backend, 't'), queue, lambda: START, flush_delay=flush_delay, **options)


async def recorder_waiting_for_store(backend: MemoryBackend, queue: GatedQueue, **options: Any) -> Recorder:
    """A recorder that has stored a first piece, and waits for the store of a second one."""
    recorder = await recorder_of(backend, queue, **options)
    queue.gate.set()
    await recorder.write(delta(0))
    queue.gate.clear()
    queue.asked.clear()
    await recorder.write(delta(1))
    await queue.asked.wait()
    return recorder


def delta(n: int) -> TextDelta:
    return TextDelta(f'{n} ', first=n == 0)


async def numbers(backend: MemoryBackend) -> list[int]:
    return [event.n for event in await events(backend, 't')]


async def complete(recorder: Recorder) -> None:
    artifact = Artifact(artifact_id=recorder.artifact_id, parts=[Part(text='all')])
    await recorder.complete([artifact], answer='all', streamed='all', messages=(), usage=None)


async def write_until_error(recorder: Recorder) -> None:
    """Write until it fails."""
    while True:
        await recorder.write(delta(1))
        await asyncio.sleep(0)


async def test_first_text_chunk_is_stored_before_run_continues(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_of(backend, queue)
    writing = asyncio.ensure_future(recorder.write(delta(0)))
    await queue.asked.wait()
    assert not writing.done()
    queue.gate.set()
    await writing
    assert queue.stored == [1]


async def test_text_chunks_written_during_store_call_are_batched(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_waiting_for_store(backend, queue)
    for n in range(2, 6):
        await recorder.write(delta(n))
    queue.gate.set()
    await recorder.write(Note('a note'))
    assert queue.stored == [1, 1, 5]
    assert await numbers(backend) == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_fast_writer_waits_for_the_store(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_waiting_for_store(backend, queue)
    for n in range(2, 11):
        await recorder.write(delta(n))
    waiting = asyncio.ensure_future(recorder.write(TextDelta('x' * 500, first=False)))
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.gate.set()
    await waiting
    assert queue.stored == [1, 1, 10]


async def test_text_after_full_batch_starts_new_batch(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_of(backend, queue, flush_delay=LIMIT)
    queue.gate.set()
    await recorder.write(delta(0))
    await recorder.write(TextDelta('x' * 500, first=False))
    for n in range(1, 5):
        await recorder.write(delta(n))
    assert queue.stored == [1, 1]
    await complete(recorder)


async def test_unstored_text_chunks_merge_within_the_interval(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_waiting_for_store(backend, queue, results=Results(interval=0.001))
    for n in range(2, 10):
        await recorder.write(delta(n))
    queue.gate.set()
    await recorder.write(Note('a note'))
    assert queue.stored == [1, 1, 2]
    updates = [from_json(event.payload) for event in await events(backend, 't')]
    texts = [
        update['artifactUpdate']['artifact']['parts'][0]['text'] for update in updates if 'artifactUpdate' in update
    ]
    assert texts == ['0 ', '1 ', '2 3 4 5 6 7 8 9 ']


async def test_unstored_text_is_stored_with_run_end(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_waiting_for_store(backend, queue)
    await recorder.write(delta(2))
    ending = asyncio.ensure_future(complete(recorder))
    await asyncio.sleep(0)
    queue.gate.set()
    await ending
    assert queue.stored == [1, 1]
    assert await numbers(backend) == [1, 2, 3, 4, 5, 6]  # working, three pieces, the mark of the last one, completed


async def test_run_cancelled_during_store_call_continues_event_numbers(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_of(backend, queue)
    writing = asyncio.ensure_future(recorder.write(Note('a note')))
    await queue.asked.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    ending = asyncio.ensure_future(recorder.cancel((), None))
    await asyncio.sleep(0)
    queue.gate.set()
    await ending
    assert (await state_of(backend, 't'), await numbers(backend)) == ('canceled', [1, 2, 3])


async def test_write_after_a_failed_store_call_raises(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_waiting_for_store(backend, queue)
    queue.fails = 1
    queue.gate.set()
    with pytest.raises(StoreFailed):
        await write_until_error(recorder)
    await recorder.fail(Failure('internal', 'It failed.'), 'id')  # with what was not stored then
    assert await state_of(backend, 't') == 'failed'
    got = await numbers(backend)
    assert got == list(range(1, len(got) + 1))


async def test_later_write_raises_error_of_canceled_write(
    backend: MemoryBackend,
) -> None:
    queue = GatedQueue(backend)
    queue.fails = 1
    recorder = await recorder_of(backend, queue)
    writing = asyncio.ensure_future(recorder.write(Note('lost')))
    await queue.asked.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    queue.gate.set()
    await recorder.write(Note('kept'))  # waits for the one before
    with pytest.raises(StoreFailed):
        await recorder.write(delta(0))
    assert queue.stored == [1]


async def test_run_failing_before_output_stores_only_its_end(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    recorder = await recorder_of(backend, queue)
    await recorder.fail(Failure('internal', 'It failed.'), 'id')
    assert (queue.stored, await numbers(backend)) == ([], [1, 2])


async def test_write_after_task_takeover_fails_with_lost_lease(backend: MemoryBackend) -> None:
    queue = GatedQueue(backend)
    queue.gate.set()
    recorder = await recorder_of(backend, queue)
    await expire_lease(backend, 't')
    await claim_task(backend, 't', 'thief')
    with pytest.raises(LeaseLost):
        await write_until_error(recorder)
    with pytest.raises(LeaseLost):
        await complete(recorder)


STEP = Checkpoint(run='t.1', messages=model_turn('hi', 'step'), usage=RunUsage(requests=1))


@pytest.mark.parametrize('flush_delay', [0.0, 0.001])
@pytest.mark.parametrize(('note', 'last'), [(Note('a note'), 3), (None, 2)])
async def test_checkpoint_is_stored_with_its_note_after_earlier_text(
    backend: MemoryBackend, flush_delay: float, note: Note | None, last: int
) -> None:
    await submit(backend, message(new='t'))
    recorder = Recorder(await claim_task(backend, 't'), backend.queue, lambda: START, flush_delay=flush_delay)
    await recorder.write(delta(0))
    await recorder.save(STEP, note)
    assert await numbers(backend) == [*range(1, last + 1)]
    await expire_lease(backend, 't')
    assert (await claim_task(backend, 't', 'next')).checkpoint == STEP


class FailingQueue(WrappedQueue):
    """Stores nothing, for one reason."""

    def __init__(self, backend: MemoryBackend, error: Exception) -> None:
        super().__init__(backend.queue)
        self.error = error

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        raise self.error

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        raise self.error


@pytest.mark.parametrize('flush_delay', [0.0, 0.001])
@pytest.mark.parametrize(
    ('error', 'told'),
    [(LeaseLost(), LeaseLost), (StoreUnavailable(), StoreUnavailable), (StorageError(), StoreFailed)],
)
async def test_unexpected_store_error_becomes_store_failed(
    error: Exception, told: type[Exception], flush_delay: float, backend: MemoryBackend
) -> None:
    await submit(backend, message(new='t'))
    recorder = Recorder(
        await claim_task(backend, 't'), FailingQueue(backend, error), lambda: START, flush_delay=flush_delay
    )
    for writing in (recorder.write(Note('so')), recorder.cancel((), None)):
        with pytest.raises(told) as raised:
            await writing
        assert error in (raised.value, raised.value.__cause__)
