"""What Temporal keeps of a task: ids, times, sizes and names, but nothing that clients, models or tools have said."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from base64 import b64decode
from binascii import Error
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import BinaryContent, RunContext
from pydantic_ai.durable_exec.temporal import PydanticAIPayloadConverter
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadCodec, SerializationContext, WithSerializationContext

from pydantic_ai_a2a import Progress, Results, a2a

from ...app_client import state_of, texts
from ...engines import TemporalSetup, connect
from ...serving import serving
from ...temporal import temporal_server
from ..pending_calls import answer_message, approve, pending_calls

SECRETS = ('prompt-secret', 'thought-secret', 'text-secret', 'args-secret', 'status-secret', 'result-secret')
PIECE = b'artifact-secret '
LARGE = PIECE * (5_000_000 // len(PIECE))
_BASE64 = re.compile(rb'[A-Za-z0-9+/_-]{12,}={0,2}')


def decoded(data: bytes) -> Iterator[bytes]:
    """Yield data, and all that is base64 in it, at each depth."""
    yield data
    for found in _BASE64.findall(data):
        if len(found) % 4 == 0:
            try:
                inner = b64decode(found, altchars=b'-_')
            except Error:
                continue
            yield from decoded(inner)


class Reversed(PayloadCodec):
    """A codec of a user: other programs cannot read the payloads."""

    async def encode(self, payloads: Any) -> list[Payload]:
        return [Payload(metadata={'encoding': b'reversed'}, data=each.SerializeToString()[::-1]) for each in payloads]

    async def decode(self, payloads: Any) -> list[Payload]:
        return [Payload.FromString(each.data[::-1]) for each in payloads]


class InContext(Reversed, WithSerializationContext):
    """A codec that knows the workflow."""

    def with_context(self, context: SerializationContext) -> InContext:
        return InContext()


CODECS = [None, Reversed(), InContext()]


@pytest.fixture
def kit(tmp_path: Path, temporal: str) -> TemporalSetup:
    return TemporalSetup(tmp_path, temporal)


async def speak(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
    if len(messages) > 1:
        for piece in ('All of text-', 'secret', ' is done.'):
            yield piece
        return
    yield {0: DeltaThinkingPart(content='A thought-secret.')}
    yield {1: DeltaToolCall(name='draw', json_args='{"what": "args-secret"}')}
    yield {2: DeltaToolCall(name='pay', json_args='{"to": "args-secret"}')}


@pytest.mark.parametrize('codec', CODECS, ids=['none', 'plain', 'in context'])
async def test_temporal_history_has_no_task_content(kit: TemporalSetup, codec: PayloadCodec | None) -> None:
    own = replace(DataConverter.default, payload_codec=codec)
    agent = kit.agent(FunctionModel(stream_function=speak), streams=True)

    @agent.tool
    async def draw(ctx: RunContext[Any], what: str) -> str:
        await a2a(ctx).status(f'status-secret of {what}')
        await a2a(ctx).artifact(BinaryContent(LARGE, media_type='application/pdf'), name='drawing')
        return 'result-secret'

    @agent.tool_plain(requires_approval=True)
    async def pay(to: str) -> str:
        return 'result-secret'

    progress = Progress(notes=True, thinking=True, tools=True)
    results = Results(stream='mark', interval=0, progress=progress)
    async with serving(agent, results=results, **kit.options(data_converter=own)) as client:
        async with client.send_streaming('prompt-secret') as stream:
            events = [event async for event in stream]
        task_id = events[0].result['task']['id']
        task = await client.get_task(task_id)
        done = await client.send(answer_message(task, approve(pending_calls(task)[0]['id'])))
    assert texts(done) == ['All of text-secret is done.']
    shown = str([event.result for event in events])
    assert 'thought-secret' in shown
    assert 'status-secret' in shown
    for run in (1, 2):
        kept = [*decoded(await kit.history(f'{task_id}.{run}'))]
        assert not [secret for secret in (*SECRETS, 'artifact-secret') for each in kept if secret.encode() in each]


async def test_large_texts_and_artifacts_reach_client(kit: TemporalSetup) -> None:
    large, drawn = 'x' * 3_000_000, list[str]()

    async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) > 1:
            yield large
        else:
            yield {0: DeltaToolCall(name='draw', json_args='{}')}

    agent = kit.agent(FunctionModel(stream_function=write), streams=True)

    @agent.tool
    async def draw(ctx: RunContext[Any]) -> str:
        drawn.append('drawing')
        await a2a(ctx).artifact(large, name='drawing')
        return large

    results = Results(stream='mark', interval=0, progress=Progress(tools=True))
    async with serving(agent, results=results, **kit.options()) as client:
        async with client.send_streaming('hello') as stream:
            events = [event.result async for event in stream]
        done = await client.get_task(events[0]['task']['id'])
    pieces = [event['artifactUpdate']['artifact']['parts'][0]['text'] for event in events if 'artifactUpdate' in event]
    assert [len(piece) for piece in pieces] == [3_000_000, 3_000_000, 0]
    assert texts(done) == [large, large]
    assert drawn == ['drawing']


class ConverterInContext(PydanticAIPayloadConverter):
    """A payload converter of a user that knows the workflow."""

    def with_context(self, context: SerializationContext) -> ConverterInContext:
        return ConverterInContext()


@pytest.mark.parametrize('codec', CODECS, ids=['none', 'plain', 'in context'])
async def test_stream_polls_are_not_stored(kit: TemporalSetup, codec: PayloadCodec | None) -> None:
    own = replace(DataConverter.default, payload_converter_class=ConverterInContext, payload_codec=codec)
    agent = kit.agent(FunctionModel(stream_function=speak), streams=True)
    async with serving(agent, **kit.options(data_converter=own)) as client:
        assert state_of(await client.send('hello')) == 'COMPLETED'
        with closing(sqlite3.connect(kit.folder / 'agent.db')) as database:
            stored = [text for [body] in database.execute('SELECT body FROM payload') for text in (body, body[::-1])]
    assert stored
    assert not [text for text in stored if b'next_offset' in text or b'from_offset' in text]


@pytest.mark.parametrize('streams', [True, False])
async def test_task_beyond_signal_limit_fails_without_retry(tmp_path: Path, streams: bool) -> None:
    """Temporal takes no more signals: neither the text of the model nor the status of a tool reaches the client."""
    called = list[str]()

    async def write(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        called.append('model')
        while await signals() < 3:  # on a slow machine, a signal has many pieces
            yield 'a word '
            await asyncio.sleep(0.02)  # beyond the `batch_interval`
        yield 'too much'

    async def signals() -> int:
        workflow = activity.info().workflow_id
        assert workflow is not None
        history = await (await connect(kit)).get_workflow_handle(workflow).fetch_history()
        return sum(event.HasField('workflow_execution_signaled_event_attributes') for event in history.events)

    async def note(ctx: RunContext[Any]) -> str:
        called.append('tool')
        for n in range(9):
            await a2a(ctx).status(f'{n}')
        return 'done'

    with temporal_server(settings=['history.maximumSignalsPerExecution=3']) as address:
        kit = TemporalSetup(tmp_path, address)
        model = FunctionModel(stream_function=write) if streams else TestModel()
        agent = kit.agent(model, streams=streams, tools=[note])
        async with serving(agent, **kit.options()) as client:
            task = await client.send('hello')
    assert (state_of(task), task['status']['message']['metadata']['failure']) == ('FAILED', 'engine')
    assert called == ['model' if streams else 'tool']
