"""Tests of waiting tasks: the check of answers, and the answer in the next run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.usage import RunUsage

from ..errors import AnswerNeeded, InvalidParamsError
from ..ports import Answer, Backend, Claim, Submission
from .base import PortSuite
from .values import AT, OWNER, claim_one, conversation, ending, history, message, run, state_of, submit, turn

__all__ = ('AnswerSuite',)


async def pause(backend: Backend, task_id: str = 't', pending: bytes | None = b'calls', **rest: Any) -> Claim:
    """Begin a task and let it wait."""
    await submit(backend, message('ask', new=task_id))
    claimed = await claim_one(backend, task_id)
    question = b'{"messageId":"q","parts":[{"text":"What?"}]}'
    waits = ending(claimed, 'input-required', status_message=question, pending=pending, **rest)
    assert await backend.queue.finish(claimed, waits) is None
    return claimed


async def needed(backend: Backend, submission: Submission) -> AnswerNeeded:
    """The calls that a message has to answer."""
    with pytest.raises(AnswerNeeded) as error:
        await submit(backend, submission)
    return error.value


def answering(asked: AnswerNeeded, text: str, rest: bytes | None = None) -> Submission:
    """A message with the answer."""
    answer = Answer(pause=asked.pause, pending=f'calls, {text}'.encode(), rest=rest)
    return replace(message(text, to=asked.task_id), answers_calls=True, answer=answer)


class AnswerSuite(PortSuite):
    """Tests of messages to tasks that wait for input."""

    async def test_a_message_to_a_task_that_waits_with_something_has_to_answer_it(self, backend: Backend) -> None:
        await pause(backend)
        asked = await needed(backend, message('hm', to='t'))
        assert (asked.task_id, asked.context_id, asked.pending) == ('t', 'context of t', b'calls')
        assert (await state_of(backend, 't'), len(await history(backend, 't'))) == ('input-required', 1)
        accepted = await submit(backend, answering(asked, 'yes'))
        assert (accepted.header.state, accepted.header.queued) == ('working', True)
        claimed = await claim_one(backend, 't')
        assert not claimed.header.queued
        assert claimed.pending == b'calls, yes'
        assert b'yes' in claimed.message

    async def test_an_answer_to_what_a_task_no_longer_waits_with_is_not_taken(self, backend: Backend) -> None:
        await pause(backend)
        asked = await needed(backend, message('hm', to='t'))
        half = await submit(backend, answering(asked, 'one', rest=b'{"messageId":"r","parts":[]}'))
        assert half.header.state == 'input-required'
        again = await needed(backend, answering(asked, 'two'))
        assert (again.pending, again.pause > asked.pause) == (b'calls, one', True)
        replayed = await submit(backend, message('one', to='t'))
        assert (replayed.replayed, replayed.after) == (True, half.after)
        await backend.events.wait('t', half.after)
        task = await backend.reader.load('t', OWNER, history_length=0)
        assert task is not None
        assert (task.header.status_message, task.header.last_event) == (b'{"messageId":"r","parts":[]}', again.pause)

    async def test_answers_to_calls_are_taken_only_where_some_wait(self, backend: Backend) -> None:
        await pause(backend, pending=None)
        await submit(backend, message('other', new='u'))
        for task_id in 'tu':
            with pytest.raises(InvalidParamsError):
                await submit(backend, replace(message('yes', to=task_id), answers_calls=True))

    async def test_a_turn_that_was_interrupted_is_stored_whole_with_all_that_it_has_used(
        self, backend: Backend
    ) -> None:
        await pause(backend, messages=turn('ask', 'What?'), usage=RunUsage(requests=1))
        asked = await needed(backend, message('hm', to='t'))
        await submit(backend, answering(asked, 'yes'))
        await run(backend, 't', messages=turn('yes', 'Done.'), usage=RunUsage(requests=2))
        assert await conversation(backend, 'context of t') == ['ask', 'What?', 'yes', 'Done.']
        record = await backend.conversations(OWNER).read_record('context of t')
        assert record is not None
        assert record.usage == RunUsage(requests=3)

    async def test_a_task_that_is_canceled_while_it_waits_keeps_what_it_has_used(self, backend: Backend) -> None:
        await pause(backend, messages=turn('ask', 'What?'), usage=RunUsage(requests=1))
        await backend.queue.cancel('t', OWNER, at=AT)
        record = await backend.conversations(OWNER).read_record('context of t')
        assert record is not None
        assert record.usage == RunUsage(requests=1)

    async def test_an_answer_is_taken_however_many_messages_wait_for_it(self, backend: Backend) -> None:
        await pause(backend)
        asked = await needed(backend, message('hm', to='t'))
        await submit(backend, answering(asked, 'yes'))
        claimed = await claim_one(backend, 't')
        for text in ('one', 'two'):
            await submit(backend, replace(message(text, to='t'), unread_limit=1))
        assert await backend.queue.finish(claimed, ending(claimed, 'input-required', pending=b'calls')) is None
        asked = await needed(backend, replace(message('hm', to='t'), unread_limit=1))
        accepted = await submit(backend, replace(answering(asked, 'again'), unread_limit=1))
        assert accepted.header.queued

    async def test_an_answer_that_another_one_came_before_is_not_taken_for_one(self, backend: Backend) -> None:
        await pause(backend)
        asked = await needed(backend, message('hm', to='t'))
        await submit(backend, answering(asked, 'yes'))
        late = await needed(backend, replace(answering(asked, 'late'), answers_calls=False))
        assert (late.task_id, late.pending) == ('t', None)
        assert await history(backend, 't') == ['ask', 'What?', 'yes']
