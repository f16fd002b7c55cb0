"""Tests of the writes of a run: its events, and its end in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import LeaseLost
from pydantic_ai_a2a.server.store.ports import Backend, Checkpoint, Status
from pydantic_ai_a2a.types import StoredTask, TaskEvent, TaskHeader
from pydantic_ai_a2a.wire.protocol import stored

from .base import PortSuite
from .values import (
    EXPIRED,
    OWNER,
    START,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    conversation_texts,
    events,
    finish_and_continue,
    finish_of,
    history_texts,
    load,
    message,
    model_texts,
    model_turn,
    record_of,
    state_of,
    status_event,
    submit,
    text_of_body,
)

__all__ = ('RunSuite',)


class WriteFailed(Exception):
    """Comes in the middle of a write."""


class FailingSequence(Sequence[Any]):
    """Values that cannot be read to their end."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values) + 1

    def __getitem__(self, index: Any) -> Any:
        if index == len(self._values):
            raise WriteFailed
        return self._values[index]


class RunSuite(PortSuite):
    """Tests of the writes of a run."""

    async def test_finished_run_stores_state_events_artifacts_and_conversation(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        claimed = await claim_task(backend, 't')
        finish = finish_of(
            claimed,
            after=2,
            at=START + 5,
            events=[artifact_chunk(2, 'all of it', append=False)],
            history=[('m', b'{"answer":1}')],
            artifacts=[('a', b'{"artifactId":"a"}'), ('b', b'{"artifactId":"b"}')],
            messages=model_turn('hi', 'all of it'),
            usage=RunUsage(requests=1, input_tokens=10),
            metadata=b'{"cost":1}',
        )
        assert await backend.queue.finish(claimed, finish) is None
        task = await backend.reader.load('t', OWNER, history_length=1)
        assert task == StoredTask(
            header=TaskHeader(
                id='t',
                context_id='context of t',
                owner=OWNER,
                state='completed',
                status_at=START + 5,
                status_message=None,
                metadata=b'{"cost":1}',
                last_event=3,
            ),
            history=[b'{"answer":1}'],
            artifacts=[b'{"artifactId":"a"}', b'{"artifactId":"b"}'],
        )
        assert await events(backend, 't', 1) == [*finish.events, finish.final]
        record = await backend.conversations(OWNER).read_record('context of t')
        assert record is not None
        assert record.usage == RunUsage(requests=1, input_tokens=10)
        assert await conversation_texts(backend, 'context of t') == ['hi', 'all of it']

    async def test_next_task_of_context_continues_its_conversation(self, backend: Backend) -> None:
        await submit(backend, message('one', new='a', context='c'))
        await submit(backend, message('two', new='b', context='c'))
        await claim_and_finish(backend, 'a', messages=model_turn('one', '1'), usage=RunUsage(requests=1))
        claimed = await claim_task(backend, 'b')
        entries = await backend.conversations(OWNER).read_history(claimed.head)
        assert model_texts([entry.message for entry in entries]) == ['one', '1']
        await backend.queue.finish(
            claimed, finish_of(claimed, messages=model_turn('two', '2'), usage=RunUsage(requests=2))
        )
        assert await conversation_texts(backend, 'c') == ['one', '1', 'two', '2']
        record = await record_of(backend.conversations(OWNER), 'c')
        assert record.usage == RunUsage(requests=3)

    async def test_emitted_events_update_task_and_reach_subscribers(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        subscription = backend.events.subscribe('t', lambda: None)
        subscription.start(1)
        await backend.queue.emit(claimed, [artifact_chunk(2, 'Hel', append=False), artifact_chunk(3, 'lo')])
        task = await load(backend, 't')
        assert task.header.last_event == 3
        assert [text_of_body(body) for body in task.artifacts or ()] == ['Hello']
        assert [event.n for event in await subscription.next()] == [2, 3]
        subscription.close()

    async def test_new_status_moves_previous_status_message_to_history(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        claimed = await claim_task(backend, 't')
        for n, note in enumerate((b'{"parts":[{"text":"first"}]}', b'{"parts":[{"text":"second"}]}'), 2):
            await backend.queue.emit(claimed, [status_event(n, 'working')], Status('working', START + n, note))
        task = await load(backend, 't')
        assert task.header.status_message == b'{"parts":[{"text":"second"}]}'
        assert (task.header.state, task.header.status_at) == ('working', START + 3)
        assert await history_texts(backend, 't') == ['hi', 'first']
        await backend.queue.finish(claimed, finish_of(claimed, after=3, history=[('', b'{"parts":[{"text":"done"}]}')]))
        assert await history_texts(backend, 't') == ['hi', 'first', 'second', 'done']

    async def test_live_note_goes_only_to_history(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        claimed = await claim_task(backend, 't')
        told, body = b'{"parts":[{"text":"told"}]}', b'{"parts":[{"text":"note"}]}'
        await backend.queue.emit(claimed, [status_event(2, 'working')], Status('working', START + 2, told))
        note = TaskEvent(3, 'working', stored.note('t', 'context of t', stored.status('working', START + 3, body)))
        await backend.queue.emit(claimed, [note], Status('working', START + 3, body))
        task = await load(backend, 't')
        assert (task.header.status_message, task.header.status_at) == (told, START + 2)
        assert await history_texts(backend, 't') == ['hi', 'note']
        assert await events(backend, 't', after=2) == [note]
        await backend.queue.finish(claimed, finish_of(claimed, after=3))
        assert await history_texts(backend, 't') == ['hi', 'note', 'told']

    @pytest.mark.parametrize('holder', ['another', 'same'])
    async def test_stale_claim_cannot_write(self, backend: Backend, holder: str) -> None:
        await submit(backend, message(new='t'))
        stale = await claim_task(backend, 't', 'same', lease=EXPIRED)
        if holder == 'same':  # nobody takes over an expired task of its own
            await backend.queue.release(stale)
        [valid] = await claim_all(backend, holder)
        step = Checkpoint(run='t.1', messages=model_turn('hi', 'late'), usage=RunUsage(), first=0)
        before = await backend.reader.load('t', OWNER)
        with pytest.raises(LeaseLost):
            await backend.queue.emit(stale, [artifact_chunk(2, 'late')], Status('working', START, b'{}'))
        with pytest.raises(LeaseLost):
            await backend.queue.emit(stale, [], None, step)
        with pytest.raises(LeaseLost):
            await backend.queue.finish(
                stale, finish_of(stale, artifacts=[('a', b'{}')], messages=model_turn('hi', 'late'))
            )
        await backend.queue.release(stale)
        assert await backend.reader.load('t', OWNER) == before
        assert await conversation_texts(backend, 'context of t') == []
        await backend.queue.finish(valid, finish_of(valid))

    async def test_run_cannot_end_twice(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_and_finish(backend, 't', messages=model_turn('hi', 'once'))
        for state in ('completed', 'failed'):
            with pytest.raises(LeaseLost):
                await backend.queue.finish(
                    claimed, finish_of(claimed, state, after=2, messages=model_turn('hi', 'twice'))
                )
        with pytest.raises(LeaseLost):
            await backend.queue.emit(claimed, [artifact_chunk(3, 'late')])
        assert [event.n for event in await events(backend, 't')] == [1, 2]
        assert await conversation_texts(backend, 'context of t') == ['hi', 'once']

    async def test_repeated_write_of_run_is_stored_once(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t', context='c'))
        first = await claim_task(backend, 't')
        for _ in range(2):
            await backend.queue.emit(
                first, [artifact_chunk(2, '1', append=False), artifact_chunk(3, '2')], Status('working', START, b'{}')
            )
        await submit(backend, message('two', to='t'))
        ended = finish_of(first, after=3, messages=model_turn('one', '1'))
        second, again = [await backend.queue.finish(first, ended) for _ in range(2)]
        assert second is not None
        assert again == second
        ended = finish_of(second, messages=model_turn('two', '2'))
        assert [await backend.queue.finish(second, ended) for _ in range(2)] == [None, None]
        assert [event.n for event in await events(backend, 't')] == [1, 2, 3, 4]
        assert await conversation_texts(backend, 'c') == ['one', '1', 'two', '2']

    async def test_only_identical_end_of_run_counts_as_repetition(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t', context='c'))
        first = await claim_task(backend, 't')
        await submit(backend, message('two', to='t'))
        completed = finish_of(
            first, after=2, events=[artifact_chunk(2, '1', append=False)], messages=model_turn('one', '1')
        )
        second = await backend.queue.finish(first, completed)
        others = (
            finish_of(first, 'failed', status_message=b'{"parts":[{"text":"no"}]}'),
            finish_of(first, after=2, events=[artifact_chunk(2, '2', append=False)], messages=model_turn('one', '2')),
            finish_of(first, 'input-required'),
            finish_of(first, 'canceled'),
        )
        for other in others:
            with pytest.raises(LeaseLost):
                await backend.queue.finish(first, other)
        assert await backend.queue.finish(first, completed) == second
        assert [event.n for event in await events(backend, 't')] == [1, 2]
        assert await conversation_texts(backend, 'c') == ['one', '1']

    async def test_completed_run_continues_with_message_received_meanwhile(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t', context='c'))
        first = await claim_task(backend, 't')
        await submit(backend, message('two', to='t'))
        finish = finish_of(
            first,
            after=2,
            events=[artifact_chunk(2, '1', append=False)],
            history=[('', b'{"parts":[{"text":"1"}]}')],
            messages=model_turn('one', '1'),
        )
        second = await finish_and_continue(backend, first, finish)
        assert (second.holder, second.fence, second.attempt, second.run) == (first.holder, first.fence, 1, 2)
        assert text_of_body(second.message) == 'two'
        assert (second.header.state, second.header.last_event) == ('working', 2)  # the first run has no end event
        assert model_texts(
            [entry.message for entry in await backend.conversations(OWNER).read_history(second.head)]
        ) == [
            'one',
            '1',
        ]
        assert await backend.queue.finish(second, finish_of(second, messages=model_turn('two', '2'))) is None
        assert [(event.n, event.state) for event in await events(backend, 't')] == [
            (1, 'working'),
            (2, None),
            (3, 'completed'),
        ]
        assert await history_texts(backend, 't') == ['one', 'two', '1']
        assert await conversation_texts(backend, 'c') == ['one', '1', 'two', '2']

    async def test_each_run_gets_request_of_its_message(self, backend: Backend) -> None:
        await submit(backend, replace(message('one', new='t'), request=b'{"n":1}'))
        await submit(backend, replace(message('two', to='t'), request=b'{"n":2}'))
        await submit(backend, message('three', to='t'))
        first = await claim_task(backend, 't')
        second = await finish_and_continue(backend, first, finish_of(first))
        third = await backend.queue.finish(second, finish_of(second, 'input-required'))
        assert third is None
        await submit(backend, replace(message('answer', to='t'), request=b'{"n":4}'))
        answered = await claim_task(backend, 't')
        third = await finish_and_continue(backend, answered, finish_of(answered))
        assert [task.request for task in (first, second, answered, third)] == [
            b'{"n":1}',
            b'{"n":2}',
            b'{"n":4}',
            None,
        ]

    async def test_messages_before_first_run_are_run_in_order(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        await submit(backend, message('two', to='t'))
        await submit(backend, message('three', to='t'))
        running = await claim_task(backend, 't')
        prompts = [text_of_body(running.message)]
        while following := await backend.queue.finish(running, finish_of(running)):
            running = following
            prompts.append(text_of_body(running.message))
        assert prompts == ['one', 'two', 'three']
        assert await state_of(backend, 't') == 'completed'

    @pytest.mark.parametrize('state', ['failed', 'rejected'])
    async def test_failed_run_leaves_conversation_unchanged(self, backend: Backend, state: Any) -> None:
        await submit(backend, message('one', new='a', context='c'))
        await submit(backend, message('two', new='b', context='c'))
        await claim_and_finish(backend, 'a', messages=model_turn('one', '1'))
        before = await backend.conversations(OWNER).read_record('c')
        await claim_and_finish(
            backend, 'b', state, messages=model_turn('two', 'never'), status_message=b'{"parts":[]}', failure='internal'
        )
        assert await backend.conversations(OWNER).read_record('c') == before
        task = await load(backend, 'b')
        assert (task.header.state, task.header.status_message) == (state, b'{"parts":[]}')

    async def test_canceled_run_keeps_its_messages_in_conversation(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t', context='c'))
        await claim_and_finish(backend, 't', 'canceled', messages=model_turn('one', 'half of'))
        assert await conversation_texts(backend, 'c') == ['one', 'half of']

    async def test_interrupted_task_joins_conversation_at_its_end(self, backend: Backend) -> None:
        await submit(backend, message('zero', new='before', context='c'))
        await claim_and_finish(backend, 'before', messages=model_turn('zero', '0'))
        await submit(backend, message('one', new='a', context='c'))
        await claim_and_finish(backend, 'a', 'input-required', messages=model_turn('one', 'which?'))
        await submit(backend, message('two', new='b', context='c'))
        between = await claim_and_finish(backend, 'b', messages=model_turn('two', '2'))
        store = backend.conversations(OWNER)
        assert model_texts([entry.message for entry in await store.read_history(between.head)]) == ['zero', '0']
        await submit(backend, message('this', to='a'))
        resumed = await claim_task(backend, 'a')
        assert resumed.run == 2
        assert model_texts([entry.message for entry in await store.read_history(resumed.head)]) == ['zero', '0']
        assert model_texts(resumed.own_messages or ()) == ['one', 'which?']
        await backend.queue.finish(resumed, finish_of(resumed, 'auth-required', messages=model_turn('this', 'sign in')))
        await submit(backend, message('signed in', to='a'))
        again = await claim_task(backend, 'a')
        assert model_texts(again.own_messages or ()) == ['one', 'which?', 'this', 'sign in']
        assert again.head == resumed.head
        await backend.queue.finish(again, finish_of(again, messages=model_turn('signed in', 'thanks')))
        assert await conversation_texts(backend, 'c') == [
            *('zero', '0', 'two', '2', 'one', 'which?', 'this', 'sign in', 'signed in', 'thanks')
        ]

    async def test_message_sent_before_interruption_runs_after_answer(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        claimed = await claim_task(backend, 't')
        await submit(backend, message('two', to='t'))
        await backend.queue.finish(claimed, finish_of(claimed, 'input-required'))
        await submit(backend, message('three', to='t'))
        resumed = await claim_task(backend, 't')
        assert text_of_body(resumed.message) == 'three'
        following = await finish_and_continue(backend, resumed, finish_of(resumed))
        assert text_of_body(following.message) == 'two'
        assert following.own_messages is None
        await backend.queue.finish(following, finish_of(following))
        assert await state_of(backend, 't') == 'completed'

    async def test_lost_resumed_run_restarts_with_answer(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t', context='c'))
        await claim_and_finish(backend, 't', 'input-required', messages=model_turn('one', 'which?'))
        await submit(backend, message('this', to='t'))
        await claim_task(backend, 't', 'lost', lease=EXPIRED)
        [again] = await claim_all(backend, 'other')
        assert (text_of_body(again.message), again.run, again.attempt) == ('this', 2, 2)
        assert model_texts(again.own_messages or ()) == ['one', 'which?']

    @pytest.mark.parametrize('state', ['failed', 'canceled', 'input-required'])
    async def test_run_without_result_keeps_streamed_artifacts(self, backend: Backend, state: Any) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        await backend.queue.emit(claimed, [artifact_chunk(2, 'Hel', append=False), artifact_chunk(3, 'lo')])
        await backend.queue.finish(claimed, finish_of(claimed, state, after=3))
        task = await load(backend, 't')
        assert [text_of_body(body) for body in task.artifacts or ()] == ['Hello']

    async def test_task_metadata_stays_until_replaced(self, backend: Backend) -> None:
        seen: list[bytes | None] = []
        await submit(backend, message(new='t'))
        for metadata in (None, b'{"cost":1}', None, b'{"cost":2}'):
            await claim_and_finish(backend, 't', 'input-required', metadata=metadata)
            task = await load(backend, 't')
            seen.append(task.header.metadata)
            await submit(backend, message(f'answer {len(seen)}', to='t'))
        assert seen == [None, b'{"cost":1}', b'{"cost":1}', b'{"cost":2}']

    async def test_next_run_gets_metadata_of_previous_run(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        for n, (metadata, kept) in enumerate([(b'{"cost":1}', b'{"cost":1}'), (None, b'{"cost":1}')]):
            await submit(backend, message(f'message {n}', to='t'))
            following = await finish_and_continue(backend, claimed, finish_of(claimed, metadata=metadata))
            assert following.header.metadata == kept
            claimed = following

    async def test_mutating_values_after_write_does_not_change_store(self, backend: Backend) -> None:
        await submit(backend, message(new='t', context='c'))
        claimed = await claim_task(backend, 't')
        events = [artifact_chunk(2, 'it', append=False)]
        messages, usage = model_turn('hi', 'hello'), RunUsage(requests=1)
        end = finish_of(
            claimed, after=2, events=events, messages=messages, usage=usage, history=[('', b'{"parts":[]}')]
        )
        before = deepcopy(end)
        await backend.queue.finish(claimed, end)
        assert end == before
        messages[0].parts = []
        messages.clear()
        usage.requests = 9
        events.clear()
        assert await conversation_texts(backend, 'c') == ['hi', 'hello']
        record = await record_of(backend.conversations(OWNER), 'c')
        assert record.usage == RunUsage(requests=1)

    async def test_failing_write_is_rolled_back(self, backend: Backend) -> None:
        await submit(backend, message(new='t', context='c'))
        claimed = await claim_task(backend, 't')
        before = await backend.reader.load('t', OWNER)
        broken = FailingSequence(artifact_chunk(2, 'half', append=False))
        with pytest.raises(WriteFailed):
            await backend.queue.emit(claimed, broken, Status('working', START, b'{"parts":[]}'))
        half = finish_of(claimed, messages=model_turn('hi', 'half'))
        for end in (replace(half, events=broken), replace(half, history=FailingSequence(('', b'{"parts":[]}')))):
            with pytest.raises(WriteFailed):
                await backend.queue.finish(claimed, end)
        assert await backend.reader.load('t', OWNER) == before
        assert await conversation_texts(backend, 'c') == []
        await backend.queue.emit(claimed, [artifact_chunk(2, 'whole', append=False)])
        assert await backend.queue.finish(claimed, finish_of(claimed, after=2)) is None
