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
    START,
    claim_all,
    claim_task,
    conversation_texts,
    events,
    expire_lease,
    finish_and_continue,
    finish_of,
    history_texts,
    message,
    model_turn,
    state_of,
    submit,
    text_of_body,
)

__all__ = ('SteeredCheckpointSuite', 'SteeringSuite')


async def start_run_with_messages(backend: Backend, *more: str) -> Claim:
    """A task that is run, and is sent more meanwhile."""
    await submit(backend, message('one', new='t', context='c'))
    claimed = await claim_task(backend, 't')
    for text in more:
        await submit(backend, message(text, to='t'))
    return claimed


async def unread_texts(backend: Backend, claimed: Claim, after: int | None = None) -> dict[str, int]:
    """Return the texts of the unread messages of a run, each with its row."""
    messages = await backend.reader.unread('t', claimed.inbox if after is None else after)
    assert [row for row, *_ in messages] == sorted(row for row, *_ in messages)
    return {text_of_body(body): row for row, body, _ in messages}


class SteeringSuite(PortSuite):
    """Tests of messages to running tasks."""

    async def test_running_task_reads_unread_messages_in_order(self, backend: Backend) -> None:
        claimed = await start_run_with_messages(backend)
        assert await unread_texts(backend, claimed) == {}
        await submit(backend, message('other', new='u'))
        for text in ('two', 'three'):
            await submit(backend, message(text, to='t'))
        unread = await unread_texts(backend, claimed)
        assert [*unread] == ['two', 'three']
        assert [*await unread_texts(backend, claimed, unread['two'])] == ['three']
        assert await unread_texts(backend, claimed, unread['three']) == {}

    async def test_unread_message_keeps_request_of_its_sender(self, backend: Backend) -> None:
        first = replace(message('one', new='t'), request=b'{"call":{"caller":"ann"}}')
        await submit(backend, first)
        await claim_task(backend, 't')
        await submit(backend, replace(message('two', to='t'), request=b'{"call":{"caller":"bob"}}'))
        await submit(backend, message('three', to='t'))
        messages = await backend.reader.unread('t', 0)
        assert [(text_of_body(body), request) for _, body, request in messages] == [
            ('one', b'{"call":{"caller":"ann"}}'),
            ('two', b'{"call":{"caller":"bob"}}'),
            ('three', None),
        ]

    async def test_message_taken_into_run_is_not_run_again(self, backend: Backend) -> None:
        claimed = await start_run_with_messages(backend, 'two', 'three')
        taken = (await unread_texts(backend, claimed))['two']
        following = await finish_and_continue(backend, claimed, finish_of(claimed, taken=taken))
        assert text_of_body(following.message) == 'three'
        assert await backend.queue.finish(following, finish_of(following)) is None
        assert await state_of(backend, 't') == 'completed'

    async def test_task_ends_when_run_has_taken_all_messages(self, backend: Backend) -> None:
        claimed = await start_run_with_messages(backend, 'two')
        taken = (await unread_texts(backend, claimed))['two']
        assert (
            await backend.queue.finish(claimed, finish_of(claimed, taken=taken, messages=model_turn('one two', '1')))
            is None
        )
        assert await conversation_texts(backend, 'c') == ['one two', '1']
        assert await history_texts(backend, 't') == ['one', 'two']

    async def test_message_taken_into_interrupted_run_is_not_run_again(self, backend: Backend) -> None:
        claimed = await start_run_with_messages(backend, 'two', 'three')
        taken = (await unread_texts(backend, claimed))['two']
        assert await backend.queue.finish(claimed, finish_of(claimed, 'input-required', taken=taken)) is None
        await submit(backend, message('answer', to='t'))
        resumed = await claim_task(backend, 't')
        assert text_of_body(resumed.message) == 'answer'
        assert [*await unread_texts(backend, resumed)] == ['three']
        following = await finish_and_continue(backend, resumed, finish_of(resumed))
        assert text_of_body(following.message) == 'three'

    async def test_message_read_by_lost_run_stays_unread(self, backend: Backend) -> None:
        claimed = await start_run_with_messages(backend, 'two')
        await unread_texts(backend, claimed)
        await expire_lease(backend, 't')
        [again] = await claim_all(backend, 'other')
        assert text_of_body(again.message) == 'one'
        assert [*await unread_texts(backend, again)] == ['two']

    @pytest.mark.parametrize('state', ['failed', 'rejected'])
    async def test_unread_message_is_run_after_failed_run(self, backend: Backend, state: TaskState) -> None:
        claimed = await start_run_with_messages(backend, 'two')
        why = b'{"parts":[{"text":"It broke."}]}'
        end = finish_of(claimed, state, messages=model_turn('one', 'never'), status_message=why, failure='internal')
        following = await finish_and_continue(backend, claimed, end)
        assert (text_of_body(following.message), following.run) == ('two', 2)
        assert (following.header.state, following.header.status_message) == ('working', None)
        assert await history_texts(backend, 't') == ['one', 'two', 'It broke.']
        assert [(event.n, event.state) for event in await events(backend, 't')] == [(1, 'working'), (2, 'working')]
        assert b'It broke.' in (await events(backend, 't', 1))[0].payload
        assert await conversation_texts(backend, 'c') == []
        assert await backend.queue.finish(following, finish_of(following, messages=model_turn('two', '2'))) is None
        assert await conversation_texts(backend, 'c') == ['two', '2']

    @pytest.mark.parametrize(
        ('state', 'how'),
        [('canceled', {}), ('failed', {'last': True}), ('failed', {'failure': 'attempts'})],
    )
    async def test_cancel_or_final_failure_ends_task_despite_unread_messages(
        self, backend: Backend, state: TaskState, how: dict[str, Any]
    ) -> None:
        claimed = await start_run_with_messages(backend, 'two')
        assert await backend.queue.finish(claimed, finish_of(claimed, state, **how)) is None
        assert await state_of(backend, 't') == state
        assert await claim_all(backend) == []
        assert await history_texts(backend, 't') == ['one', 'two']

    async def test_message_requiring_interrupted_task_is_refused_by_live_task(self, backend: Backend) -> None:
        more = replace(message('two', to='t'), only_waiting=True)
        await submit(backend, message('one', new='t'))
        with pytest.raises(UnsupportedOperationError, match='is submitted'):
            await submit(backend, more)
        claimed = await claim_task(backend, 't')
        with pytest.raises(UnsupportedOperationError, match='is working'):
            await submit(backend, more)
        assert await backend.queue.finish(claimed, finish_of(claimed, 'input-required')) is None
        accepted = await submit(backend, more)
        assert (await submit(backend, more)).replayed  # although the task waits no longer
        assert (accepted.header.state, await history_texts(backend, 't')) == ('working', ['one', 'two'])

    async def test_message_for_earlier_pause_is_refused(self, backend: Backend) -> None:
        claimed = await start_run_with_messages(backend)
        assert await backend.queue.finish(claimed, finish_of(claimed, 'auth-required')) is None
        late, answer = (replace(message(text, to='t'), pause=2) for text in ('late', 'two'))
        accepted = await submit(backend, answer)
        assert (await submit(backend, answer)).replayed  # although that pause is over
        with pytest.raises(UnsupportedOperationError, match='is working'):
            await submit(backend, late)
        claimed = await claim_task(backend, 't')
        assert await backend.queue.finish(claimed, finish_of(claimed, 'auth-required')) is None
        with pytest.raises(UnsupportedOperationError, match='is auth-required'):
            await submit(backend, late)
        assert (accepted.header.state, await history_texts(backend, 't')) == ('working', ['one', 'two'])


