"""Tests of waiting tasks: the check of answers, and the answer in the next run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import AnswerNeeded, InvalidParamsError
from pydantic_ai_a2a.server.store.ports import Answer, Backend, Claim, Pause, Submission

from .base import PortSuite
from .values import AT, OWNER, claim_one, conversation, ending, history, load, message, record_of, run, submit, turn

__all__ = ('AnswerSuite',)


async def pause(backend: Backend, task_id: str = 't', pending: bytes | None = b'calls', **rest: Any) -> Claim:
    """Begin a task and let it wait."""
    await submit(backend, message('ask', new=task_id))
    claimed = await claim_one(backend, task_id)
    question = b'{"messageId":"q","parts":[{"text":"What?"}]}'
    waits = ending(claimed, 'input-required', status_message=question, pending=pending, **rest)
    assert await backend.queue.finish(claimed, waits) is None
    return claimed


async def asked(backend: Backend, task_id: str = 't') -> Pause:
    """The pause of a task."""
    pause = await backend.reader.pause(task_id, OWNER)
    assert pause is not None
    return pause


async def refuse(backend: Backend, submission: Submission) -> None:
    """Have a message refused because it does not answer the current pause of its task."""
    with pytest.raises(AnswerNeeded):
        await submit(backend, submission)


def answering(pause: Pause, text: str, rest: bytes | None = None, task_id: str = 't') -> Submission:
    """A message with the answer."""
    pending = None if pause.pending is None else b'%s, %s' % (pause.pending, text.encode())
    answer = Answer(pause=pause, pending=pending, rest=rest)
    return replace(message(text, to=task_id), answers_calls=pending is not None, answer=answer)


class AnswerSuite(PortSuite):
    """Tests of messages to tasks that wait for input."""

    async def test_a_message_to_a_task_that_waits_with_something_has_to_answer_it(self, backend: Backend) -> None:
        await pause(backend)
        await refuse(backend, message('hm', to='t'))
        waiting = await asked(backend)
        task = await load(backend, 't', history_length=None)
        assert waiting == Pause(task.header.last_event, 'context of t', b'calls', first=True)
        assert (task.header.state, len(task.history or ())) == ('input-required', 1)
        accepted = await submit(backend, answering(waiting, 'yes'))
        assert (accepted.header.state, accepted.header.queued) == ('working', True)
        read = await load(backend, 't', history_length=0)
        assert read.header == accepted.header
        claimed = await claim_one(backend, 't')
        assert not claimed.header.queued
        assert claimed.pending == b'calls, yes'
        assert b'yes' in claimed.message

    async def test_a_task_pauses_while_it_waits_for_its_owner(self, backend: Backend) -> None:
        await submit(backend, message('ask', new='t'))
        assert await backend.reader.pause('t', OWNER) is None
        await pause(backend, 'u', pending=None)
        waiting = await asked(backend, 'u')
        assert (waiting.context_id, waiting.pending) == ('context of u', None)
        assert await backend.reader.pause('u', 'somebody else') is None
        assert await backend.reader.pause('unknown', OWNER) is None
        await submit(backend, answering(waiting, 'this', task_id='u'))
        assert await backend.reader.pause('u', OWNER) is None

    async def test_a_pause_has_the_request_of_the_run_that_waits(self, backend: Backend) -> None:
        await submit(backend, replace(message('ask', new='t'), request=b'{"n":1}'))
        claimed = await claim_one(backend, 't')
        await submit(backend, replace(message('unread', to='t'), request=b'{"n":2}'))
        await backend.queue.finish(claimed, ending(claimed, 'input-required', pending=b'calls'))
        first = await asked(backend)
        await submit(
            backend, replace(answering(first, 'one', rest=b'{"messageId":"r","parts":[]}'), request=b'{"n":3}')
        )
        second = await asked(backend)
        await submit(backend, answering(second, 'two'))
        claimed = await claim_one(backend, 't')
        await backend.queue.finish(claimed, ending(claimed, 'input-required', pending=b'calls'))
        third = await asked(backend)
        assert (first.request, second.request, third.request) == (b'{"n":1}', b'{"n":3}', None)
        assert (first.first, second.first, third.first) == (True, True, False)

    async def test_an_answer_to_what_a_task_no_longer_waits_with_is_not_taken(self, backend: Backend) -> None:
        await pause(backend)
        first = await asked(backend)
        half = await submit(backend, answering(first, 'one', rest=b'{"messageId":"r","parts":[]}'))
        assert half.header.state == 'input-required'
        await refuse(backend, answering(first, 'two'))
        second = await asked(backend)
        assert (second.pending, second.number > first.number) == (b'calls, one', True)
        replayed = await submit(backend, message('one', to='t'))
        assert (replayed.replayed, replayed.after) == (True, half.after)
        await backend.events.wait('t', half.after)
        task = await load(backend, 't', history_length=0)
        assert (task.header.status_message, task.header.last_event) == (b'{"messageId":"r","parts":[]}', second.number)

    async def test_an_answer_to_a_question_without_calls_does_not_answer_the_next(self, backend: Backend) -> None:
        await pause(backend, pending=None)
        first = await asked(backend)
        await submit(backend, answering(first, 'one'))
        claimed = await claim_one(backend, 't')
        await backend.queue.finish(claimed, ending(claimed, 'input-required'))
        await refuse(backend, answering(first, 'two'))
        await submit(backend, answering(await asked(backend), 'three'))
        assert await history(backend, 't') == ['ask', 'What?', 'one', 'three']

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
        waiting = await asked(backend)
        await submit(backend, answering(waiting, 'yes'))
        await run(backend, 't', messages=turn('yes', 'Done.'), usage=RunUsage(requests=2))
        assert await conversation(backend, 'context of t') == ['ask', 'What?', 'yes', 'Done.']
        record = await record_of(backend.conversations(OWNER), 'context of t')
        assert record.usage == RunUsage(requests=3)

    async def test_a_task_that_is_canceled_while_it_waits_keeps_what_it_has_used(self, backend: Backend) -> None:
        await pause(backend, messages=turn('ask', 'What?'), usage=RunUsage(requests=1))
        await backend.queue.cancel('t', OWNER, at=AT)
        record = await record_of(backend.conversations(OWNER), 'context of t')
        assert record.usage == RunUsage(requests=1)

    async def test_an_answer_is_taken_however_many_messages_wait_for_it(self, backend: Backend) -> None:
        await pause(backend)
        waiting = await asked(backend)
        await submit(backend, answering(waiting, 'yes'))
        claimed = await claim_one(backend, 't')
        for text in ('one', 'two'):
            await submit(backend, replace(message(text, to='t'), unread_limit=1))
        assert await backend.queue.finish(claimed, ending(claimed, 'input-required', pending=b'calls')) is None
        accepted = await submit(backend, replace(answering(await asked(backend), 'again'), unread_limit=1))
        assert accepted.header.queued

    async def test_an_answer_that_another_one_came_before_is_not_taken_for_one(self, backend: Backend) -> None:
        await pause(backend)
        waiting = await asked(backend)
        await submit(backend, answering(waiting, 'yes'))
        await refuse(backend, replace(answering(waiting, 'late'), answers_calls=False))
        assert await history(backend, 't') == ['ask', 'What?', 'yes']
