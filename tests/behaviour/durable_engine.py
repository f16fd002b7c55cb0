"""The agent of `durable_steps` at an engine; runs in the servers' processes. The environment says which engine."""

from __future__ import annotations

from os import environ

import dbos
from pydantic_ai import Agent, RunContext
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.engines.dbos import DBOS, stream_events

from ..e2e.gates import ROUTES
from .durable_steps import LIMITS, RETENTION, WORKERS, model, model_at_once, note, stop_at

agent: Agent[object, str] = Agent(
    FunctionModel(model_at_once, stream_function=model),
    name='Steps',
    capabilities=[DBOSDurability(event_stream_handler=stream_events)],
)


@agent.tool
async def work(ctx: RunContext[object], step: int) -> str:
    assert ctx.metadata is not None
    return await worked(step, ctx.metadata['a2a']['idempotency_key'], str(ctx.prompt))


@dbos.DBOS.step()
async def worked(step: int, run: str, prompt: str) -> str:
    note(f'tool-{step} {run}')
    await stop_at(f'tool-{step}', prompt)
    return 'worked'


app = to_a2a(
    agent,
    backend=environ['A2A_TEST_BACKEND'],
    engine=DBOS(environ['A2A_TEST_ENGINE']),
    routes=ROUTES,
    workers=WORKERS,
    limits=LIMITS,
    retention=RETENTION,
)