class SteeredCheckpointSuite(PortSuite):
    """Tests of messages to running tasks in a durable `TaskQueue`."""

    async def test_next_holder_gets_only_messages_missing_from_checkpoint(self, backend: Backend) -> None:
        claimed = await start_run_with_messages(backend, 'two', 'three')
        taken = (await unread_texts(backend, claimed))['two']
        await backend.queue.emit(claimed, [], checkpoint=checkpoint_with_message(taken))
        await expire_lease(backend, 't')
        again = await claim_task(backend, 't', 'next')
        assert again.checkpoint is not None
        assert (text_of_body(again.message), again.checkpoint.taken) == ('one', taken)
        assert [*await unread_texts(backend, again, again.checkpoint.taken)] == ['three']

    async def test_retry_keeps_checkpoint_and_unread_messages(self, backend: Backend) -> None:
        claimed = await start_run_with_messages(backend, 'two', 'three')
        await backend.queue.emit(
            claimed, [], checkpoint=checkpoint_with_message((await unread_texts(backend, claimed))['two'])
        )
        await expire_lease(backend, 't')
        [lost] = await claim_all(backend, 'next')
        assert lost.checkpoint is not None
        end = finish_of(lost, 'failed', failure='attempts', taken=lost.checkpoint.taken)
        assert await backend.queue.finish(lost, end) is None
        await backend.housekeeping.retry('t', new_id='u', at=START)
        retried = await claim_task(backend, 'u', at=START)
        assert retried.checkpoint is not None
        assert text_of_body(retried.message) == 'one'
        rest = await backend.reader.unread('u', retried.checkpoint.taken)
        assert [text_of_body(body) for _, body, _ in rest] == ['three']
        assert await history_texts(backend, 'u') == ['one', 'two', 'three']


def checkpoint_with_message(taken: int) -> Checkpoint:
    """A run into which a message has come."""
    return Checkpoint(run='t.1', messages=model_turn('one two', 'step'), usage=RunUsage(requests=1), taken=taken)
