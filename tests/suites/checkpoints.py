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

    async def test_the_next_holder_is_given_the_checkpoint(self, backend: Backend) -> None:
        messages = turn('hi', 'step')
        await begun(backend, *messages)
        lost = await claim_one(backend, 't', 'next', at=LATER, lease=OVER)
        assert lost.checkpoint == checkpoint(messages)
        assert lost.attempt == 2

    async def test_a_task_that_is_handed_back_keeps_its_checkpoint(self, backend: Backend) -> None:
        await backend.queue.release(await begun(backend))
        again = await claim_one(backend, 't', 'next')
        assert again.checkpoint is not None
        assert said(again.checkpoint.messages) == ['hi', 'step']
        assert again.attempt == 1

    async def test_the_usage_of_a_run_is_that_of_its_newest_step_or_try(self, backend: Backend) -> None:
        claimed = await begun(backend)
        fewer, more = (Tried(number=1, spent=1.0, usage=RunUsage(requests=count)) for count in (1, 2))
        await backend.queue.release(claimed, fewer)
        again = await claim_one(backend, 't', 'next')
        assert again.used == USAGE
        await backend.queue.release(again, more)
        assert (await claim_one(backend, 't', 'next')).used == more.usage

    async def test_each_checkpoint_adds_what_is_new_and_replaces_what_has_changed(self, backend: Backend) -> None:
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

    async def test_a_run_may_have_fewer_messages_than_before(self, backend: Backend) -> None:
        claimed = await begun(backend, *turn('hi', 'step'), *turn('more?', 'yes'))
        await backend.queue.emit(claimed, [], checkpoint=checkpoint(turn('all', 'of it')[1:], first=1))
        stored = (await claim_one(backend, 't', 'next', at=LATER, lease=OVER)).checkpoint
        assert stored is not None
        assert said(stored.messages) == ['hi', 'of it']

    async def test_a_checkpoint_is_stored_together_with_events(self, backend: Backend) -> None:
        claimed = await begun(backend)
        await backend.queue.emit(claimed, [chunk(2, 'Hel'), chunk(3, 'lo')], None, checkpoint(turn('hi', 'Hello')))
        assert [event.n for event in await events(backend, 't', 1)] == [2, 3]
        stored = (await claim_one(backend, 't', 'next', at=LATER, lease=OVER)).checkpoint
        assert stored is not None
        assert said(stored.messages) == ['hi', 'Hello']

    async def test_a_holder_that_lost_its_task_stores_no_checkpoint(self, backend: Backend) -> None:
        stale = await begun(backend)
        await claim_one(backend, 't', 'next', at=LATER, lease=OVER)
        with pytest.raises(LeaseLost):
            await backend.queue.emit(stale, [], checkpoint=checkpoint(turn('hi', 'late')))
        stored = (await claim_one(backend, 't', 'third', at=LATER)).checkpoint
        assert stored is not None
        assert said(stored.messages) == ['hi', 'step']

    @pytest.mark.parametrize('state', ['completed', 'canceled', 'failed', 'input-required'])
    async def test_nothing_is_left_of_a_checkpoint_when_the_run_ends(self, backend: Backend, state: TaskState) -> None:
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

    async def test_the_next_run_of_a_task_begins_without_a_checkpoint(self, backend: Backend) -> None:
        claimed = await begun(backend)
        await submit(backend, message('more', to='t'))
        following = await next_run(backend, claimed, ending(claimed, messages=turn('hi', 'all')))
        assert following.checkpoint is None
        await backend.queue.release(following)
        assert (await claim_one(backend, 't')).checkpoint is None

    async def test_a_task_that_is_cancelled_over_its_holders_head_has_no_checkpoint(self, backend: Backend) -> None:
        await begun(backend)
        await backend.queue.cancel('t', OWNER, at=AT, force=True)
        assert await backend.housekeeping.erase_task('t', OWNER, at=AT)
        await submit(backend, message(new='t'))
        assert (await claim_one(backend, 't')).checkpoint is None

    async def test_an_interrupted_task_goes_on_with_its_own_messages_and_what_came_after_them(
        self, backend: Backend
    ) -> None:
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

    async def test_a_dead_letter_keeps_its_checkpoint_until_it_is_swept(self, backend: Backend) -> None:
        claimed = await begun(backend)
        await backend.queue.finish(claimed, ending(claimed, 'failed', failure=DEAD_LETTER))
        await sweep(backend, Retention(), at=AT + 10**12)
        await submit(backend, message(new='t', at=AT + 10**12))
        assert (await claim_one(backend, 't', at=AT + 10**12)).checkpoint is None

    async def test_a_dead_letter_that_is_retried_gives_its_checkpoint_to_the_new_task(self, backend: Backend) -> None:
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
        await sweep(backend, retention, at=AT + 10_000)
        assert await backend.payloads.get('t', 'a') is None

    async def test_an_erased_task_has_no_payloads(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        await backend.payloads.put('t', {'a': b'1'})
        await run(backend, 't', 'input-required')
        await backend.housekeeping.erase_task('t', OWNER, at=AT)
        await backend.payloads.put('t', {'b': b'2'})
        assert [await backend.payloads.get('t', name) for name in 'ab'] == [None, None]
