"""Tests of waiting tasks: the check of answers, and the answer in the next run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import AnswerNeeded, InvalidParamsError
from pydantic_ai_a2a.server.store.ports import Answer, Backend, Claim, Pause, Submission

from .base import PortSuite
from .values import (
    OWNER,
    START,
    claim_and_finish,
    claim_task,
    conversation_texts,
    finish_of,
    history_texts,
    load,
    message,
    model_turn,
    record_of,
    submit,
)

__all__ = ('AnswerSuite',)


async def interrupt_task(backend: Backend, task_id: str = 't', pending: bytes | None = b'calls', **rest: Any) -> Claim:
    """Begin a task and let it wait."""
    await submit(backend, message('ask', new=task_id))
    claimed = await claim_task(backend, task_id)
    question = b'{"messageId":"q","parts":[{"text":"What?"}]}'
    waits = finish_of(claimed, 'input-required', status_message=question, pending=pending, **rest)
    assert await backend.queue.finish(claimed, waits) is None
    return claimed


async def current_pause(backend: Backend, task_id: str = 't') -> Pause:
    """The pause of a task."""
    pause = await backend.reader.pause(task_id, OWNER)
    assert pause is not None
    return pause


async def assert_answer_refused(backend: Backend, submission: Submission) -> None:
    """Have a message refused because it does not answer the current pause of its task."""
    with pytest.raises(AnswerNeeded):
        await submit(backend, submission)


def answer_to(pause: Pause, text: str, rest: bytes | None = None, task_id: str = 't') -> Submission:
    """A message with the answer."""
    pending = None if pause.pending is None else b'%s, %s' % (pause.pending, text.encode())
    answer = Answer(pause=pause, pending=pending, rest=rest)
    return replace(message(text, to=task_id), answers_calls=pending is not None, answer=answer)


class AnswerSuite(PortSuite):
    """Tests of messages to tasks that wait for input."""

    async def test_message_must_answer_pending_calls_of_interrupted_task(self, backend: Backend) -> None:
        await interrupt_task(backend)
        await assert_answer_refused(backend, message('hm', to='t'))
        waiting = await current_pause(backend)
        task = await load(backend, 't', history_length=None)
        assert waiting == Pause(task.header.last_event, 'context of t', b'calls', first=True)
        assert (task.header.state, len(task.history or ())) == ('input-required', 1)
        accepted = await submit(backend, answer_to(waiting, 'yes'))
        assert (accepted.header.state, accepted.header.queued) == ('working', True)
        read = await load(backend, 't', history_length=0)
        assert read.header == accepted.header
        claimed = await claim_task(backend, 't')
        assert not claimed.header.queued
        assert claimed.pending == b'calls, yes'
        assert b'yes' in claimed.message

    async def test_pause_is_readable_only_by_owner_of_interrupted_task(self, backend: Backend) -> None:
        await submit(backend, message('ask', new='t'))
        assert await backend.reader.pause('t', OWNER) is None
        await interrupt_task(backend, 'u', pending=None)
        waiting = await current_pause(backend, 'u')
        assert (waiting.context_id, waiting.pending) == ('context of u', None)
        assert await backend.reader.pause('u', 'somebody else') is None
        assert await backend.reader.pause('unknown', OWNER) is None
        await submit(backend, answer_to(waiting, 'this', task_id='u'))
        assert await backend.reader.pause('u', OWNER) is None

    async def test_pause_has_request_of_interrupted_run(self, backend: Backend) -> None:
        await submit(backend, replace(message('ask', new='t'), request=b'{"n":1}'))
        claimed = await claim_task(backend, 't')
        await submit(backend, replace(message('unread', to='t'), request=b'{"n":2}'))
        await backend.queue.finish(claimed, finish_of(claimed, 'input-required', pending=b'calls'))
        first = await current_pause(backend)
        await submit(
            backend, replace(answer_to(first, 'one', rest=b'{"messageId":"r","parts":[]}'), request=b'{"n":3}')
        )
        second = await current_pause(backend)
        await submit(backend, answer_to(second, 'two'))
        claimed = await claim_task(backend, 't')
        await backend.queue.finish(claimed, finish_of(claimed, 'input-required', pending=b'calls'))
        third = await current_pause(backend)
        assert (first.request, second.request, third.request) == (b'{"n":1}', b'{"n":3}', None)
        assert (first.first, second.first, third.first) == (True, True, False)

    async def test_answer_to_outdated_calls_is_refused(self, backend: Backend) -> None:
        await interrupt_task(backend)
        first = await current_pause(backend)
        half = await submit(backend, answer_to(first, 'one', rest=b'{"messageId":"r","parts":[]}'))
        assert half.header.state == 'input-required'
        await assert_answer_refused(backend, answer_to(first, 'two'))
        second = await current_pause(backend)
        assert (second.pending, second.number > first.number) == (b'calls, one', True)
        replayed = await submit(backend, message('one', to='t'))
        assert (replayed.replayed, replayed.after) == (True, half.after)
        await backend.events.wait('t', half.after)
        task = await load(backend, 't', history_length=0)
        assert (task.header.status_message, task.header.last_event) == (b'{"messageId":"r","parts":[]}', second.number)

    async def test_answer_to_earlier_question_is_refused(self, backend: Backend) -> None:
        await interrupt_task(backend, pending=None)
        first = await current_pause(backend)
        await submit(backend, answer_to(first, 'one'))
        claimed = await claim_task(backend, 't')
        await backend.queue.finish(claimed, finish_of(claimed, 'input-required'))
        await assert_answer_refused(backend, answer_to(first, 'two'))
        await submit(backend, answer_to(await current_pause(backend), 'three'))
        assert await history_texts(backend, 't') == ['ask', 'What?', 'one', 'three']

    async def test_answers_to_calls_are_refused_without_pending_calls(self, backend: Backend) -> None:
        await interrupt_task(backend, pending=None)
        await submit(backend, message('other', new='u'))
        for task_id in 'tu':
            with pytest.raises(InvalidParamsError):
                await submit(backend, replace(message('yes', to=task_id), answers_calls=True))

    async def test_interrupted_turn_is_stored_whole_with_total_usage(self, backend: Backend) -> None:
        await interrupt_task(backend, messages=model_turn('ask', 'What?'), usage=RunUsage(requests=1))
        waiting = await current_pause(backend)
        await submit(backend, answer_to(waiting, 'yes'))
        await claim_and_finish(backend, 't', messages=model_turn('yes', 'Done.'), usage=RunUsage(requests=2))
        assert await conversation_texts(backend, 'context of t') == ['ask', 'What?', 'yes', 'Done.']
        record = await record_of(backend.conversations(OWNER), 'context of t')
        assert record.usage == RunUsage(requests=3)

    async def test_usage_of_canceled_interrupted_task_is_kept(self, backend: Backend) -> None:
        await interrupt_task(backend, messages=model_turn('ask', 'What?'), usage=RunUsage(requests=1))
        await backend.queue.cancel('t', OWNER, at=START)
        record = await record_of(backend.conversations(OWNER), 'context of t')
        assert record.usage == RunUsage(requests=1)

    async def test_answer_is_accepted_despite_unread_message_limit(self, backend: Backend) -> None:
        await interrupt_task(backend)
        waiting = await current_pause(backend)
        await submit(backend, answer_to(waiting, 'yes'))
        claimed = await claim_task(backend, 't')
        for text in ('one', 'two'):
            await submit(backend, replace(message(text, to='t'), unread_limit=1))
        assert await backend.queue.finish(claimed, finish_of(claimed, 'input-required', pending=b'calls')) is None
        accepted = await submit(backend, replace(answer_to(await current_pause(backend), 'again'), unread_limit=1))
        assert accepted.header.queued

    async def test_late_answer_is_not_stored_as_plain_message(self, backend: Backend) -> None:
        await interrupt_task(backend)
        waiting = await current_pause(backend)
        await submit(backend, answer_to(waiting, 'yes'))
        await assert_answer_refused(backend, replace(answer_to(waiting, 'late'), answers_calls=False))
        assert await history_texts(backend, 't') == ['ask', 'What?', 'yes']
