"""Bytes and calls of finished tasks in memory, the same on every machine.

The bytes are those of Python's objects and of the pages of the store.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager

import pytest
from pydantic_ai import Agent, TextOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from benchmarks.agents import prompt
from pydantic_ai_a2a import A2AApp, Artifacts, Results
from pydantic_ai_a2a.server.store.ports import ExportedConversation
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.types import ANONYMOUS

from .app_client import Client, message
from .costs import AGENT, REPEATS, WARM_UP, calls, post, request, sends, served
from .serving import running_app
from .sizes import short_or_long

TASKS = short_or_long(200, 500)
CHUNKS = 150
"""Calls of an answer in several chunks, beyond the calls of a short answer."""
LONG_CHUNKS = 3_500
"""The same for an answer of five megabytes, whose 1,000 artifacts are joined in chunks."""
PIECE, PIECES = 32_000, 60
"""Bytes and number of the deltas of a long answer."""
COPIES = 5.5
"""Copies of a long streamed answer: the artifact, the message of the history, the model message, and in the event log
the deltas and the whole text."""
FINISHED_TASK = 3_800
"""Bytes of a finished task of a short message and a short answer, with its conversation."""


@contextmanager
def measure_bytes(app: A2AApp) -> Generator[Callable[[], int]]:
    """Give the bytes that a block of code has left: in Python's objects, and in the pages of the store in memory."""
    assert isinstance(app.backend, MemoryBackend)
    before, sizes = app.backend.size, list[int]()
    gc.collect()
    tracemalloc.start()
    try:
        yield sizes.pop
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0] + app.backend.size - before)
    finally:
        tracemalloc.stop()


@pytest.mark.long
async def test_finished_task_uses_little_memory() -> None:
    async with running_app(AGENT) as app:
        for body in sends('SendMessage', repeats=100):
            await post(app, body)
        bodies = [*sends('SendMessage', repeats=TASKS)]
        with measure_bytes(app) as size:
            for body in bodies:
                await post(app, body)
    assert size() / TASKS <= FINISHED_TASK


LONG = ''.join(f'{n:04}' * (PIECE // 4) for n in range(PIECES))


async def pieces(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    if prompt(messages) != 'long':
        yield 'short'
        return
    for start in range(0, len(LONG), PIECE):
        yield LONG[start : start + PIECE]


async def test_long_streamed_answer_uses_bounded_memory() -> None:
    async with running_app(Agent(FunctionModel(stream_function=pieces))) as app:
        for text in ('short', 'long'):
            with measure_bytes(app) as size:
                async with Client(app).send_streaming(text) as events:
                    async for _ in events:
                        pass
    assert size() <= COPIES * len(LONG)


@pytest.mark.long
async def test_long_answer_is_complete_in_stream_task_and_export() -> None:
    agent = Agent(FunctionModel(stream_function=pieces))
    async with running_app(agent, results=Results(stream='replace')) as app:
        client = Client(app)
        async with client.send_streaming(message('long', contextId='c')) as events:
            sent = await events.rest()
        *_, closing, _ = sent
        [artifact] = [closing.result['artifactUpdate']['artifact']]
        assert [part['text'] for part in artifact['parts']] == [LONG]
        task = await client.get_task(closing.result['artifactUpdate']['taskId'])
        assert task['artifacts'] == [artifact]
        assert task['history'][-1]['parts'] == artifact['parts']
        for n, event in [*enumerate(sent[:-1], 1)][:: short_or_long(10, 1)]:
            async with client.subscribe(task['id'], Last_Event_ID=str(event.id)) as events:
                assert await events.rest() == sent[n:]
        conversation = await app.conversations().load('c')
        *_, exported = [item async for item in app.backend.housekeeping.export(ANONYMOUS.owner)]
    assert conversation is not None
    assert isinstance(exported, ExportedConversation)
    assert [each.messages[-1].parts for each in (conversation, exported)] == [[TextPart(LONG)]] * 2


@pytest.mark.parametrize(('length', 'more'), [(1, CHUNKS), (1_000, LONG_CHUNKS)])
async def test_get_task_calls_do_not_grow_with_artifacts(length: int, more: int) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart('Done.')])

    def artifacts(text: str) -> Artifacts:
        return Artifacts({f'artifact-{n}': text * length for n in range(sizes.pop())})

    sizes = [1_000, 10]
    counts: list[int] = []
    async with running_app(Agent(FunctionModel(model), output_type=TextOutput(artifacts))) as app:
        for _ in range(2):
            task = await Client(app).send('Write.')
            bodies = [request('GetTask', {'id': task['id']})] * (WARM_UP + REPEATS)
            counts.append(await calls(served(app, iter(bodies))))
    few, many = counts
    assert many - few <= more
