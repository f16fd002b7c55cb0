"""Storing messages, also with a free slot of a worker: what is accepted, repeated, or refused without a trace."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from pydantic_ai_a2a.errors import (
    InvalidParamsError,
    OverloadedError,
    QuotaExceededError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from pydantic_ai_a2a.server.store.ports import Answer, Backend, Claim, Pause, Slot, Submission
from pydantic_ai_a2a.types import TaskHeader

from .base import PortSuite
from .values import (
    AT,
    LEASE,
    OVER,
    OWNER,
    QUEUE_LIMIT,
    WINDOW,
    claim,
    claim_one,
    ending,
    events,
    history,
    load,
    message,
    next_run,
    run,
    state_of,
    status_event,
    submit,
    text_of,
    turn,
)

__all__ = (
    'SlotSuite',
    'SubmitSuite',
)


LONG_ID = 'an-id-that-nobody-else-has'


class SubmitSuite(PortSuite):
    """Storing messages."""

    async def test_a_message_creates_a_task_that_waits_in_the_queue(self, backend: Backend) -> None:
        accepted = await submit(backend, message('hi', new='t'))
        assert accepted.header == TaskHeader(
            id='t',
            context_id='context of t',
            owner=OWNER,
            state='submitted',
            status_at=AT,
            status_message=None,
            metadata=None,
            last_event=0,
            queued=True,
        )
        assert (accepted.after, accepted.replayed) == (0, False)
        task = await load(backend, 't')
        assert task.header == accepted.header
        assert task.artifacts == []
        assert [json.loads(body) for body in task.history or ()] == [
            {
                'messageId': 'message hi for t',
                'role': 'ROLE_USER',
                'parts': [{'text': 'hi'}],
                'taskId': 't',
                'contextId': 'context of t',
            }
        ]

    async def test_the_same_message_gives_the_first_task_again(self, backend: Backend) -> None:
        first = await submit(backend, message('hi', new='t', context='c'))
        await run(backend, 't')
        again = await submit(backend, message('hi', new='another', context='c', message_id='message hi for t'))
        assert (again.header.id, again.header.state, again.after, again.replayed) == (
            't',
            'completed',
            first.after,
            True,
        )
        assert await history(backend, 't') == ['hi']
        assert await backend.reader.load('another', OWNER) is None
        assert await claim(backend) == []

    async def test_a_message_to_a_task_is_replayed_from_where_the_task_was_then(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        claimed = await claim_one(backend, 't')
        first = await submit(backend, message('more', to='t'))
        await backend.queue.emit(claimed, [status_event(2, 'working')])
        again = await submit(backend, message('more', to='t'))
        assert (first.after, first.replayed) == (1, False)
        assert (again.after, again.replayed, again.header.last_event) == (1, True, 2)
        assert await history(backend, 't') == ['hi', 'more']

    async def test_a_known_message_id_with_other_content_is_refused_for_a_caller_with_a_name(
        self, backend: Backend
    ) -> None:
        await submit(backend, message('hi', new='t', message_id='m'))
        with pytest.raises(InvalidParamsError, match='messageId'):
            await submit(backend, message('other', new='u', message_id='m'))
        assert await backend.reader.load('u', OWNER) is None

    async def test_a_known_message_id_with_other_content_is_a_new_message_of_an_anonymous_caller(
        self, backend: Backend
    ) -> None:
        await submit(backend, message('hi', new='t', owner='/', message_id=LONG_ID))
        accepted = await submit(backend, message('other', new='u', owner='/', message_id=LONG_ID))
        assert (accepted.header.id, accepted.replayed) == ('u', False)

    @pytest.mark.parametrize(('message_id', 'task_id'), [('x' * 15, 'u'), ('x' * 16, 't')])
    async def test_an_anonymous_caller_is_recognised_by_long_ids_only(
        self, backend: Backend, message_id: str, task_id: str
    ) -> None:
        await submit(backend, message('hi', new='t', context='c', owner='/', message_id=message_id))
        accepted = await submit(backend, message('hi', new='u', context='c', owner='/', message_id=message_id))
        assert accepted.header.id == task_id

    @pytest.mark.parametrize('owner', [OWNER, '/'])
    async def test_a_message_to_a_task_is_recognised_however_short_its_id_is_and_however_late(
        self, backend: Backend, owner: str
    ) -> None:
        await submit(backend, message('hi', new='t', owner=owner))
        first = await submit(backend, message('more', to='t', owner=owner, message_id='1'))
        late = AT + 1000 * WINDOW
        again = await submit(backend, message('more', to='t', owner=owner, message_id='1', at=late))
        assert (first.replayed, again.replayed) == (False, True)
        assert await history(backend, 't') == ['hi', 'more']

    @pytest.mark.parametrize('owner', [OWNER, '/'])
    async def test_without_a_window_no_message_is_recognised(self, backend: Backend, owner: str) -> None:
        def hi(task_id: str, text: str = 'hi') -> Submission:
            return message(text, new=task_id, context='c', owner=owner, message_id=LONG_ID)

        more = message('more', to='t', owner=owner, message_id='m')
        accepted = [
            await backend.queue.submit(submission, queue_limit=QUEUE_LIMIT, idempotency_window=0)
            for submission in (hi('t'), hi('u'), hi('v', 'other'), more, more)
        ]
        assert [(task.header.id, task.replayed) for task in accepted] == [(id_, False) for id_ in 'tuvtt']
        assert await history(backend, 't') == ['hi', 'more', 'more']

    async def test_an_anonymous_message_is_new_again_after_the_window(self, backend: Backend) -> None:
        def hi(task_id: str, at: int) -> Any:
            return message('hi', new=task_id, context='c', owner='/', message_id=LONG_ID, at=at)

        await submit(backend, hi('t', AT))
        at_the_edge = await submit(backend, hi('u', AT + WINDOW))
        after = await submit(backend, hi('v', AT + WINDOW + 1))
        again = await submit(backend, hi('w', AT + WINDOW + 2))
        assert [task.header.id for task in (at_the_edge, after, again)] == ['t', 'v', 'v']

    async def test_a_callers_message_is_recognised_however_late(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c', message_id='m'))
        again = await submit(backend, message('hi', new='u', context='c', message_id='m', at=AT + 1000 * WINDOW))
        assert again.header.id == 't'

    async def test_message_ids_of_two_owners_have_nothing_to_do_with_each_other(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', message_id='m'))
        accepted = await submit(backend, message('hi', new='u', message_id='m', owner='/bob'))
        assert (accepted.header.id, accepted.header.owner, accepted.replayed) == ('u', '/bob', False)

    async def test_message_ids_of_two_owners_have_nothing_to_do_with_each_other_within_tasks(
        self, backend: Backend
    ) -> None:
        for task_id, owner in (('t', OWNER), ('u', '/bob')):
            await submit(backend, message(new=task_id, owner=owner))
            accepted = await submit(backend, message('more', to=task_id, owner=owner, message_id='m'))
            assert (accepted.header.id, accepted.replayed) == (task_id, False)

    async def test_a_full_queue_refuses_a_task_before_anything_is_stored(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await submit(backend, message('hi', new='u'))
        with pytest.raises(OverloadedError) as refused:
            await submit(backend, message('hi', new='v', message_id='m'), queue_limit=2)
        assert refused.value.headers == {'Retry-After': '1'}
        assert await backend.reader.load('v', OWNER) is None
        await claim_one(backend, 't')
        accepted = await submit(backend, message('hi', new='v', message_id='m'), queue_limit=2)
        assert not accepted.replayed

    async def test_a_canceled_task_leaves_its_place_in_the_queue_at_once(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='u'), queue_limit=1)
        await backend.queue.cancel('t', OWNER, at=AT)
        assert (await submit(backend, message('hi', new='u'), queue_limit=1)).header.queued
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='v'), queue_limit=1)

    async def test_a_full_queue_recognises_a_message_that_is_sent_again(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c', message_id='m'))
        again = await submit(backend, message('hi', new='u', context='c', message_id='m'), queue_limit=1)
        assert (again.header.id, again.replayed) == ('t', True)
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='v'), queue_limit=1)

    async def test_an_answered_task_takes_a_place_in_the_queue_until_it_is_claimed(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await run(backend, 't', 'input-required')
        await submit(backend, message('answer', to='t'))
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='u'), queue_limit=1)
        await claim_one(backend, 't')
        assert (await submit(backend, message('hi', new='u'), queue_limit=1)).header.queued

    async def test_a_full_queue_still_takes_messages_for_its_tasks_but_not_without_end(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await submit(backend, message('more', to='t'), queue_limit=1)
        with pytest.raises(OverloadedError):
            await submit(backend, message('too much', to='t'), queue_limit=1)
        assert await history(backend, 't') == ['hi', 'more']
        claimed = await claim_one(backend, 't')
        await backend.queue.finish(claimed, ending(claimed))
        assert not (await submit(backend, message('too much', to='t'), queue_limit=1)).replayed

    async def test_a_message_to_no_task_of_the_owner_is_refused_whosever_it_is(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', owner='/bob'))
        for task_id in ('t', 'nowhere'):
            with pytest.raises(TaskNotFoundError):
                await submit(backend, message('more', to=task_id))
        assert await history(backend, 't') == ['hi']

    @pytest.mark.parametrize('state', ['completed', 'failed', 'canceled', 'rejected'])
    async def test_a_message_to_a_task_that_has_ended_is_refused_without_a_trace(
        self, backend: Backend, state: Any
    ) -> None:
        await submit(backend, message('hi', new='t'))
        await run(backend, 't', state)
        with pytest.raises(UnsupportedOperationError, match=state):
            await submit(backend, message('more', to='t', message_id='m'))
        assert await history(backend, 't') == ['hi']
        assert not (await submit(backend, message('more', new='u', message_id='m'))).replayed

    async def test_a_message_that_names_another_context_than_its_tasks_is_refused(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        with pytest.raises(InvalidParamsError, match='contextId'):
            await submit(backend, message('more', to='t', context='elsewhere'))
        await submit(backend, message('more', to='t', context='context of t'))
        assert await history(backend, 't') == ['hi', 'more']

    async def test_a_message_to_a_waiting_task_moves_it_to_working_and_queues_it(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await run(backend, 't', 'input-required', status_message=b'{"parts":[{"text":"Which one?"}]}')
        accepted = await submit(backend, message('this one', to='t', at=AT + 5))
        assert (accepted.header.state, accepted.header.status_at) == ('working', AT + 5)
        assert accepted.header.queued
        assert accepted.header.last_event == accepted.after == 3
        assert [(event.n, event.state) for event in await events(backend, 't', 2)] == [(3, 'working')]
        assert await history(backend, 't') == ['hi', 'Which one?', 'this one']

    async def test_a_task_keeps_the_dialect_and_the_trace_in_which_it_began(self, backend: Backend) -> None:
        begun = await submit(backend, replace(message('hi', new='t'), dialect='0.3', traceparent='00-1-2-01'))
        await submit(backend, replace(message('more', to='t'), dialect='1.0'))
        claimed = await claim_one(backend, 't')
        assert (begun.header.dialect, claimed.header.dialect, claimed.traceparent) == ('0.3', '0.3', '00-1-2-01')

    async def test_a_message_that_is_sent_many_times_at_once_is_one_task(self, backend: Backend) -> None:
        sent = [submit(backend, message('hi', new=f't{n}', context='c', message_id='m')) for n in range(8)]
        accepted = await asyncio.gather(*sent)
        assert len({task.header.id for task in accepted}) == 1
        assert sorted(task.replayed for task in accepted) == [False, *[True] * 7]
        assert [task.header.id for task in await claim(backend)] == [accepted[0].header.id]

    async def test_who_was_answered_reads_what_was_stored(self, backend: Backend) -> None:
        async def send(task_id: str) -> str:
            await submit(backend, message(new=task_id))
            return await state_of(backend, task_id)

        assert await asyncio.gather(*(send(f't{n}') for n in range(20))) == ['submitted'] * 20


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
        task = await load(backend, 't', None)
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
        following = await next_run(backend, claimed, ending(claimed))
        assert text_of(following.message) == 'more'

    async def test_a_task_whose_slot_is_lost_is_claimed_again(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'), slot=Slot('holder', OVER))
        [claimed] = await claim(backend, 'another')
        assert (claimed.header.id, claimed.attempt, claimed.header.last_event) == ('t', 2, 1)
