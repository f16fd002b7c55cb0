"""The app whose tasks are run in chaos; runs in the servers' and workers' processes. The environment has its settings.

The user's words are a turn's name and how many steps it has: `c1/2 3`. The agent calls its tool for each step, which
writes the ledger, and then says which turns it sees in the conversation and which results it has got.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import Limits, Retention, Workers, to_a2a
from pydantic_ai_a2a.server.agent.run_info import RunInfo
from pydantic_ai_a2a.server.store.ports import Accepted, Submission

from ..constants import with_constants
from .facts import AnswerWord, LedgerRow, is_logged
from .ledger import LedgerWriter

_responses = count(1)


@cache
def pen() -> LedgerWriter:
    """Of this process; a process without runs needs none."""
    return LedgerWriter(os.environ['CHAOS_LEDGER'])


def respond(messages: Sequence[ModelMessage]) -> ModelResponsePart:
    """The next step, or what is said after the last."""
    parts = [part for message in messages for part in message.parts]
    asked = [n for n, part in enumerate(parts) if isinstance(part, UserPromptPart)]
    prompts = [str(part.content).split() for part in parts if isinstance(part, UserPromptPart)]
    results = [str(part.content) for part in parts[asked[-1] :] if isinstance(part, ToolReturnPart)]
    if len(results) < int(prompts[-1][1]):
        return ToolCallPart('work', {'turn': prompts[-1][0], 'step': len(results) + 1})
    speaker = f'{os.getpid()}.{next(_responses)}'
    words = [AnswerWord(speaker, 'turn', name) for name, _ in prompts] + [
        AnswerWord(speaker, 'step', each) for each in results
    ]
    return TextPart(''.join(word.text for word in words))


async def begin(answer: Sequence[AnswerWord]) -> None:
    """Say that an answer begins, and take a breath: who had the task before may have something to say, too."""
    name, number = next(word.value for word in reversed(answer) if word.kind == 'turn').split('/')
    now = time.monotonic()
    pen().write(LedgerRow('', '', name, int(number), 0, '', 0, os.getpid(), now, now + _BREATH))
    await asyncio.sleep(_BREATH)


async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    part = respond(messages)
    if isinstance(part, TextPart):
        await begin(AnswerWord.all(part.content))
    return ModelResponse(parts=[part])


async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    part = respond(messages)
    if isinstance(part, ToolCallPart):
        yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        return
    assert isinstance(part, TextPart)
    words = AnswerWord.all(part.content)
    await begin(words)
    for word in words:
        yield word.text
        await asyncio.sleep(_PACE / 4)


agent = Agent(FunctionModel(answer, stream_function=stream), name='chaos')
_PACE = float(os.environ['CHAOS_PACE'])
_BREATH = 2 * _PACE


@agent.tool
async def work(context: RunContext[object], turn: str, step: int) -> str:
    assert context.metadata is not None
    run: RunInfo = context.metadata['a2a']
    name, _, number = turn.partition('/')
    lasts = _PACE * 5 if step == 2 else _PACE
    call = f'{run["idempotency_key"]} {context.tool_call_id}'
    row = LedgerRow(
        uuid4().hex[:12],
        run['task_id'],
        name,
        int(number),
        step,
        call,
        run['attempt'],
        os.getpid(),
        now := time.monotonic(),
        now + lasts,
    )
    pen().write(row)
    await asyncio.sleep(lasts)  # a time in which the process may be killed
    return row.id


app = to_a2a(
    agent,
    backend=os.environ['CHAOS_BACKEND'],
    limits=with_constants(Limits, cancel_grace=2.0),
    retention=Retention(events=timedelta(hours=1)),
    workers=Workers(
        lease=float(os.environ['CHAOS_LEASE']),
        attempts=int(os.environ['CHAOS_ATTEMPTS']),
        running=int(os.environ['CHAOS_RUNNING']),
        drain_grace=1.0,
    ),
)


async def submit_with_log(submission: Submission, **options: Any) -> Accepted:
    """Store a message like the queue of the app, for every second task with a log of all events for the judge."""
    logged = submission.logged or is_logged(submission.task_id)
    return await _submit(replace(submission, logged=logged), **options)


_submit = app.backend.queue.submit
vars(app.backend.queue)['submit'] = submit_with_log
