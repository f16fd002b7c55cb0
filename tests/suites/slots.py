"""Tests of messages stored with a free slot of a worker: the worker runs the tasks at once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pydantic_ai_a2a.errors import OverloadedError, QuotaExceededError
from pydantic_ai_a2a.store.ports import Answer, Backend, Claim, Pause, Slot

from .base import PortSuite
from .values import (
    AT,
    LEASE,
    OVER,
    claim,
    claim_one,
    ending,
    events,
    history,
    message,
    run,
    state_of,
    submit,
    text_of,
    turn,
)

__all__ = ('SlotSuite',)

SLOT = Slot('holder', LEASE)


def as_claimed(claimed: Claim | None) -> Claim:
    """The claim of a slot without the name of the holder and the number of the message's row."""
    assert claimed is not None
    return replace(claimed, inbox=0, holder='')


class SlotSuite(PortSuite):
    """Tests of messages stored with a slot."""

    async def test_a_new_task_is_claimed_for_the_slot_with_its_message(self, backend: Backend) -> None:
        accepted = await submit(backend, message('hi', new='t', at=AT + 7), slot=SLOT)
        assert (accepted.header.state, accepted.header.last_event, accepted.header.queued) == ('submitted', 0, True)
        assert (accepted.after, accepted.replayed) == (0, False)
        claimed = accepted.claim
        assert claimed is not None
        assert (claimed.header.state, claimed.header.status_at, claimed.header.last_event) == ('working', AT + 7, 1)
        assert (claimed.holder, claimed.attempt, claimed.run, claimed.turn) == ('holder', 1, 1, 1)
        assert text_of(claimed.message) == 'hi'
        task = await backend.reader.load('t', None)
        assert task is not None
        assert task.header == claimed.header
        assert [(event.n, event.state) for event in await events(backend, 't')] == [(1, 'working')]
        assert not await backend.queued()
        assert await claim(backend) == []
        assert await backend.queue.finish(claimed, ending(claimed)) is None
        assert await state_of(backend, 't') == 'completed'

    async def test_the_claim_of_a_slot_is_that_of_a_claim_that_follows(self, backend: Backend) -> None:
        asked = replace(message('hi', new='t'), request=b'{}', traceparent='00-1-2-01', dialect='0.3')
        accepted = await submit(backend, asked, slot=SLOT)
        await submit(backend, replace(asked, task_id='u', message_id='other', context_id='other'))
        later = await claim_one(backend, 'u')
        same = as_claimed(accepted.claim)
        ids = {'taskId': 'u', 'contextId': 'other'}
        assert json.loads(same.message) | ids == json.loads(later.message)
        header = replace(same.header, id='u', context_id='other')
        assert replace(same, message=later.message, header=header) == as_claimed(later)

    async def test_the_message_that_goes_on_with_a_conversation_gets_its_head(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'))
        await run(backend, 't', messages=turn('hi', 'hello'))
        accepted = await submit(backend, message('more', new='u', context='c'), slot=SLOT)
        claimed = accepted.claim
        assert claimed is not None
        assert len(await backend.history(claimed)) == 2

    async def test_a_task_behind_another_one_of_its_context_waits(self, backend: Backend) -> None:
        first = (await submit(backend, message('hi', new='t', context='c'), slot=SLOT)).claim
        accepted = await submit(backend, message('hi', new='u', context='c'), slot=SLOT)
        assert (accepted.claim, accepted.header.queued) == (None, True)
        assert first is not None
        await backend.queue.finish(first, ending(first))
        assert [taken.header.id for taken in await claim(backend)] == ['u']

    @pytest.mark.parametrize('owner', ['/ada', '/bob'])
    async def test_a_task_waits_as_long_as_another_one_waits_for_a_slot(self, backend: Backend, owner: str) -> None:
        await submit(backend, message('hi', new='t', owner=owner))
        assert (await submit(backend, message('hi', new='u'), slot=SLOT)).claim is None
        assert [taken.header.id for taken in await claim(backend, limit=1)] == ['t']
        assert [taken.header.id for taken in await claim(backend, limit=1)] == ['u']
        assert (await submit(backend, message('hi', new='v'), slot=SLOT)).claim is not None

    async def test_tasks_that_wait_for_their_contexts_hold_up_no_other(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'), slot=SLOT)
        await submit(backend, message('hi', new='u', context='c'), slot=SLOT)
        assert (await submit(backend, message('hi', new='v'), slot=SLOT)).claim is not None

    async def test_a_message_that_is_sent_again_is_not_claimed_again(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c', message_id='m'), slot=SLOT)
        again = await submit(backend, message('hi', new='u', context='c', message_id='m'), slot=SLOT)
        assert (again.header.id, again.header.state, again.replayed, again.claim) == ('t', 'working', True, None)
        queued = await submit(backend, message('hi', new='v', context='c'))
        again = await submit(backend, message('hi', new='v', context='c'), slot=SLOT)
        assert (again.header, again.replayed, again.claim) == (queued.header, True, None)

    async def test_limits_refuse_a_task_for_which_there_is_a_slot(self, backend: Backend) -> None:
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='t'), queue_limit=0, slot=SLOT)
        await submit(backend, message('hi', new='t'), slot=SLOT)
        with pytest.raises(QuotaExceededError):
            await submit(backend, replace(message('hi', new='u'), task_limit=1), slot=SLOT)
        assert await backend.reader.load('u', None) is None
        assert (await submit(backend, replace(message('hi', new='u'), task_limit=2), slot=SLOT)).claim is not None

    async def test_an_answer_is_claimed_with_its_task(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await run(backend, 't', 'input-required', pending=b'calls')
        answer = Answer(pause=Pause(2, 'context of t', b'calls'), pending=b'answered')
        reply = replace(message('yes', to='t', at=AT + 5), answers_calls=True, answer=answer)
        accepted = await submit(backend, reply, slot=SLOT)
        assert (accepted.header.state, accepted.header.queued, accepted.after) == ('working', True, 3)
        claimed = accepted.claim
        assert claimed is not None
        assert (claimed.header.state, claimed.header.queued, claimed.header.last_event) == ('working', False, 3)
        assert (claimed.run, claimed.turn, claimed.pending) == (2, 1, b'answered')
        assert text_of(claimed.message) == 'yes'
        assert await backend.queue.finish(claimed, ending(claimed)) is None
        assert await history(backend, 't') == ['hi', 'yes']

    async def test_a_part_of_an_answer_takes_no_slot(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await run(backend, 't', 'input-required', pending=b'calls')
        rest = b'{"messageId":"r","parts":[]}'
        answer = Answer(pause=Pause(2, 'context of t', b'calls'), pending=b'half', rest=rest)
        part = replace(message('one', to='t'), answers_calls=True, answer=answer)
        accepted = await submit(backend, part, slot=SLOT)
        assert (accepted.header.state, accepted.claim) == ('input-required', None)

    async def test_an_answered_task_waits_for_its_context(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'))
        await run(backend, 't', 'input-required')
        await submit(backend, message('hi', new='u', context='c'), slot=SLOT)
        accepted = await submit(backend, message('yes', to='t'), slot=SLOT)
        assert (accepted.header.queued, accepted.claim) == (True, None)

    async def test_a_message_to_a_task_that_does_not_wait_for_it_takes_no_slot(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        assert (await submit(backend, message('more', to='t'), slot=SLOT)).claim is None
        claimed = await claim_one(backend, 't')
        assert (await submit(backend, message('even more', to='t'), slot=SLOT)).claim is None
        following = await backend.queue.finish(claimed, ending(claimed))
        assert following is not None
        assert text_of(following.message) == 'more'

    async def test_a_task_whose_slot_is_lost_is_claimed_again(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'), slot=Slot('holder', OVER))
        [claimed] = await claim(backend, 'another')
        assert (claimed.header.id, claimed.attempt, claimed.header.last_event) == ('t', 2, 1)
