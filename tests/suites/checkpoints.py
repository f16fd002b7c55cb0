"""Tests of what a run stores for the next holder: checkpoints, and the data of runs at an engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import LeaseLost
from pydantic_ai_a2a.server.store.ports import DEAD_LETTER, Backend, Checkpoint, Claim
from pydantic_ai_a2a.server.store.ports.failed_tries import Tried
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .steering import SteeredCheckpointSuite
from .values import (
    EXPIRED,
    OWNER,
    START,
    artifact_chunk,
    claim_and_finish,
    claim_task,
    conversation_texts,
    events,
    finish_and_continue,
    finish_of,
    message,
    model_texts,
    model_turn,
    submit,
    sweep,
)

__all__ = (
    'CheckpointSuite',
    'PayloadSuite',
)


LATER = START + 1000
"""Time (ms) at which the next holder takes the task."""

USAGE = RunUsage(requests=2, tool_calls=1, input_tokens=10, details={'cached': 3})


def checkpoint(messages: Sequence[ModelMessage], first: int = 0, usage: RunUsage = USAGE) -> Checkpoint:
    return Checkpoint(run='t.1', messages=messages, usage=usage, first=first)


async def start_run_with_checkpoint(backend: Backend, *messages: ModelMessage) -> Claim:
    """A task that is run, and has come this far."""
    await submit(backend, message('hi', new='t', context='c'))
    claimed = await claim_task(backend, 't', lease=EXPIRED)
    assert claimed.checkpoint is None
    await backend.queue.emit(claimed, [], checkpoint=checkpoint(messages or model_turn('hi', 'step')))
    return claimed


class CheckpointSuite(SteeredCheckpointSuite):
    """Tests of checkpoints in a durable `TaskQueue`: the next holder of a task gets the checkpoint of the lost run."""

    async def test_next_holder_gets_checkpoint(self, backend: Backend) -> None:
        messages = model_turn('hi', 'step')
        await start_run_with_checkpoint(backend, *messages)
        lost = await claim_task(backend, 't', 'next', at=LATER, lease=EXPIRED)
        assert lost.checkpoint == checkpoint(messages)
        assert lost.attempt == 2

    async def test_released_task_keeps_its_checkpoint(self, backend: Backend) -> None:
        await backend.queue.release(await start_run_with_checkpoint(backend))
        again = await claim_task(backend, 't', 'next')
        assert again.checkpoint is not None
        assert model_texts(again.checkpoint.messages) == ['hi', 'step']
        assert again.attempt == 1

    async def test_usage_of_run_follows_newest_checkpoint_or_failed_try(self, backend: Backend) -> None:
        claimed = await start_run_with_checkpoint(backend)
        fewer, more = (Tried(number=1, spent=1.0, usage=RunUsage(requests=count)) for count in (1, 2))
        await backend.queue.release(claimed, fewer)
        again = await claim_task(backend, 't', 'next')
        assert again.used == USAGE
        await backend.queue.release(again, more)
        assert (await claim_task(backend, 't', 'next')).used == more.usage

    async def test_checkpoint_adds_new_and_replaces_changed_messages(self, backend: Backend) -> None:
        claimed = await start_run_with_checkpoint(backend)
        [question, answer] = model_turn('more?', 'yes')
        await backend.queue.emit(claimed, [], checkpoint=checkpoint([question], first=2))
        [sent, _] = model_turn('more, now', '')
        usage = RunUsage(requests=3)
        await backend.queue.emit(claimed, [], checkpoint=checkpoint([sent, answer], first=2, usage=usage))
        stored = (await claim_task(backend, 't', 'next', at=LATER, lease=EXPIRED)).checkpoint
        assert stored is not None
        assert model_texts(stored.messages) == ['hi', 'step', 'more, now', 'yes']
        assert stored.usage == usage

    async def test_later_checkpoint_may_have_fewer_messages(self, backend: Backend) -> None:
        claimed = await start_run_with_checkpoint(backend, *model_turn('hi', 'step'), *model_turn('more?', 'yes'))
        await backend.queue.emit(claimed, [], checkpoint=checkpoint(model_turn('all', 'of it')[1:], first=1))
        stored = (await claim_task(backend, 't', 'next', at=LATER, lease=EXPIRED)).checkpoint
        assert stored is not None
        assert model_texts(stored.messages) == ['hi', 'of it']

    async def test_checkpoint_is_stored_together_with_events(self, backend: Backend) -> None:
        claimed = await start_run_with_checkpoint(backend)
        await backend.queue.emit(
            claimed, [artifact_chunk(2, 'Hel'), artifact_chunk(3, 'lo')], None, checkpoint(model_turn('hi', 'Hello'))
        )
        assert [event.n for event in await events(backend, 't', 1)] == [2, 3]
        stored = (await claim_task(backend, 't', 'next', at=LATER, lease=EXPIRED)).checkpoint
        assert stored is not None
        assert model_texts(stored.messages) == ['hi', 'Hello']

    async def test_stale_holder_stores_no_checkpoint(self, backend: Backend) -> None:
        stale = await start_run_with_checkpoint(backend)
        await claim_task(backend, 't', 'next', at=LATER, lease=EXPIRED)
        with pytest.raises(LeaseLost):
            await backend.queue.emit(stale, [], checkpoint=checkpoint(model_turn('hi', 'late')))
        stored = (await claim_task(backend, 't', 'third', at=LATER)).checkpoint
        assert stored is not None
        assert model_texts(stored.messages) == ['hi', 'step']

    @pytest.mark.parametrize('state', ['completed', 'canceled', 'failed', 'input-required'])
    async def test_end_of_run_deletes_checkpoint(self, backend: Backend, state: TaskState) -> None:
        claimed = await start_run_with_checkpoint(backend)
        failure = 'internal' if state == 'failed' else None
        messages = model_turn('hi', 'all')
        await backend.queue.finish(claimed, finish_of(claimed, state, messages=messages, failure=failure))
        assert await conversation_texts(backend, 'c') == (['hi', 'all'] if state in ('completed', 'canceled') else [])
        if state == 'input-required':
            await submit(backend, message('more', to='t'))
            again = await claim_task(backend, 't')
            assert again.own_messages == messages
        else:
            assert await backend.housekeeping.erase_task('t', OWNER, at=START)
            await submit(backend, message('again', new='t'))
            again = await claim_task(backend, 't')
        assert again.checkpoint is None

    async def test_next_run_of_task_starts_without_checkpoint(self, backend: Backend) -> None:
        claimed = await start_run_with_checkpoint(backend)
        await submit(backend, message('more', to='t'))
        following = await finish_and_continue(backend, claimed, finish_of(claimed, messages=model_turn('hi', 'all')))
        assert following.checkpoint is None
        await backend.queue.release(following)
        assert (await claim_task(backend, 't')).checkpoint is None

    async def test_resumed_task_keeps_own_messages_beside_checkpoint(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'))
        await claim_and_finish(backend, 't', 'input-required', messages=model_turn('hi', 'which?'))
        await submit(backend, message('this', to='t'))
        claimed = await claim_task(backend, 't', lease=EXPIRED)
        await backend.queue.emit(claimed, [], checkpoint=checkpoint(model_turn('this', 'step')))
        lost = await claim_task(backend, 't', 'next', at=LATER, lease=EXPIRED)
        assert lost.checkpoint is not None
        assert model_texts(await backend.history(lost)) == ['hi', 'which?']
        assert model_texts(lost.checkpoint.messages) == ['this', 'step']
        await backend.queue.finish(lost, finish_of(lost, messages=model_turn('this', 'all')))
        assert await conversation_texts(backend, 'c') == ['hi', 'which?', 'this', 'all']

    async def test_sweep_of_dead_letter_deletes_checkpoint(self, backend: Backend) -> None:
        claimed = await start_run_with_checkpoint(backend)
        await backend.queue.finish(claimed, finish_of(claimed, 'failed', failure=DEAD_LETTER))
        await sweep(backend, Retention(), at=START + 10**12)
        await submit(backend, message(new='t', at=START + 10**12))
        assert (await claim_task(backend, 't', at=START + 10**12)).checkpoint is None


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
        await backend.housekeeping.sweep(retention, at=START + 10_000)
        assert await backend.payloads.get('t', 'a') == b'1'
        await claim_and_finish(backend, 't')
        await sweep(backend, retention, at=START + 10_000)
        assert await backend.payloads.get('t', 'a') is None

    async def test_erased_task_has_no_payloads(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        await backend.payloads.put('t', {'a': b'1'})
        await claim_and_finish(backend, 't', 'input-required')
        await backend.housekeeping.erase_task('t', OWNER, at=START)
        await backend.payloads.put('t', {'b': b'2'})
        assert [await backend.payloads.get('t', name) for name in 'ab'] == [None, None]
