"""Tests of what a run stores for the next holder: checkpoints, and the data of runs at an engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import LeaseLost
from pydantic_ai_a2a.server.store.ports import DEAD_LETTER, Backend, Checkpoint, Claim
from pydantic_ai_a2a.server.store.ports.claim import Tried
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .steering import SteeredCheckpointSuite
from .values import (
    AT,
    OVER,
    OWNER,
    chunk,
    claim_one,
    conversation,
    ending,
    events,
    message,
    next_run,
    run,
    said,
    submit,
    sweep,
    turn,
)

__all__ = (
    'CheckpointSuite',
    'PayloadSuite',
)


LATER = AT + 1000
"""Time (ms) at which the next holder takes the task."""

USAGE = RunUsage(requests=2, tool_calls=1, input_tokens=10, details={'cached': 3})


def checkpoint(messages: Sequence[ModelMessage], first: int = 0, usage: RunUsage = USAGE) -> Checkpoint:
    return Checkpoint(run='t.1', messages=messages, usage=usage, first=first)


async def begun(backend: Backend, *messages: ModelMessage) -> Claim:
    """A task that is run, and has come this far."""
    await submit(backend, message('hi', new='t', context='c'))
    claimed = await claim_one(backend, 't', lease=OVER)
    assert claimed.checkpoint is None
    await backend.queue.emit(claimed, [], checkpoint=checkpoint(messages or turn('hi', 'step')))
    return claimed


class CheckpointSuite(SteeredCheckpointSuite):
    """Tests of checkpoints in a durable `TaskQueue`: the next holder of a task gets the checkpoint of the lost run."""

    async def test_next_holder_gets_checkpoint(self, backend: Backend) -> None:
        messages = turn('hi', 'step')
        await begun(backend, *messages)
        lost = await claim_one(backend, 't', 'next', at=LATER, lease=OVER)
        assert lost.checkpoint == checkpoint(messages)
        assert lost.attempt == 2

    async def test_released_task_keeps_its_checkpoint(self, backend: Backend) -> None:
        await backend.queue.release(await begun(backend))
        again = await claim_one(backend, 't', 'next')
        assert again.checkpoint is not None
        assert said(again.checkpoint.messages) == ['hi', 'step']
        assert again.attempt == 1

    async def test_usage_of_run_follows_newest_checkpoint_or_failed_try(self, backend: Backend) -> None:
        claimed = await begun(backend)
        fewer, more = (Tried(number=1, spent=1.0, usage=RunUsage(requests=count)) for count in (1, 2))
        await backend.queue.release(claimed, fewer)
        again = await claim_one(backend, 't', 'next')
        assert again.used == USAGE
        await backend.queue.release(again, more)
        assert (await claim_one(backend, 't', 'next')).used == more.usage

    async def test_checkpoint_adds_new_and_replaces_changed_messages(self, backend: Backend) -> None:
        claimed = await begun(backend)
        [question, answer] = turn('more?', 'yes')
        await backend.queue.emit(claimed, [], checkpoint=checkpoint([question], first=2))
        [sent, _] = turn('more, now', '')
        usage = RunUsage(requests=3)
        await backend.queue.emit(claimed, [], checkpoint=checkpoint([sent, answer], first=2, usage=usage))
        stored = (await claim_one(backend, 't', 'next', at=LATER, lease=OVER)).checkpoint
        assert stored is not None
        assert said(stored.messages) == ['hi', 'step', 'more, now', 'yes']
        assert stored.usage == usage

    async def test_later_checkpoint_may_have_fewer_messages(self, backend: Backend) -> None:
        claimed = await begun(backend, *turn('hi', 'step'), *turn('more?', 'yes'))
        await backend.queue.emit(claimed, [], checkpoint=checkpoint(turn('all', 'of it')[1:], first=1))
        stored = (await claim_one(backend, 't', 'next', at=LATER, lease=OVER)).checkpoint
        assert stored is not None
        assert said(stored.messages) == ['hi', 'of it']

    async def test_checkpoint_is_stored_together_with_events(self, backend: Backend) -> None:
        claimed = await begun(backend)
        await backend.queue.emit(claimed, [chunk(2, 'Hel'), chunk(3, 'lo')], None, checkpoint(turn('hi', 'Hello')))
        assert [event.n for event in await events(backend, 't', 1)] == [2, 3]
        stored = (await claim_one(backend, 't', 'next', at=LATER, lease=OVER)).checkpoint
        assert stored is not None
        assert said(stored.messages) == ['hi', 'Hello']

    async def test_stale_holder_stores_no_checkpoint(self, backend: Backend) -> None:
        stale = await begun(backend)
        await claim_one(backend, 't', 'next', at=LATER, lease=OVER)
        with pytest.raises(LeaseLost):
            await backend.queue.emit(stale, [], checkpoint=checkpoint(turn('hi', 'late')))
        stored = (await claim_one(backend, 't', 'third', at=LATER)).checkpoint
        assert stored is not None
        assert said(stored.messages) == ['hi', 'step']

    @pytest.mark.parametrize('state', ['completed', 'canceled', 'failed', 'input-required'])
    async def test_end_of_run_deletes_checkpoint(self, backend: Backend, state: TaskState) -> None:
        claimed = await begun(backend)
        failure = 'internal' if state == 'failed' else None
        messages = turn('hi', 'all')
        await backend.queue.finish(claimed, ending(claimed, state, messages=messages, failure=failure))
        assert await conversation(backend, 'c') == (['hi', 'all'] if state in ('completed', 'canceled') else [])
        if state == 'input-required':
            await submit(backend, message('more', to='t'))
            again = await claim_one(backend, 't')
            assert again.own_messages == messages
        else:
            assert await backend.housekeeping.erase_task('t', OWNER, at=AT)
            await submit(backend, message('again', new='t'))
            again = await claim_one(backend, 't')
        assert again.checkpoint is None

    async def test_next_run_of_task_starts_without_checkpoint(self, backend: Backend) -> None:
        claimed = await begun(backend)
        await submit(backend, message('more', to='t'))
        following = await next_run(backend, claimed, ending(claimed, messages=turn('hi', 'all')))
        assert following.checkpoint is None
        await backend.queue.release(following)
        assert (await claim_one(backend, 't')).checkpoint is None

    async def test_forced_cancel_deletes_checkpoint(self, backend: Backend) -> None:
        await begun(backend)
        await backend.queue.cancel('t', OWNER, at=AT, force=True)
        assert await backend.housekeeping.erase_task('t', OWNER, at=AT)
        await submit(backend, message(new='t'))
        assert (await claim_one(backend, 't')).checkpoint is None

    async def test_resumed_task_keeps_own_messages_beside_checkpoint(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'))
        await run(backend, 't', 'input-required', messages=turn('hi', 'which?'))
        await submit(backend, message('this', to='t'))
        claimed = await claim_one(backend, 't', lease=OVER)
        await backend.queue.emit(claimed, [], checkpoint=checkpoint(turn('this', 'step')))
        lost = await claim_one(backend, 't', 'next', at=LATER, lease=OVER)
        assert lost.checkpoint is not None
        assert said(await backend.history(lost)) == ['hi', 'which?']
        assert said(lost.checkpoint.messages) == ['this', 'step']
        await backend.queue.finish(lost, ending(lost, messages=turn('this', 'all')))
        assert await conversation(backend, 'c') == ['hi', 'which?', 'this', 'all']

    async def test_sweep_of_dead_letter_deletes_checkpoint(self, backend: Backend) -> None:
        claimed = await begun(backend)
        await backend.queue.finish(claimed, ending(claimed, 'failed', failure=DEAD_LETTER))
        await sweep(backend, Retention(), at=AT + 10**12)
        await submit(backend, message(new='t', at=AT + 10**12))
        assert (await claim_one(backend, 't', at=AT + 10**12)).checkpoint is None

    async def test_retry_of_dead_letter_gets_its_checkpoint(self, backend: Backend) -> None:
        claimed = await begun(backend)
        await backend.queue.finish(claimed, ending(claimed, 'failed', failure=DEAD_LETTER))
        await backend.housekeeping.retry('t', new_id='again', at=AT)
        retried = await claim_one(backend, 'again')
        assert retried.checkpoint is not None
        assert (retried.checkpoint.run, said(retried.checkpoint.messages)) == ('t.1', ['hi', 'step'])
        await backend.queue.finish(retried, ending(retried, messages=turn('hi', 'all')))
        assert await conversation(backend, 'c') == ['hi', 'all']


class PayloadSuite(PortSuite):
    """Tests of `PayloadStore`, for backends on a database."""

    async def test_payload_belongs_to_task_and_never_changes(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        await backend.payloads.put('t', {'a': b'1', 'b': b'2'})
        await backend.payloads.put('t', {'a': b'3'})
        assert [await backend.payloads.get('t', name) for name in 'abc'] == [b'1', b'2', None]
        assert await backend.payloads.get('other', 'a') is None

    async def test_payloads_are_swept_with_events_of_ended_task(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        await backend.payloads.put('t', {'a': b'1'})
        retention = Retention(events=timedelta(seconds=1))
        await backend.housekeeping.sweep(retention, at=AT + 10_000)
        assert await backend.payloads.get('t', 'a') == b'1'
        await run(backend, 't')
        await sweep(backend, retention, at=AT + 10_000)
        assert await backend.payloads.get('t', 'a') is None

    async def test_erased_task_has_no_payloads(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        await backend.payloads.put('t', {'a': b'1'})
        await run(backend, 't', 'input-required')
        await backend.housekeeping.erase_task('t', OWNER, at=AT)
        await backend.payloads.put('t', {'b': b'2'})
        assert [await backend.payloads.get('t', name) for name in 'ab'] == [None, None]
