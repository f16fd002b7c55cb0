"""Tests of messages to running tasks: unread, read, and left at the end of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import UnsupportedOperationError
from pydantic_ai_a2a.server.store.ports import Backend, Checkpoint, Claim
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .values import (
    AT,
    claim,
    claim_one,
    conversation,
    ending,
    events,
    expire,
    history,
    message,
    next_run,
    state_of,
    submit,
    text_of,
    turn,
)

__all__ = ('SteeredCheckpointSuite', 'SteeringSuite')


async def begun(backend: Backend, *more: str) -> Claim:
    """A task that is run, and is sent more meanwhile."""
    await submit(backend, message('one', new='t', context='c'))
    claimed = await claim_one(backend, 't')
    for text in more:
        await submit(backend, message(text, to='t'))
    return claimed


async def unread(backend: Backend, claimed: Claim, after: int | None = None) -> dict[str, int]:
    """Return the texts of the unread messages of a run, each with its row."""
    messages = await backend.reader.unread('t', claimed.inbox if after is None else after)
    assert [row for row, *_ in messages] == sorted(row for row, *_ in messages)
    return {text_of(body): row for row, body, _ in messages}


class SteeringSuite(PortSuite):
    """Tests of messages to running tasks."""

    async def test_running_task_reads_unread_messages_in_order(self, backend: Backend) -> None:
        claimed = await begun(backend)
        assert await unread(backend, claimed) == {}
        await submit(backend, message('other', new='u'))
        for text in ('two', 'three'):
            await submit(backend, message(text, to='t'))
        inbox = await unread(backend, claimed)
        assert [*inbox] == ['two', 'three']
        assert [*await unread(backend, claimed, inbox['two'])] == ['three']
        assert await unread(backend, claimed, inbox['three']) == {}

    async def test_unread_message_keeps_request_of_its_sender(self, backend: Backend) -> None:
        first = replace(message('one', new='t'), request=b'{"call":{"caller":"ann"}}')
        await submit(backend, first)
        await claim_one(backend, 't')
        await submit(backend, replace(message('two', to='t'), request=b'{"call":{"caller":"bob"}}'))
        await submit(backend, message('three', to='t'))
        messages = await backend.reader.unread('t', 0)
        assert [(text_of(body), request) for _, body, request in messages] == [
            ('one', b'{"call":{"caller":"ann"}}'),
            ('two', b'{"call":{"caller":"bob"}}'),
            ('three', None),
        ]

    async def test_message_taken_into_run_is_not_run_again(self, backend: Backend) -> None:
        claimed = await begun(backend, 'two', 'three')
        taken = (await unread(backend, claimed))['two']
        following = await next_run(backend, claimed, ending(claimed, taken=taken))
        assert text_of(following.message) == 'three'
        assert await backend.queue.finish(following, ending(following)) is None
        assert await state_of(backend, 't') == 'completed'

    async def test_task_ends_when_run_has_taken_all_messages(self, backend: Backend) -> None:
        claimed = await begun(backend, 'two')
        taken = (await unread(backend, claimed))['two']
        assert await backend.queue.finish(claimed, ending(claimed, taken=taken, messages=turn('one two', '1'))) is None
        assert await conversation(backend, 'c') == ['one two', '1']
        assert await history(backend, 't') == ['one', 'two']

    async def test_message_taken_into_interrupted_run_is_not_run_again(self, backend: Backend) -> None:
        claimed = await begun(backend, 'two', 'three')
        taken = (await unread(backend, claimed))['two']
        assert await backend.queue.finish(claimed, ending(claimed, 'input-required', taken=taken)) is None
        await submit(backend, message('answer', to='t'))
        resumed = await claim_one(backend, 't')
        assert text_of(resumed.message) == 'answer'
        assert [*await unread(backend, resumed)] == ['three']
        following = await next_run(backend, resumed, ending(resumed))
        assert text_of(following.message) == 'three'

    async def test_message_read_by_lost_run_stays_unread(self, backend: Backend) -> None:
        claimed = await begun(backend, 'two')
        await unread(backend, claimed)
        await expire(backend, 't')
        [again] = await claim(backend, 'other')
        assert text_of(again.message) == 'one'
        assert [*await unread(backend, again)] == ['two']

    @pytest.mark.parametrize('state', ['failed', 'rejected'])
    async def test_unread_message_is_run_after_failed_run(self, backend: Backend, state: TaskState) -> None:
        claimed = await begun(backend, 'two')
        why = b'{"parts":[{"text":"It broke."}]}'
        end = ending(claimed, state, messages=turn('one', 'never'), status_message=why, failure='internal')
        following = await next_run(backend, claimed, end)
        assert (text_of(following.message), following.run) == ('two', 2)
        assert (following.header.state, following.header.status_message) == ('working', None)
        assert await history(backend, 't') == ['one', 'two', 'It broke.']
        assert [(event.n, event.state) for event in await events(backend, 't')] == [(1, 'working'), (2, 'working')]
        assert b'It broke.' in (await events(backend, 't', 1))[0].payload
        assert await conversation(backend, 'c') == []
        assert await backend.queue.finish(following, ending(following, messages=turn('two', '2'))) is None
        assert await conversation(backend, 'c') == ['two', '2']

    @pytest.mark.parametrize(
        ('state', 'how'),
        [('canceled', {}), ('failed', {'last': True}), ('failed', {'failure': 'attempts'})],
    )
    async def test_cancel_or_final_failure_ends_task_despite_unread_messages(
        self, backend: Backend, state: TaskState, how: dict[str, Any]
    ) -> None:
        claimed = await begun(backend, 'two')
        assert await backend.queue.finish(claimed, ending(claimed, state, **how)) is None
        assert await state_of(backend, 't') == state
        assert await claim(backend) == []
        assert await history(backend, 't') == ['one', 'two']

    async def test_message_requiring_interrupted_task_is_refused_by_live_task(self, backend: Backend) -> None:
        more = replace(message('two', to='t'), only_waiting=True)
        await submit(backend, message('one', new='t'))
        with pytest.raises(UnsupportedOperationError, match='is submitted'):
            await submit(backend, more)
        claimed = await claim_one(backend, 't')
        with pytest.raises(UnsupportedOperationError, match='is working'):
            await submit(backend, more)
        assert await backend.queue.finish(claimed, ending(claimed, 'input-required')) is None
        accepted = await submit(backend, more)
        assert (await submit(backend, more)).replayed  # although the task waits no longer
        assert (accepted.header.state, await history(backend, 't')) == ('working', ['one', 'two'])

    async def test_message_for_earlier_pause_is_refused(self, backend: Backend) -> None:
        claimed = await begun(backend)
        assert await backend.queue.finish(claimed, ending(claimed, 'auth-required')) is None
        late, answer = (replace(message(text, to='t'), pause=2) for text in ('late', 'two'))
        accepted = await submit(backend, answer)
        assert (await submit(backend, answer)).replayed  # although that pause is over
        with pytest.raises(UnsupportedOperationError, match='is working'):
            await submit(backend, late)
        claimed = await claim_one(backend, 't')
        assert await backend.queue.finish(claimed, ending(claimed, 'auth-required')) is None
        with pytest.raises(UnsupportedOperationError, match='is auth-required'):
            await submit(backend, late)
        assert (accepted.header.state, await history(backend, 't')) == ('working', ['one', 'two'])


class SteeredCheckpointSuite(PortSuite):
    """Tests of messages to running tasks in a durable `TaskQueue`."""

    async def test_next_holder_gets_only_messages_missing_from_checkpoint(self, backend: Backend) -> None:
        claimed = await begun(backend, 'two', 'three')
        taken = (await unread(backend, claimed))['two']
        await backend.queue.emit(claimed, [], checkpoint=steered(taken))
        await expire(backend, 't')
        again = await claim_one(backend, 't', 'next')
        assert again.checkpoint is not None
        assert (text_of(again.message), again.checkpoint.taken) == ('one', taken)
        assert [*await unread(backend, again, again.checkpoint.taken)] == ['three']

    async def test_retry_keeps_checkpoint_and_unread_messages(self, backend: Backend) -> None:
        claimed = await begun(backend, 'two', 'three')
        await backend.queue.emit(claimed, [], checkpoint=steered((await unread(backend, claimed))['two']))
        await expire(backend, 't')
        [lost] = await claim(backend, 'next')
        assert lost.checkpoint is not None
        end = ending(lost, 'failed', failure='attempts', taken=lost.checkpoint.taken)
        assert await backend.queue.finish(lost, end) is None
        await backend.housekeeping.retry('t', new_id='u', at=AT)
        retried = await claim_one(backend, 'u', at=AT)
        assert retried.checkpoint is not None
        assert text_of(retried.message) == 'one'
        rest = await backend.reader.unread('u', retried.checkpoint.taken)
        assert [text_of(body) for _, body, _ in rest] == ['three']
        assert await history(backend, 'u') == ['one', 'two', 'three']


def steered(taken: int) -> Checkpoint:
    """A run into which a message has come."""
    return Checkpoint(run='t.1', messages=turn('one two', 'step'), usage=RunUsage(requests=1), taken=taken)
