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
    EXPIRED,
    LEASE,
    OWNER,
    QUEUE_LIMIT,
    START,
    WINDOW,
    claim_all,
    claim_and_finish,
    claim_task,
    events,
    finish_and_continue,
    finish_of,
    history_texts,
    load,
    message,
    model_turn,
    state_of,
    status_event,
    submit,
    text_of_body,
)

__all__ = (
    'SlotSuite',
    'SubmitSuite',
)


LONG_ID = 'an-id-that-nobody-else-has'


class SubmitSuite(PortSuite):
    """Storing messages."""

    async def test_message_creates_queued_task(self, backend: Backend) -> None:
        accepted = await submit(backend, message('hi', new='t'))
        assert accepted.header == TaskHeader(
            id='t',
            context_id='context of t',
            owner=OWNER,
            state='submitted',
            status_at=START,
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

    async def test_repeated_message_returns_first_task(self, backend: Backend) -> None:
        first = await submit(backend, message('hi', new='t', context='c'))
        await claim_and_finish(backend, 't')
        again = await submit(backend, message('hi', new='another', context='c', message_id='message hi for t'))
        assert (again.header.id, again.header.state, again.after, again.replayed) == (
            't',
            'completed',
            first.after,
            True,
        )
        assert await history_texts(backend, 't') == ['hi']
        assert await backend.reader.load('another', OWNER) is None
        assert await claim_all(backend) == []

    async def test_repeated_message_replays_events_since_first_send(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        claimed = await claim_task(backend, 't')
        first = await submit(backend, message('more', to='t'))
        await backend.queue.emit(claimed, [status_event(2, 'working')])
        again = await submit(backend, message('more', to='t'))
        assert (first.after, first.replayed) == (1, False)
        assert (again.after, again.replayed, again.header.last_event) == (1, True, 2)
        assert await history_texts(backend, 't') == ['hi', 'more']

    async def test_named_caller_cannot_reuse_message_id_with_new_content(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', message_id='m'))
        with pytest.raises(InvalidParamsError, match='messageId'):
            await submit(backend, message('other', new='u', message_id='m'))
        assert await backend.reader.load('u', OWNER) is None

    async def test_anonymous_caller_can_reuse_message_id_with_new_content(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', owner='/', message_id=LONG_ID))
        accepted = await submit(backend, message('other', new='u', owner='/', message_id=LONG_ID))
        assert (accepted.header.id, accepted.replayed) == ('u', False)

    @pytest.mark.parametrize(('message_id', 'task_id'), [('x' * 15, 'u'), ('x' * 16, 't')])
    async def test_short_message_id_of_anonymous_caller_is_not_recognised(
        self, backend: Backend, message_id: str, task_id: str
    ) -> None:
        await submit(backend, message('hi', new='t', context='c', owner='/', message_id=message_id))
        accepted = await submit(backend, message('hi', new='u', context='c', owner='/', message_id=message_id))
        assert accepted.header.id == task_id

    @pytest.mark.parametrize('owner', [OWNER, '/'])
    async def test_short_message_id_to_task_never_expires(self, backend: Backend, owner: str) -> None:
        await submit(backend, message('hi', new='t', owner=owner))
        first = await submit(backend, message('more', to='t', owner=owner, message_id='1'))
        late = START + 1000 * WINDOW
        again = await submit(backend, message('more', to='t', owner=owner, message_id='1', at=late))
        assert (first.replayed, again.replayed) == (False, True)
        assert await history_texts(backend, 't') == ['hi', 'more']

    @pytest.mark.parametrize('owner', [OWNER, '/'])
    async def test_without_idempotency_window_repeated_message_is_new(self, backend: Backend, owner: str) -> None:
        def hi(task_id: str, text: str = 'hi') -> Submission:
            return message(text, new=task_id, context='c', owner=owner, message_id=LONG_ID)

        more = message('more', to='t', owner=owner, message_id='m')
        accepted = [
            await backend.queue.submit(submission, queue_limit=QUEUE_LIMIT, idempotency_window=0)
            for submission in (hi('t'), hi('u'), hi('v', 'other'), more, more)
        ]
        assert [(task.header.id, task.replayed) for task in accepted] == [(id_, False) for id_ in 'tuvtt']
        assert await history_texts(backend, 't') == ['hi', 'more', 'more']

    async def test_anonymous_message_id_expires_after_idempotency_window(self, backend: Backend) -> None:
        def hi(task_id: str, at: int) -> Any:
            return message('hi', new=task_id, context='c', owner='/', message_id=LONG_ID, at=at)

        await submit(backend, hi('t', START))
        at_the_edge = await submit(backend, hi('u', START + WINDOW))
        after = await submit(backend, hi('v', START + WINDOW + 1))
        again = await submit(backend, hi('w', START + WINDOW + 2))
        assert [task.header.id for task in (at_the_edge, after, again)] == ['t', 'v', 'v']

    async def test_message_id_of_named_caller_never_expires(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c', message_id='m'))
        again = await submit(backend, message('hi', new='u', context='c', message_id='m', at=START + 1000 * WINDOW))
        assert again.header.id == 't'

    async def test_message_ids_of_two_owners_are_independent(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', message_id='m'))
        accepted = await submit(backend, message('hi', new='u', message_id='m', owner='/bob'))
        assert (accepted.header.id, accepted.header.owner, accepted.replayed) == ('u', '/bob', False)

    async def test_message_ids_to_tasks_of_two_owners_are_independent(self, backend: Backend) -> None:
        for task_id, owner in (('t', OWNER), ('u', '/bob')):
            await submit(backend, message(new=task_id, owner=owner))
            accepted = await submit(backend, message('more', to=task_id, owner=owner, message_id='m'))
            assert (accepted.header.id, accepted.replayed) == (task_id, False)

    async def test_full_queue_refuses_new_task_without_storing_message(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await submit(backend, message('hi', new='u'))
        with pytest.raises(OverloadedError) as refused:
            await submit(backend, message('hi', new='v', message_id='m'), queue_limit=2)
        assert refused.value.headers == {'Retry-After': '1'}
        assert await backend.reader.load('v', OWNER) is None
        await claim_task(backend, 't')
        accepted = await submit(backend, message('hi', new='v', message_id='m'), queue_limit=2)
        assert not accepted.replayed

    async def test_canceled_task_frees_place_in_queue(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='u'), queue_limit=1)
        await backend.queue.cancel('t', OWNER, at=START)
        assert (await submit(backend, message('hi', new='u'), queue_limit=1)).header.queued
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='v'), queue_limit=1)

    async def test_full_queue_recognises_repeated_message(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c', message_id='m'))
        again = await submit(backend, message('hi', new='u', context='c', message_id='m'), queue_limit=1)
        assert (again.header.id, again.replayed) == ('t', True)
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='v'), queue_limit=1)

    async def test_answered_task_takes_place_in_queue_until_claimed(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await claim_and_finish(backend, 't', 'input-required')
        await submit(backend, message('answer', to='t'))
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='u'), queue_limit=1)
        await claim_task(backend, 't')
        assert (await submit(backend, message('hi', new='u'), queue_limit=1)).header.queued

    async def test_full_queue_accepts_limited_messages_to_queued_task(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await submit(backend, message('more', to='t'), queue_limit=1)
        with pytest.raises(OverloadedError):
            await submit(backend, message('too much', to='t'), queue_limit=1)
        assert await history_texts(backend, 't') == ['hi', 'more']
        claimed = await claim_task(backend, 't')
        await backend.queue.finish(claimed, finish_of(claimed))
        assert not (await submit(backend, message('too much', to='t'), queue_limit=1)).replayed

    async def test_message_to_task_of_another_owner_is_not_found(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', owner='/bob'))
        for task_id in ('t', 'nowhere'):
            with pytest.raises(TaskNotFoundError):
                await submit(backend, message('more', to=task_id))
        assert await history_texts(backend, 't') == ['hi']

    @pytest.mark.parametrize('state', ['completed', 'failed', 'canceled', 'rejected'])
    async def test_message_to_ended_task_is_refused(self, backend: Backend, state: Any) -> None:
        await submit(backend, message('hi', new='t'))
        await claim_and_finish(backend, 't', state)
        with pytest.raises(UnsupportedOperationError, match=state):
            await submit(backend, message('more', to='t', message_id='m'))
        assert await history_texts(backend, 't') == ['hi']
        assert not (await submit(backend, message('more', new='u', message_id='m'))).replayed

    async def test_message_with_wrong_context_id_is_refused(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        with pytest.raises(InvalidParamsError, match='contextId'):
            await submit(backend, message('more', to='t', context='elsewhere'))
        await submit(backend, message('more', to='t', context='context of t'))
        assert await history_texts(backend, 't') == ['hi', 'more']

    async def test_message_to_interrupted_task_moves_task_to_working(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await claim_and_finish(backend, 't', 'input-required', status_message=b'{"parts":[{"text":"Which one?"}]}')
        accepted = await submit(backend, message('this one', to='t', at=START + 5))
        assert (accepted.header.state, accepted.header.status_at) == ('working', START + 5)
        assert accepted.header.queued
        assert accepted.header.last_event == accepted.after == 3
        assert [(event.n, event.state) for event in await events(backend, 't', 2)] == [(3, 'working')]
        assert await history_texts(backend, 't') == ['hi', 'Which one?', 'this one']

    async def test_task_keeps_dialect_and_trace_of_first_message(self, backend: Backend) -> None:
        begun = await submit(backend, replace(message('hi', new='t'), dialect='0.3', traceparent='00-1-2-01'))
        await submit(backend, replace(message('more', to='t'), dialect='1.0'))
        claimed = await claim_task(backend, 't')
        assert (begun.header.dialect, claimed.header.dialect, claimed.traceparent) == ('0.3', '0.3', '00-1-2-01')

    async def test_concurrent_repeated_messages_create_single_task(self, backend: Backend) -> None:
        sent = [submit(backend, message('hi', new=f't{n}', context='c', message_id='m')) for n in range(8)]
        accepted = await asyncio.gather(*sent)
        assert len({task.header.id for task in accepted}) == 1
        assert sorted(task.replayed for task in accepted) == [False, *[True] * 7]
        assert [task.header.id for task in await claim_all(backend)] == [accepted[0].header.id]

    async def test_task_is_readable_right_after_message_is_accepted(self, backend: Backend) -> None:
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

    async def test_free_slot_claims_new_task_at_once(self, backend: Backend) -> None:
        accepted = await submit(backend, message('hi', new='t', at=START + 7), slot=SLOT)
        assert (accepted.header.state, accepted.header.last_event, accepted.header.queued) == ('submitted', 0, True)
        assert (accepted.after, accepted.replayed) == (0, False)
        claimed = accepted.claim
        assert claimed is not None
        assert (claimed.header.state, claimed.header.status_at, claimed.header.last_event) == ('working', START + 7, 1)
        assert (claimed.holder, claimed.attempt, claimed.run, claimed.turn) == ('holder', 1, 1, 1)
        assert text_of_body(claimed.message) == 'hi'
        task = await load(backend, 't', None)
        assert task.header == claimed.header
        assert [(event.n, event.state) for event in await events(backend, 't')] == [(1, 'working')]
        assert not await backend.queued()
        assert await claim_all(backend) == []
        assert await backend.queue.finish(claimed, finish_of(claimed)) is None
        assert await state_of(backend, 't') == 'completed'

    async def test_claim_on_submission_equals_claim_from_queue(self, backend: Backend) -> None:
        asked = replace(message('hi', new='t'), request=b'{}', traceparent='00-1-2-01', dialect='0.3')
        accepted = await submit(backend, asked, slot=SLOT)
        await submit(backend, replace(asked, task_id='u', message_id='other', context_id='other'))
        later = await claim_task(backend, 'u')
        same = as_claimed(accepted.claim)
        ids = {'taskId': 'u', 'contextId': 'other'}
        assert json.loads(same.message) | ids == json.loads(later.message)
        header = replace(same.header, id='u', context_id='other')
        assert replace(same, message=later.message, header=header) == as_claimed(later)

    async def test_task_claimed_on_submission_continues_conversation(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'))
        await claim_and_finish(backend, 't', messages=model_turn('hi', 'hello'))
        accepted = await submit(backend, message('more', new='u', context='c'), slot=SLOT)
        claimed = accepted.claim
        assert claimed is not None
        assert len(await backend.history(claimed)) == 2

    async def test_new_task_in_busy_context_takes_no_slot(self, backend: Backend) -> None:
        first = (await submit(backend, message('hi', new='t', context='c'), slot=SLOT)).claim
        accepted = await submit(backend, message('hi', new='u', context='c'), slot=SLOT)
        assert (accepted.claim, accepted.header.queued) == (None, True)
        assert first is not None
        await backend.queue.finish(first, finish_of(first))
        assert [taken.header.id for taken in await claim_all(backend)] == ['u']

    @pytest.mark.parametrize('owner', ['/ada', '/bob'])
    async def test_new_task_takes_no_slot_before_queued_task(self, backend: Backend, owner: str) -> None:
        await submit(backend, message('hi', new='t', owner=owner))
        assert (await submit(backend, message('hi', new='u'), slot=SLOT)).claim is None
        assert [taken.header.id for taken in await claim_all(backend, limit=1)] == ['t']
        assert [taken.header.id for taken in await claim_all(backend, limit=1)] == ['u']
        assert (await submit(backend, message('hi', new='v'), slot=SLOT)).claim is not None

    async def test_blocked_tasks_leave_slot_to_new_task(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'), slot=SLOT)
        await submit(backend, message('hi', new='u', context='c'), slot=SLOT)
        assert (await submit(backend, message('hi', new='v'), slot=SLOT)).claim is not None

    async def test_repeated_message_takes_no_slot(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c', message_id='m'), slot=SLOT)
        again = await submit(backend, message('hi', new='u', context='c', message_id='m'), slot=SLOT)
        assert (again.header.id, again.header.state, again.replayed, again.claim) == ('t', 'working', True, None)
        queued = await submit(backend, message('hi', new='v', context='c'))
        again = await submit(backend, message('hi', new='v', context='c'), slot=SLOT)
        assert (again.header, again.replayed, again.claim) == (queued.header, True, None)

    async def test_limits_refuse_new_task_despite_free_slot(self, backend: Backend) -> None:
        with pytest.raises(OverloadedError):
            await submit(backend, message('hi', new='t'), queue_limit=0, slot=SLOT)
        await submit(backend, message('hi', new='t'), slot=SLOT)
        with pytest.raises(QuotaExceededError):
            await submit(backend, replace(message('hi', new='u'), task_limit=1), slot=SLOT)
        assert await backend.reader.load('u', None) is None
        assert (await submit(backend, replace(message('hi', new='u'), task_limit=2), slot=SLOT)).claim is not None

    async def test_free_slot_claims_answered_task_at_once(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await claim_and_finish(backend, 't', 'input-required', pending=b'calls')
        answer = Answer(pause=Pause(2, 'context of t', b'calls'), pending=b'answered')
        reply = replace(message('yes', to='t', at=START + 5), answers_calls=True, answer=answer)
        accepted = await submit(backend, reply, slot=SLOT)
        assert (accepted.header.state, accepted.header.queued, accepted.after) == ('working', True, 3)
        claimed = accepted.claim
        assert claimed is not None
        assert (claimed.header.state, claimed.header.queued, claimed.header.last_event) == ('working', False, 3)
        assert (claimed.run, claimed.turn, claimed.pending) == (2, 1, b'answered')
        assert text_of_body(claimed.message) == 'yes'
        assert await backend.queue.finish(claimed, finish_of(claimed)) is None
        assert await history_texts(backend, 't') == ['hi', 'yes']

    async def test_partial_answer_takes_no_slot(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        await claim_and_finish(backend, 't', 'input-required', pending=b'calls')
        rest = b'{"messageId":"r","parts":[]}'
        answer = Answer(pause=Pause(2, 'context of t', b'calls'), pending=b'half', rest=rest)
        part = replace(message('one', to='t'), answers_calls=True, answer=answer)
        accepted = await submit(backend, part, slot=SLOT)
        assert (accepted.header.state, accepted.claim) == ('input-required', None)

    async def test_answered_task_in_busy_context_takes_no_slot(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'))
        await claim_and_finish(backend, 't', 'input-required')
        await submit(backend, message('hi', new='u', context='c'), slot=SLOT)
        accepted = await submit(backend, message('yes', to='t'), slot=SLOT)
        assert (accepted.header.queued, accepted.claim) == (True, None)

    async def test_message_to_queued_or_running_task_takes_no_slot(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        assert (await submit(backend, message('more', to='t'), slot=SLOT)).claim is None
        claimed = await claim_task(backend, 't')
        assert (await submit(backend, message('even more', to='t'), slot=SLOT)).claim is None
        following = await finish_and_continue(backend, claimed, finish_of(claimed))
        assert text_of_body(following.message) == 'more'

    async def test_task_with_expired_slot_lease_is_reclaimed(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'), slot=Slot('holder', EXPIRED))
        [claimed] = await claim_all(backend, 'another')
        assert (claimed.header.id, claimed.attempt, claimed.header.last_event) == ('t', 2, 1)
