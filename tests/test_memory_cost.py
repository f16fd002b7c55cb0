"""Bytes and calls of finished tasks in memory, the same on every machine."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

from pydantic_ai import Agent, TextOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Artifacts, to_a2a

from .client import LIMIT, Client, lifespan
from .test_cost import AGENT, REPEATS, WARM_UP, calls, post, request, sends, served

TASKS = 500
CHUNKS = 150
"""Calls of an answer in several chunks, beyond the calls of a short answer."""
FINISHED_TASK = 4_900
"""Bytes of a finished task of a short message and a short answer, with its conversation."""


async def test_a_finished_task_in_memory_holds_few_bytes() -> None:
    app = to_a2a(AGENT)
    async with lifespan(app), asyncio.timeout(LIMIT):
        for body in sends('SendMessage', repeats=100):
            await post(app, body)
        bodies = [*sends('SendMessage', repeats=TASKS)]
        gc.collect()
        tracemalloc.start()
        try:
            for body in bodies:
                await post(app, body)
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held / TASKS <= FINISHED_TASK


async def test_a_look_up_takes_no_calls_for_each_artifact_of_a_task() -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart('Done.')])

    def artifacts(text: str) -> Artifacts:
        return Artifacts({f'artifact-{n}': text for n in range(sizes.pop())})

    sizes = [1_000, 10]
    app = to_a2a(Agent(FunctionModel(model), output_type=TextOutput(artifacts)))
    counts: list[int] = []
    async with lifespan(app), asyncio.timeout(LIMIT):
        for _ in range(2):
            task = await Client(app).send('Write.')
            bodies = [request('GetTask', {'id': task['id']})] * (WARM_UP + REPEATS)
            counts.append(await calls(served(app, iter(bodies))))
    few, many = counts
    assert many - few <= CHUNKS
