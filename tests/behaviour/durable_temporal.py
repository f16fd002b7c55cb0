"""The agent of `durable_steps` at Temporal; runs in the processes of servers and workers, which the environment names.

The gates are files, because workers serve no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from os import environ
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.models.function import FunctionModel
from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHandle
from temporalio.plugin import SimplePlugin

from pydantic_ai_a2a import Workers, a2a, to_a2a
from pydantic_ai_a2a.engines.temporal import Temporal

from ..engines import ACTIVITIES, TOPIC, Heartbeats
from .durable_steps import LIMITS, RETENTION, WORKERS, model, model_at_once, note

FOLDER = Path(environ['A2A_TEST_LEDGER']).parent

agent: Agent[object, str] = Agent(
    FunctionModel(model_at_once, stream_function=model),
    name=environ.get('A2A_TEST_NAME', 'Steps'),
    capabilities=[TemporalDurability(event_stream_topic=TOPIC, activity_config=ACTIVITIES)],
)


async def gate(name: str) -> None:
    """Wait while the gate is closed."""
    reached, opened, stopped = (FOLDER / f'{name}.{what}' for what in ('reached', 'opened', 'stopped'))
    reached.touch()
    try:
        while not opened.exists() and (FOLDER / f'{name}.closed').exists():  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        stopped.touch()
        raise


@agent.tool
async def work(ctx: RunContext[object], step: int) -> str:
    note(f'tool-{step}')
    await a2a(ctx).status(f'Tool {step}.')
    await gate(f'tool-{step}')
    await asyncio.sleep(float(environ.get('A2A_TEST_TOOL_SECONDS', '0')))
    return 'worked'


@asynccontextmanager
async def fail_once_told() -> AsyncGenerator[None]:
    """Fail the Temporal worker of this process once the test has made a file."""
    running = asyncio.current_task()
    assert running is not None

    async def wait() -> None:
        while not (FOLDER / 'fail').exists():  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
        running.cancel()

    waiting = asyncio.create_task(wait())
    try:
        yield
    except asyncio.CancelledError:
        if waiting.done():
            raise RuntimeError('Poll failure.') from None
        raise
    finally:
        waiting.cancel()


class HoldsStarts(Interceptor):
    """Starts no workflow while the gate is closed."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        start = next.start_workflow

        async def hold(input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
            await gate('start')
            return await start(input)

        next.start_workflow = hold
        return next


app = to_a2a(
    agent,
    name='steps',
    backend=environ['A2A_TEST_BACKEND'],
    engine=Temporal(
        environ['A2A_TEST_TEMPORAL'],
        task_queue=environ['A2A_TEST_QUEUE'],
        worker=False,
        plugins=[SimplePlugin('fails', run_context=fail_once_told)],
        interceptors=[HoldsStarts(), Heartbeats()],
    ),
    workers=replace(WORKERS, attempts=Workers().attempts),
    limits=LIMITS,
    retention=RETENTION,
)
