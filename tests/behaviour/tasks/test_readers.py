"""A reader that stops reading: it costs nobody anything, and can come back for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Limits

from ...client import LIMIT, Event, Stream, state_of, texts
from ...fixed import fixed
from ...long import size
from ..rows import covers
from ..stage import ended, heard, prompts, serving
from .test_subscribe import written

ROW = 'reader that stops reading'
CHUNK = 'x' * 60_000
CHUNKS = size(60, 200)
"""3.6 MB altogether, or 12."""


def flood() -> tuple[Agent[object, str], asyncio.Event]:
    """An agent that says all chunks once the event is set, if the prompt is `flood`."""
    go = asyncio.Event()

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        yield 'begin '
        if prompts(messages)[-1] == 'flood':
            await go.wait()
            for _n in range(CHUNKS):
                yield CHUNK
        yield ' end'

    return Agent(FunctionModel(heard, stream_function=stream)), go


async def read_on(stream: Stream, into: list[Event]) -> None:
    """Read until the stream breaks."""
    while True:
        into.append(await anext(stream))


@pytest.mark.long
@covers(ROW)
async def test_a_reader_that_stalls_is_dropped_while_others_are_served_and_resumes_with_exactly_the_rest() -> None:
    agent, go = flood()
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
        assert texts(await ended(client, task_id)) == ['begin ' + CHUNK * CHUNKS + ' end']
        async with client.live.subscribe(task_id, Last_Event_ID=str(got[-1].id)) as again:
            rest = await again.rest()
    assert written(other) == 'begin  end'
    assert sum(len(str(event.data)) for event in got) < 2_000_000
    assert [event.id for event in got + rest] == [*range(len(got + rest))]
    assert written(got[1:] + rest) == 'begin ' + CHUNK * CHUNKS + ' end'


@pytest.mark.long
@covers(ROW)
async def test_a_reader_may_fall_behind_as_far_as_the_limit_says() -> None:
    agent, go = flood()
    limits = fixed(Limits, reader_lag=30_000_000)
    async with serving(agent, limits=limits) as client, client.live.send_streaming('flood') as slow:
        task_id = (await anext(slow)).result['task']['id']
        await slow.until('TASK_STATE_WORKING')
        slow.exchange.reading.clear()
        go.set()
        done = await ended(client, task_id)
        slow.exchange.reading.set()
        events = await slow.rest()
    assert state_of(done) == 'COMPLETED'
    assert written(events) == 'begin ' + CHUNK * CHUNKS + ' end'


@pytest.mark.long
@covers(ROW)
async def test_a_reader_that_keeps_up_is_never_dropped_however_much_there_is() -> None:
    agent, go = flood()
    go.set()
    async with serving(agent) as client, client.live.send_streaming('flood') as stream:
        events = await stream.rest()
    assert written(events[1:]) == 'begin ' + CHUNK * CHUNKS + ' end'
