"""An agent for all kinds of load, and what its process holds; runs in the server's process.

The first word of a message says what the agent does: `say`, `delete` after an approval, `wait` until it is cancelled.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from pydantic_ai_a2a import Postgres, Progress, Push, Results, Workers, to_a2a

from ..constants import with_constants


def calls(messages: list[ModelMessage]) -> bool:
    """Whether the model has to call the tool: the message asks for it, and has not had a result yet."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    return any(isinstance(part, UserPromptPart) and str(part.content).startswith('delete') for part in last.parts)


async def hold(messages: list[ModelMessage]) -> None:
    """Wait for ever if the message says so, else for a few turns of the event loop."""
    if any(isinstance(part, UserPromptPart) and part.content == 'wait' for part in messages[-1].parts):
        await asyncio.Event().wait()
    for _ in range(5):
        await asyncio.sleep(0)


async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    await hold(messages)
    return ModelResponse(parts=[ToolCallPart('delete', {}) if calls(messages) else TextPart('done')])


async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    if calls(messages):
        yield {0: DeltaToolCall('delete', '{}', tool_call_id='call')}
        return
    for word in ('do', 'n', 'e'):
        yield word
        await hold(messages)


agent = Agent(FunctionModel(answer, stream_function=stream), name='mixed')


@agent.tool_plain(requires_approval=True)
async def delete() -> str:
    await asyncio.sleep(0)
    return 'deleted'


async def held(request: Request) -> JSONResponse:
    """The asyncio tasks, the open files and sockets, and the objects of the package in this process."""
    await app.backend.queue.renew('nobody', [], lease=1)  # over the connection that heartbeats open
    gc.collect()
    tasks = [task.get_coro() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    kinds: list[type[Any]] = [type(each) for each in gc.get_objects()]
    objects = Counter(kind.__name__ for kind in kinds if _is_ours(kind))
    return JSONResponse(
        {
            'tasks': Counter(getattr(each, '__qualname__', str(each)) for each in tasks),
            'files': Counter(_files()),
            'objects': objects,
        }
    )


KEPT = {'_KeptHistory', 'RunToken'}
"""What a server keeps: the messages of the last used contexts, and the token of the task that was renewed last."""


def _is_ours(kind: type[Any]) -> bool:
    ours = str(kind.__module__).startswith('pydantic_ai_a2a.') and kind.__name__ not in KEPT
    return ours or kind.__name__ == 'AgentRun'


def _files() -> list[str]:
    names: list[str] = []
    for each in os.listdir('/proc/self/fd'):
        with suppress(FileNotFoundError):  # that of the folder itself
            names.append(os.readlink(f'/proc/self/fd/{each}').split(':[')[0])
    return names


BACKEND = os.environ['MIXED_BACKEND']

app = to_a2a(
    agent,
    # The warm-up opens all connections of a small pool, so that their number stays.
    backend=Postgres(BACKEND, pool_size=2) if BACKEND.startswith('postgres') else BACKEND,
    routes=[Route('/held', held)],
    results=Results(progress=Progress(tools=True)),
    push=with_constants(Push, private_hosts=['127.0.0.1'], backoff=0.05, tries=3),
    workers=Workers(running=20),
)
