from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import to_a2a

from ..client import Client, lifespan, state_of, texts


async def test_a_task_is_answered() -> None:
    app = to_a2a(Agent(TestModel()))
    async with lifespan(app):
        task = await Client(app).send('hi')
        async with Client(app).send_streaming('hi') as stream:
            events = await stream.rest()
    assert state_of(task) == 'COMPLETED'
    assert texts(task) == ['success (no tool calls)']
    assert len(events) == 8
