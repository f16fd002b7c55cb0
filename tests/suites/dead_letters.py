"""Tests of dead letters: tasks that were started too often are listed, and retried as a new task once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import TaskNotFoundError, UnsupportedOperationError
from pydantic_ai_a2a.server.store.ports import DEAD_LETTER, Answer, Backend, Charge, Checkpoint, DeadLetter, Slot
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    WAIT_LIMIT,
    claim_all,
    claim_and_finish,
    claim_task,
    conversation_texts,
    finish_and_continue,
    finish_of,
    history_texts,
    message,
    model_texts,
    model_turn,
    record_of,
    submit,
    sweep,
    text_of_body,
)

__all__ = ('DeadLetterSuite',)


TOO_OFTEN = b'{"parts":[{"text":"too often"}],"metadata":{"failure":"attempts","correlationId":"t.1.3"}}'


async def exhaust_attempts(
    backend: Backend,
    task_id: str,
    *,
    at: int = START,
    why: bytes | None = TOO_OFTEN,
    charges: Sequence[Charge] = (),
) -> None:
    """Start a queued task twice, and find at the next time that it was too often."""
    for n in range(2):
        await claim_task(backend, task_id, f'holder {n}', at=at + n, lease=EXPIRED)
    end = at + 2
    claimed = await claim_task(backend, task_id, 'the last', at=end)
    failed = finish_of(claimed, 'failed', at=end, status_message=why, failure=DEAD_LETTER, charges=charges)
    assert await backend.queue.finish(claimed, failed) is None


async def make_dead_letter(backend: Backend, task_id: str, *, at: int = START, **fields: Any) -> None:
    await submit(backend, message(new=task_id, at=at, **fields))
    await exhaust_attempts(backend, task_id, at=at)


async def retry(backend: Backend, task_id: str, new_id: str, **options: Any) -> str:
    """Retry a dead letter; its context."""
    return (await backend.housekeeping.retry(task_id, new_id=new_id, at=START + 1_000_000, **options)).context_id


class DeadLetterSuite(PortSuite):
    """Dead letters, and how they are retried."""

    async def test_dead_letter_has_owner_context_attempts_and_failure(self, backend: Backend) -> None:
        await make_dead_letter(backend, 't', context='c')
        assert await backend.housekeeping.dead_letters() == [
            DeadLetter(
                task_id='t',
                context_id='c',
                owner=OWNER,
                at=START + 2,
                attempts=2,
                failure='attempts',
                correlation_id='t.1.3',
                retried_as=None,
            )
        ]

    @pytest.mark.parametrize('why', [None, b'{"parts":[]}'])
    async def test_dead_letter_may_lack_correlation_id(self, backend: Backend, why: bytes | None) -> None:
        await submit(backend, message(new='t'))
        await exhaust_attempts(backend, 't', why=why)
        assert [letter.correlation_id for letter in await backend.housekeeping.dead_letters()] == [None]

    async def test_only_tasks_started_too_often_are_dead_letters(self, backend: Backend) -> None:
        for state in ('completed', 'failed', 'canceled', 'input-required'):
            await submit(backend, message(new=state))
            await claim_and_finish(backend, state, state, failure='internal' if state == 'failed' else None)
        await submit(backend, message(new='queued'))
        assert await backend.housekeeping.dead_letters() == []

    async def test_dead_letters_are_paged_oldest_failure_first(self, backend: Backend) -> None:
        for n in (2, 0, 1):
            await make_dead_letter(backend, f't{n}', at=START + n, owner=OWNER if n else '/bob')
        first = await backend.housekeeping.dead_letters(limit=2)
        assert [letter.task_id for letter in first] == ['t0', 't1']
        rest = await backend.housekeeping.dead_letters(limit=2, after=(first[-1].at, first[-1].task_id))
        assert [letter.task_id for letter in rest] == ['t2']
        mine = await backend.housekeeping.dead_letters(OWNER, limit=1)
        assert [letter.task_id for letter in mine] == ['t1']

    async def test_retry_copies_message_to_new_task(
        self,
        backend: Backend,
    ) -> None:
        original = replace(
            message('do it', new='t', context='c', owner='/bob'),
            body=b'{"messageId":"m","role":"ROLE_USER","parts":[{"text":"do it"}],"referenceTaskIds":["earlier"]}',
            request=b'{"accepted":["text/plain"]}',
            traceparent='00-trace',
            dialect='0.3',
        )
        await submit(backend, original)
        await exhaust_attempts(backend, 't')
        header = await backend.housekeeping.retry('t', new_id='u', at=START + 5)
        assert (header.id, header.context_id, header.owner, header.state, header.status_at, header.dialect) == (
            'u',
            'c',
            '/bob',
            'submitted',
            START + 5,
            '0.3',
        )
        [claimed] = await claim_all(backend)
        assert (claimed.header.id, claimed.attempt, claimed.run) == ('u', 1, 1)
        assert (claimed.request, claimed.traceparent) == (original.request, original.traceparent)
        sent = json.loads(claimed.message)
        assert sent.pop('messageId') != 'm'
        assert sent == {
            'role': 'ROLE_USER',
            'parts': [{'text': 'do it'}],
            'referenceTaskIds': ['earlier', 't'],
            'taskId': 'u',
            'contextId': 'c',
        }

    async def test_retry_leaves_dead_task_unchanged(self, backend: Backend) -> None:
        await make_dead_letter(backend, 't')
        before = await backend.reader.load('t', OWNER)
        await retry(backend, 't', 'u')
        assert await backend.reader.load('t', OWNER) == before
        assert [letter.retried_as for letter in await backend.housekeeping.dead_letters()] == ['u']

    async def test_retry_continues_current_conversation_of_context(self, backend: Backend) -> None:
        await make_dead_letter(backend, 't', context='c')
        await submit(backend, message('later', new='later', context='c'))
        await claim_and_finish(backend, 'later', messages=model_turn('later', 'done'))
        await retry(backend, 't', 'u')
        claimed = await claim_task(backend, 'u')
        assert model_texts(await backend.history(claimed)) == ['later', 'done']
        await backend.queue.finish(claimed, finish_of(claimed, messages=model_turn('hello', 'at last')))
        assert await conversation_texts(backend, 'c') == ['later', 'done', 'hello', 'at last']

    async def test_retry_repeats_only_messages_without_completed_run(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t', context='c'))
        for text in ('two', 'three'):
            await submit(backend, message(text, to='t'))
        claimed = await claim_task(backend, 't')
        following = await finish_and_continue(backend, claimed, finish_of(claimed, messages=model_turn('one', 'done')))
        failed = finish_of(following, 'failed', after=2, failure=DEAD_LETTER)
        await backend.queue.finish(following, failed)
        await retry(backend, 't', 'u')
        assert await history_texts(backend, 'u') == ['two', 'three']
        claimed = await claim_task(backend, 'u')
        following = await finish_and_continue(backend, claimed, finish_of(claimed, messages=model_turn('two', 'done')))
        assert json.loads(following.message)['parts'] == [{'text': 'three'}]
        assert await conversation_texts(backend, 'c') == ['one', 'done', 'two', 'done']

    async def test_only_first_retry_continues_from_checkpoint(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't', 'the first', lease=EXPIRED)
        done = Checkpoint(run='t.1', messages=model_turn('hello', 'step 1'), usage=RunUsage(requests=1))
        await backend.queue.emit(claimed, [], checkpoint=done)
        await exhaust_attempts(backend, 't', at=START + 1)
        await retry(backend, 't', 'u')
        checkpoint = (await claim_task(backend, 'u')).checkpoint
        assert checkpoint is not None
        assert (checkpoint.run, model_texts(checkpoint.messages)) == ('t.1', ['hello', 'step 1'])
        assert checkpoint.usage == RunUsage(requests=1)
        await retry(backend, 't', 'v', again=True)
        await backend.queue.cancel('u', OWNER, at=START, force=True)
        assert (await claim_task(backend, 'v')).checkpoint is None

    async def test_end_leaves_retry_with_checkpoint_to_claim(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't', 'the first', lease=EXPIRED)
        done = Checkpoint(run='t.1', messages=model_turn('hello', 'step 1'), usage=RunUsage(requests=1))
        await backend.queue.emit(claimed, [], checkpoint=done)
        await exhaust_attempts(backend, 't', at=START + 1)
        await submit(backend, message(new='ends'))
        ending = await claim_task(backend, 'ends')
        await retry(backend, 't', 'u')
        slot = Slot('holder', LEASE)
        assert await backend.queue.finish(ending, finish_of(ending, artifacts=[], slot=slot)) is None
        assert (await claim_task(backend, 'u')).checkpoint is not None

    async def test_retry_is_charged_only_for_its_own_usage(self, backend: Backend) -> None:
        async def spent() -> list[int]:
            return [usage.requests for usage in await backend.quotas.spent(OWNER, 1000, at=START)]

        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't', 'the first', lease=EXPIRED)
        done = Checkpoint(run='t.1', messages=model_turn('hello', 'step 1'), usage=RunUsage(requests=2))
        await backend.queue.emit(claimed, [], checkpoint=done)
        charge = Charge(OWNER, 1000, START + 10**9, requests=2, tokens=0, cost=0)
        await exhaust_attempts(backend, 't', at=START + 1, charges=[charge])
        await retry(backend, 't', 'u')
        retried = await claim_task(backend, 'u')
        await backend.queue.finish(retried, finish_of(retried, charges=[charge._replace(requests=3)]))
        assert await spent() == [3]
        await retry(backend, 't', 'v', again=True)  # from the beginning
        retried = await claim_task(backend, 'v')
        await backend.queue.finish(retried, finish_of(retried, charges=[charge._replace(requests=3)]))
        assert await spent() == [6]

    @pytest.mark.parametrize('back', ['before the retry', 'during the retry', 'after the retry'])
    async def test_checkpoint_usage_is_charged_once_despite_retry(self, backend: Backend, back: str) -> None:
        async def charge(requests: int) -> None:
            await backend.quotas.settle('t', lost.run, [of(requests)])

        def of(requests: int) -> Charge:
            return Charge(OWNER, 1000, START + 10**9, requests=requests, tokens=10 * requests, cost=0)

        await submit(backend, message(new='t'))
        lost = await claim_task(backend, 't', 'the lost holder', lease=EXPIRED)
        usage = RunUsage(requests=2, input_tokens=20)
        done = Checkpoint(run='t.1', messages=model_turn('hello', 'step 1'), usage=usage)
        await backend.queue.emit(lost, [], checkpoint=done)
        await exhaust_attempts(backend, 't', at=START + 1)
        if back == 'before the retry':
            await charge(5)
        await retry(backend, 't', 'u')
        retried = await claim_task(backend, 'u')
        if back == 'during the retry':
            await charge(5)
        await backend.queue.finish(retried, finish_of(retried, charges=[of(3)]))
        await charge(5)
        [spent] = await backend.quotas.spent(OWNER, 1000, at=START)
        assert spent[1:] == (6, 60, 0)  # two before the checkpoint, three after it, and one by the retry

    async def test_retry_of_answered_task_continues_with_answer(self, backend: Backend) -> None:
        await submit(backend, message('before', new='before', context='c'))
        await claim_and_finish(backend, 'before', messages=model_turn('before', '0'))
        await submit(backend, message('ask', new='t', context='c'))
        await submit(backend, message('later', to='t'))
        await claim_and_finish(
            backend,
            't',
            'input-required',
            messages=model_turn('ask', 'which?'),
            usage=RunUsage(requests=1),
            pending=b'which',
        )
        pause = await backend.reader.pause('t', OWNER)
        assert pause is not None
        answer = Answer(pause=pause, pending=b'which: this')
        await submit(backend, replace(message('this', to='t'), answers_calls=True, answer=answer))
        claimed = await claim_task(backend, 't', 'the first', lease=EXPIRED)
        done = Checkpoint(run='t.2', messages=model_turn('done', 'next'), usage=RunUsage(requests=2))
        await backend.queue.emit(claimed, [], checkpoint=done)
        await exhaust_attempts(backend, 't', at=START + 1)
        await retry(backend, 't', 'u')
        assert await history_texts(backend, 'u') == ['ask', 'later', 'this']
        retried = await claim_task(backend, 'u')
        assert (text_of_body(retried.message), retried.pending, retried.attempt) == ('this', b'which: this', 1)
        assert model_texts(await backend.history(retried)) == ['before', '0', 'ask', 'which?']
        assert retried.checkpoint is not None
        assert (retried.checkpoint.run, model_texts(retried.checkpoint.messages)) == ('t.2', ['done', 'next'])
        end = finish_of(
            retried, messages=[*model_turn('done', 'next'), *model_turn('more', 'end')], usage=RunUsage(requests=3)
        )
        following = await finish_and_continue(backend, retried, end)
        assert (text_of_body(following.message), following.own_messages, following.pending) == ('later', None, None)
        assert await conversation_texts(backend, 'c') == ['before', '0', 'ask', 'which?', 'done', 'next', 'more', 'end']
        record = await record_of(backend.conversations(OWNER), 'c')
        assert record.usage.requests == 4

    async def test_second_retry_of_answered_task_starts_over(self, backend: Backend) -> None:
        await submit(backend, message('ask', new='t', context='c'))
        await claim_and_finish(backend, 't', 'input-required', messages=model_turn('ask', 'which?'))
        await submit(backend, message('this', to='t'))
        await exhaust_attempts(backend, 't')
        await retry(backend, 't', 'u')
        await retry(backend, 't', 'v', again=True)
        assert await history_texts(backend, 'v') == ['ask']
        await backend.queue.cancel('u', OWNER, at=START, force=True)
        claimed = await claim_task(backend, 'v')
        assert (text_of_body(claimed.message), claimed.own_messages) == ('ask', None)

    async def test_retry_of_answered_task_survives_deleted_conversation(self, backend: Backend) -> None:
        await submit(backend, message('before', new='before', context='c'))
        await claim_and_finish(backend, 'before', messages=model_turn('before', '0'))
        await submit(backend, message('ask', new='t', context='c'))
        await claim_and_finish(backend, 't', 'input-required', messages=model_turn('ask', 'which?'))
        await submit(backend, message('this', to='t'))
        await exhaust_attempts(backend, 't')
        await backend.conversations(OWNER).delete('c')
        await retry(backend, 't', 'u')
        claimed = await claim_task(backend, 'u')
        assert model_texts(await backend.history(claimed)) == ['ask', 'which?']

    async def test_retry_hints_workers_of_new_task(self, backend: Backend) -> None:
        await make_dead_letter(backend, 't')
        hints: asyncio.Queue[str | None] = asyncio.Queue()
        stop = backend.listen(hints.put_nowait, lambda _: None)
        await retry(backend, 't', 'u')
        async with asyncio.timeout(WAIT_LIMIT):
            assert await hints.get() == 'u'
        stop()

    async def test_concurrent_retries_of_dead_letter_create_single_task(self, backend: Backend) -> None:
        await make_dead_letter(backend, 't')
        outcomes = await asyncio.gather(*(retry(backend, 't', new) for new in ('u', 'v')), return_exceptions=True)
        [refused] = [outcome for outcome in outcomes if isinstance(outcome, UnsupportedOperationError)]
        [made] = [task for task in ('u', 'v') if await backend.reader.load(task, OWNER) is not None]
        assert refused.message == f'The task has already been retried, as the task {made}.'

    async def test_all_failed_tasks_are_listed_on_demand(self, backend: Backend) -> None:
        for n, state in enumerate(('failed', 'completed', 'rejected', 'failed')):
            await submit(backend, message(new=f't{n}', owner=OWNER if n else '/bob'))
            await claim_and_finish(
                backend, f't{n}', state, at=START + 10 - n, failure='internal' if state == 'failed' else None
            )
        await make_dead_letter(backend, 'dead', at=START + 3)
        all_failed = await backend.housekeeping.dead_letters(failed=True)
        assert [(letter.task_id, letter.failure, letter.attempts) for letter in all_failed] == [
            ('dead', 'attempts', 2),
            ('t3', 'internal', 1),
            ('t0', 'internal', 1),
        ]
        after = (all_failed[0].at, all_failed[0].task_id)
        page = await backend.housekeeping.dead_letters('/bob', failed=True, after=after)
        assert [letter.task_id for letter in page] == ['t0']

    async def test_failed_task_is_retried_on_demand_without_checkpoint(self, backend: Backend) -> None:
        await submit(backend, message('before', new='before', context='c'))
        await claim_and_finish(backend, 'before', messages=model_turn('before', '0'))
        await submit(backend, message('one', new='t', context='c'))
        claimed = await claim_task(backend, 't')
        await submit(backend, message('two', to='t'))
        [(taken, *_)] = await backend.reader.unread('t', claimed.inbox)
        done = Checkpoint(run='t.1', messages=model_turn('one', 'step 1'), usage=RunUsage(requests=2), taken=taken)
        await backend.queue.emit(claimed, [], checkpoint=done)
        charge = Charge(OWNER, 1000, START + 10**9, requests=2, tokens=0, cost=0)
        failed = finish_of(claimed, 'failed', taken=taken, failure='internal', charges=[charge])
        assert await backend.queue.finish(claimed, failed) is None
        with pytest.raises(UnsupportedOperationError, match='is not a dead letter'):
            await retry(backend, 't', 'u')
        await retry(backend, 't', 'u', failed=True)
        assert await history_texts(backend, 'u') == ['one', 'two']
        retried = await claim_task(backend, 'u')
        assert (text_of_body(retried.message), retried.checkpoint, retried.attempt) == ('one', None, 1)
        assert json.loads(retried.message)['referenceTaskIds'] == ['t']
        assert model_texts(await backend.history(retried)) == ['before', '0']
        await backend.queue.finish(retried, finish_of(retried, charges=[charge]))
        assert [each.requests for each in await backend.quotas.spent(OWNER, 1000, at=START)] == [4]
        with pytest.raises(UnsupportedOperationError, match='The task has already been retried, as the task u'):
            await retry(backend, 't', 'v', failed=True)
        await retry(backend, 't', 'v', failed=True, again=True)
        assert [letter.retried_as for letter in await backend.housekeeping.dead_letters(failed=True)] == ['v']

    async def test_retry_of_failed_task_repeats_only_last_turn(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t', context='c'))
        await submit(backend, message('two', to='t'))
        first = await claim_task(backend, 't')
        second = await finish_and_continue(backend, first, finish_of(first, messages=model_turn('one', '1')))
        await backend.queue.finish(second, finish_of(second, 'failed', failure='internal'))
        await retry(backend, 't', 'u', failed=True)
        assert await history_texts(backend, 'u') == ['two']
        assert model_texts(await backend.history(await claim_task(backend, 'u'))) == ['one', '1']

    async def test_retry_of_task_failed_after_answer_starts_before_question(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        claimed = await claim_task(backend, 't')
        await submit(backend, message('two', to='t'))
        [(taken, *_)] = await backend.reader.unread('t', claimed.inbox)
        await backend.queue.finish(
            claimed, finish_of(claimed, 'input-required', messages=model_turn('one', '?'), taken=taken)
        )
        await submit(backend, message('this', to='t'))
        await claim_and_finish(backend, 't', 'failed', failure='internal')
        await retry(backend, 't', 'u', failed=True)
        assert await history_texts(backend, 'u') == ['one', 'two']
        claimed = await claim_task(backend, 'u')
        assert (text_of_body(claimed.message), claimed.own_messages) == ('one', None)

    @pytest.mark.parametrize(
        ('state', 'failed'),
        [
            *((state, False) for state in ('completed', 'failed', 'canceled', 'input-required')),
            *((state, True) for state in ('completed', 'canceled', 'rejected')),
        ],
    )
    async def test_retry_refuses_tasks_besides_dead_letters(
        self, backend: Backend, state: TaskState, failed: bool
    ) -> None:
        await submit(backend, message(new='t'))
        await claim_and_finish(backend, 't', state, failure='internal' if state == 'failed' else None)
        with pytest.raises(UnsupportedOperationError, match=f'The task is {state} and is not a dead letter.'):
            await retry(backend, 't', 'u', failed=failed)
        assert await backend.reader.load('u', None) is None

    async def test_retry_of_unknown_task_is_not_found(self, backend: Backend) -> None:
        with pytest.raises(TaskNotFoundError):
            await retry(backend, 'nothing', 'u')

    async def test_repeated_message_of_retried_task_returns_dead_task(self, backend: Backend) -> None:
        await make_dead_letter(backend, 't', message_id='m')
        await retry(backend, 't', 'u')
        accepted = await submit(backend, message(new='v', message_id='m'))
        assert (accepted.header.id, accepted.replayed) == ('t', True)

    async def test_dead_letters_have_retention_of_finished_tasks(self, backend: Backend) -> None:
        end = START + 2
        await submit(backend, message(new='older'))
        await claim_and_finish(backend, 'older', at=end - 1)
        await make_dead_letter(backend, 'dead')
        await submit(backend, message(new='newer'))
        await claim_and_finish(backend, 'newer', at=end + 1)
        keep = Retention(tasks=timedelta(seconds=1), events=timedelta(seconds=1))
        gone: list[list[str]] = []
        for at in (end + 1000, end + 1001, end + 1002):
            await sweep(backend, keep, at=at)
            gone.append([task for task in ('older', 'dead', 'newer') if await backend.reader.load(task, None) is None])
        assert gone == [['older'], ['older', 'dead'], ['older', 'dead', 'newer']]
        assert await backend.housekeeping.dead_letters() == []

    async def test_retry_keeps_request_of_each_message(self, backend: Backend) -> None:
        await submit(backend, replace(message('one', new='t'), request=b'{"n":1}'))
        await submit(backend, replace(message('two', to='t'), request=b'{"n":2}'))
        await submit(backend, message('three', to='t'))
        await exhaust_attempts(backend, 't')
        await retry(backend, 't', 'u')
        first = await claim_task(backend, 'u')
        second = await finish_and_continue(backend, first, finish_of(first))
        third = await finish_and_continue(backend, second, finish_of(second))
        assert [letter.request for letter in (first, second, third)] == [b'{"n":1}', b'{"n":2}', None]
