"""Readers that come, go and come back while a task runs: each gets everything once, in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Limits, Results
from pydantic_ai_a2a.server.store.ports import TaskReader
from pydantic_ai_a2a.server.store.sql.reader_port import SqlReader
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.types import StoredTask

from ...agents import GatedAgent, echo_prompts, user_prompts
from ...app_client import LIMIT, Client, Event, RpcError, Stream, message, rpc, state_of, texts
from ...constants import with_constants
from ...serving import list_tasks, serving, wait_until_ended
from ...sizes import short_or_long
from ..promised_behaviours import covers
from ..refusals import error_of_answer

ROW = 'resubscribe in mid-run'


class DictatedAgent:
    """An agent that says the words the test gives it."""

    def __init__(self) -> None:
        self._words: asyncio.Queue[str | None] = asyncio.Queue()
        self.agent: Agent[object, str] = Agent(FunctionModel(echo_prompts, stream_function=self._stream))

    def say(self, *words: str) -> None:
        for word in words:
            self._words.put_nowait(word)

    def end(self) -> None:
        self._words.put_nowait(None)

    async def _stream(self, messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        while (word := await self._words.get()) is not None:
            yield word


async def next_events(stream: Stream, count: int) -> list[Event]:
    return [await anext(stream) for _ in range(count)]


def text_of_events(events: list[Event]) -> str:
    """The answer as a reader has it who applies a snapshot and the updates after it (§4.2.2)."""
    text = ''.join(texts(events[0].result['task'])) if 'task' in events[0].result else ''
    for event in events:
        if update := event.result.get('artifactUpdate'):
            added = ''.join(part['text'] for part in update['artifact']['parts'])
            text = text + added if update.get('append') else added
    return text


@covers(ROW)
async def test_late_subscriber_gets_snapshot_and_remaining_events() -> None:
    dictation = DictatedAgent()
    async with serving(dictation.agent) as client, client.live.send_streaming() as first:
        task_id = (await anext(first)).result['task']['id']
        dictation.say('one ', 'two ')
        seen = await next_events(first, 3)
        async with client.live.subscribe(task_id) as late:
            snapshot = await anext(late)
            dictation.say('three ')
            dictation.end()
            rest = await late.rest()
        seen += await first.rest()
        done = await client.get_task(task_id)
    assert (snapshot.id, state_of(snapshot.result['task'])) == (3, 'WORKING')
    assert texts(snapshot.result['task']) == ['one two ']
    assert [(event.id, event.result) for event in rest] == [(each.id, each.result) for each in seen if each.id > 3]
    assert text_of_events([snapshot, *rest]) == text_of_events(seen) == 'one two three ' == ''.join(texts(done))
    assert rest[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


@covers(ROW)
async def test_all_subscribers_get_same_events_in_order() -> None:
    dictation = DictatedAgent()
    words = [f'{n} ' for n in range(100)]

    async def read(client: Client, task_id: str) -> list[Event]:
        async with client.live.subscribe(task_id) as stream:
            return await stream.rest()

    at_once = Results(interval=0)
    async with serving(dictation.agent, results=at_once) as client, client.live.send_streaming() as first:
        task_id = (await anext(first)).result['task']['id']
        seen = await next_events(first, 1)
        readers: list[asyncio.Future[list[Event]]] = []
        for n, word in enumerate(words):
            if n % 5 == 0:
                readers.append(asyncio.ensure_future(read(client, task_id)))
            dictation.say(word)
            seen += await next_events(first, 1)
        dictation.end()
        seen += await first.rest()
        read_by_all = await asyncio.gather(*readers)
    assert len(read_by_all) == 20
    for snapshot, *rest in read_by_all:
        assert [(event.id, event.result) for event in rest] == [
            (event.id, event.result) for event in seen if event.id > snapshot.id
        ]
        assert text_of_events([snapshot, *rest]) == ''.join(words)


@covers(ROW)
async def test_last_event_id_resumes_without_gaps_or_repeats() -> None:
    dictation = DictatedAgent()
    async with serving(dictation.agent) as client:
        async with client.live.send_streaming() as first:
            task_id = (await anext(first)).result['task']['id']
            dictation.say('one ', 'two ')
            seen = await next_events(first, 3)
        dictation.say('three ')
        async with client.live.subscribe(task_id, Last_Event_ID=str(seen[1].id)) as again:
            dictation.end()
            seen = seen[:2] + await again.rest()
        async with client.live.subscribe(task_id, Last_Event_ID='0') as whole:
            assert [(event.id, event.result) for event in seen] == [
                (event.id, event.result) for event in await whole.rest()
            ]
    assert [event.id for event in seen] == [*range(1, len(seen) + 1)]
    assert text_of_events(seen) == 'one two three '


@covers(ROW)
@pytest.mark.parametrize('unknown', ['99', 'x'])
async def test_unknown_last_event_id_starts_with_snapshot(unknown: str) -> None:
    dictation = DictatedAgent()
    async with serving(dictation.agent) as client, client.live.send_streaming() as first:
        task_id = (await anext(first)).result['task']['id']
        dictation.say('one ')
        await next_events(first, 2)
        async with client.live.subscribe(task_id, Last_Event_ID=unknown) as stream:
            snapshot = await anext(stream)
            dictation.say('two ')
            dictation.end()
            rest = await stream.rest()
    assert texts(snapshot.result['task']) == ['one ']
    assert [event.id for event in rest] == [*range(snapshot.id + 1, snapshot.id + 1 + len(rest))]
    assert text_of_events([snapshot, *rest]) == 'one two '


class ErasedMeanwhile(SqlReader):
    """Finds a task, and then no more. The log of the store has all events."""

    watch = TaskReader.watch

    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        if artifacts:
            return None
        return await super().load(task_id, owner, history_length=history_length, artifacts=artifacts)


async def test_subscribe_to_task_erased_meanwhile_is_not_found(backend: MemoryBackend) -> None:
    async with serving(Agent('test'), backend=backend) as client:
        task = await client.send()
        backend.reader = ErasedMeanwhile(backend)
        answer = await client.post(rpc('SubscribeToTask', {'id': task['id']}))
    assert error_of_answer(answer).code == -32001


@covers(ROW)
async def test_subscriber_of_queued_task_sees_start_and_end() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        first = await client.send('first', returnImmediately=True)
        await gates.reached('first')
        second = await client.send(message('second', contextId=first['contextId']), returnImmediately=True)
        async with client.live.subscribe(second['id']) as stream:
            assert state_of((await anext(stream)).result['task']) == 'SUBMITTED'
            gates.open('first', 'second')
            states = [
                event.result['statusUpdate']['status']['state']
                for event in await stream.rest()
                if 'statusUpdate' in event.result
            ]
    assert states == ['TASK_STATE_WORKING', 'TASK_STATE_COMPLETED']


@covers(ROW)
async def test_first_subscriber_in_mid_run_gets_whole_answer() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        async with client.live.subscribe(task['id']) as stream:
            assert state_of((await anext(stream)).result['task']) == 'WORKING'
            gates.open('hi')
            events = await stream.rest()
    assert text_of_events(events) == 'hi'


async def test_subscribe_to_unknown_task_is_not_found() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        for headers in ({}, {'Last_Event_ID': '0'}):
            with pytest.raises(RpcError) as refused:
                async with client.live.subscribe('nowhere', **headers):
                    raise AssertionError('a stream was opened')
            assert (refused.value.code, refused.value.reason) == (-32001, 'TASK_NOT_FOUND')


async def test_closed_stream_affects_neither_task_nor_other_streams() -> None:
    dictation = DictatedAgent()
    async with serving(dictation.agent) as client:
        async with client.live.send_streaming() as first:
            task_id = (await anext(first)).result['task']['id']
            dictation.say('one ')
            await next_events(first, 2)
            async with client.live.subscribe(task_id) as leaving:
                await anext(leaving)
            dictation.say('two ')
            await next_events(first, 1)
        dictation.say('three ')
        dictation.end()
        assert texts(await wait_until_ended(client, task_id)) == ['one two three ']


async def test_disconnect_during_blocking_send_does_not_stop_task() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        sending = asyncio.ensure_future(client.send('hi'))
        await gates.reached('hi')
        sending.cancel()
        [task] = await list_tasks(client)
        gates.open('hi')
        assert texts(await wait_until_ended(client, task['id'])) == ['hi']


async def test_stream_spans_all_runs_of_its_task() -> None:
    """One stream stays open over several runs of its task, since none of them ends it."""
    gates = GatedAgent()
    async with serving(gates.agent) as client, client.live.send_streaming('one') as stream:
        task = (await anext(stream)).result['task']
        await gates.reached('one')
        await client.send(message('two', taskId=task['id']), returnImmediately=True)
        gates.open('one', 'two')
        events = await stream.rest()
        done = await client.get_task(task['id'])
    assert [event.id for event in events] == [*range(1, len(events) + 1)]
    assert (text_of_events(events), texts(done)) == ('one + two', ['one', 'one + two'])
    assert prompts_of(done) == ['one', 'two']


def prompts_of(task: dict[str, Any]) -> list[str]:
    return [part['text'] for each in task['history'] if each['role'] == 'ROLE_USER' for part in each['parts']]


# --- readers that stop reading ----------------------------------------------------------------------------------------


STALLS = 'reader that stops reading'
CHUNK = 'x' * 60_000
CHUNKS = short_or_long(60, 200)
"""3.6 MB altogether, or 12."""


def large_text_agent() -> tuple[Agent[object, str], asyncio.Event]:
    """An agent that says all chunks once the event is set, if the prompt is `flood`."""
    go = asyncio.Event()

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        yield 'begin '
        if user_prompts(messages)[-1] == 'flood':
            await go.wait()
            for _n in range(CHUNKS):
                yield CHUNK
        yield ' end'

    return Agent(FunctionModel(echo_prompts, stream_function=stream)), go


async def read_on(stream: Stream, into: list[Event]) -> None:
    """Read until the stream breaks."""
    while True:
        into.append(await anext(stream))


@pytest.mark.long
@covers(STALLS)
async def test_stalled_reader_is_dropped_and_resumes_without_gaps() -> None:
    agent, go = large_text_agent()
    async with serving(agent) as client:
        got: list[Event] = []
        async with client.live.send_streaming('flood') as stalled:
            got += [await anext(stalled) for _ in range(3)]
            task_id = got[0].result['task']['id']
            stalled.exchange.reading.clear()
            go.set()
            async with client.live.send_streaming('other') as stream:
                other = await stream.rest()
            async with asyncio.timeout(LIMIT):
                await asyncio.wait([stalled.exchange.task])
            stalled.exchange.reading.set()
            with pytest.raises(AssertionError, match='without finishing'):
                await read_on(stalled, got)
        assert texts(await wait_until_ended(client, task_id)) == ['begin ' + CHUNK * CHUNKS + ' end']
        async with client.live.subscribe(task_id, Last_Event_ID=str(got[-1].id)) as again:
            rest = await again.rest()
    assert text_of_events(other) == 'begin  end'
    assert sum(len(str(event.data)) for event in got) < 2_000_000
    assert [event.id for event in got + rest] == [*range(len(got + rest))]
    assert text_of_events(got[1:] + rest) == 'begin ' + CHUNK * CHUNKS + ' end'


@pytest.mark.long
@covers(STALLS)
async def test_slow_reader_within_lag_limit_gets_all_events() -> None:
    agent, go = large_text_agent()
    limits = with_constants(Limits, reader_lag=30_000_000)
    async with serving(agent, limits=limits) as client, client.live.send_streaming('flood') as slow:
        task_id = (await anext(slow)).result['task']['id']
        await slow.until('TASK_STATE_WORKING')
        slow.exchange.reading.clear()
        go.set()
        done = await wait_until_ended(client, task_id)
        slow.exchange.reading.set()
        events = await slow.rest()
    assert state_of(done) == 'COMPLETED'
    assert text_of_events(events) == 'begin ' + CHUNK * CHUNKS + ' end'


@pytest.mark.long
@covers(STALLS)
async def test_fast_reader_is_never_dropped() -> None:
    agent, go = large_text_agent()
    go.set()
    async with serving(agent) as client, client.live.send_streaming('flood') as stream:
        events = await stream.rest()
    assert text_of_events(events[1:]) == 'begin ' + CHUNK * CHUNKS + ' end'
