"""An agent of five steps that writes each into a ledger, over a store; runs in the servers' processes.

The environment says which store and which ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from os import environ
from pathlib import Path

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import Limits, Retention, Workers, to_a2a

from ..agents import user_prompts
from ..bounds import LIMIT, LOGS
from ..constants import with_constants
from ..e2e.gates import ROUTES, gates

ATTEMPTS = int(environ.get('A2A_TEST_ATTEMPTS', '20'))
WORKERS = Workers(lease=float(environ['A2A_TEST_LEASE']), drain_grace=1.0, attempts=ATTEMPTS)
RETENTION = Retention(events=LOGS)
LIMITS = with_constants(Limits, cancel_grace=float(environ.get('A2A_TEST_CANCEL_GRACE', LIMIT)))
"""By default, a canceled task waits for its run. Only a run of a process that hangs is left."""


def note(line: str) -> None:
    with Path(environ['A2A_TEST_LEDGER']).open('a') as ledger:
        ledger.write(f'{line}\n')


async def stop_at(point: str, prompt: str) -> None:
    """Wait at the gate of this name if the prompt names it."""
    if point in prompt.split():
        await gates[point].wait()


async def model(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Calls a tool in each of four steps and then answers; says to `recall` what was said."""
    prompt = user_prompts(messages)[-1]
    if prompt == 'recall':
        yield ' + '.join(user_prompts(messages))
        return
    step = 1 + sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    note(f'model-{step}')
    yield f'Step {step}, '
    await stop_at(f'model-{step}', prompt)
    yield 'done.'
    if step < 5:
        yield {1: DeltaToolCall('work', f'{{"step":{step}}}', tool_call_id=f'call-{step}')}


async def model_at_once(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The same, as one response."""
    items = [item async for item in model(messages, info)]
    calls = [call for item in items if isinstance(item, dict) for call in item.values()]
    text = TextPart(''.join(item for item in items if isinstance(item, str)))
    return ModelResponse(
        parts=[text, *(ToolCallPart('work', call.json_args, call.tool_call_id or '') for call in calls)]
    )


steps: Agent[object, str] = Agent(FunctionModel(model_at_once, stream_function=model), name='Steps')


@steps.tool
async def work(ctx: RunContext[object], step: int) -> str:
    assert ctx.metadata is not None
    run = ctx.metadata['a2a']
    note(f'tool-{step} {ctx.tool_call_id} {run["idempotency_key"]} attempt {run["attempt"]}')
    await stop_at(f'tool-{step}', str(ctx.prompt))
    if step == 1 and str(ctx.prompt).startswith('enqueue'):
        ctx.enqueue('recall', priority='when_idle')
    return 'worked'


app = to_a2a(steps, backend=environ['A2A_TEST_BACKEND'], routes=ROUTES, workers=WORKERS, retention=RETENTION)
