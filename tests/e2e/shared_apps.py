"""Apps whose tasks several processes share, in a store of the environment or in a file where a process is started.

This module runs in the servers' and workers' processes.
"""

from __future__ import annotations

import asyncio
from os import environ
from pathlib import Path

from fastapi import FastAPI
from pydantic_ai import Agent, CallDeferred, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.middleware.cors import CORSMiddleware

from pydantic_ai_a2a import InputRequired, Progress, Push, Results, Workers, mount, to_a2a

from ..agents import user_prompts
from ..bounds import LIMIT
from ..constants import with_constants

BACKEND = environ.get('APPS_BACKEND', 'sqlite:///agent.db')


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Sign with `NAME`. A process with `HANGS` begins and never answers."""
    if 'HANGS' in environ:
        print('A run has begun.', flush=True)
        await asyncio.Event().wait()
    return ModelResponse(parts=[TextPart(f'Answered by {environ["NAME"]}.')])


class Locked(FunctionToolset[object]):
    """Can be entered only where `KEY` is set."""

    async def __aenter__(self) -> Locked:
        if 'KEY' not in environ:
            raise LookupError('there is no key')
        return self


agent = Agent(FunctionModel(answer), name='shared')
app = to_a2a(agent, backend=BACKEND)
wrapped = CORSMiddleware(app)
# The same tasks, with other settings.
hasty = to_a2a(agent, backend=BACKEND, workers=Workers(drain_grace=0.1, drain_delay=LIMIT))
patient = to_a2a(agent, backend=BACKEND, workers=Workers(drain_grace=LIMIT))
fragile = to_a2a(agent, backend=BACKEND, workers=Workers(lease=LIMIT, attempts=1))
locked = to_a2a(Agent(FunctionModel(answer), name='locked', toolsets=[Locked()]), backend=BACKEND)

parent = FastAPI()
mount(parent, '/ann', to_a2a(agent, name='ann', backend=BACKEND))
parent.mount('/bob', to_a2a(agent, name='bob', backend=BACKEND))


# --- an app that calls webhooks on this machine


QUESTIONS = 10


def step(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Three calls of the tool, each with a note, or so many questions after `question me`, and then the answer."""
    n = len(messages) // 2
    questioned = user_prompts(messages)[0] == 'question me'
    if questioned and n < QUESTIONS:
        return ModelResponse(parts=[ToolCallPart('question', {})])
    if n < 3:
        return ModelResponse(parts=[TextPart(f'Step {n}.'), ToolCallPart('work', {})])
    return ModelResponse(parts=[TextPart('Done.')])


notifying = Agent(FunctionModel(step), name='notifier')


@notifying.tool_plain
def work() -> str:
    return 'worked'


@notifying.tool_plain
def question() -> str:
    raise InputRequired('Go on?')


notifier = to_a2a(
    notifying,
    backend=BACKEND,
    push=with_constants(
        Push, private_hosts=['127.0.0.1'], backoff=0.05, timeout=float(environ.get('APPS_TIMEOUT', LIMIT)), tries=20
    ),
    results=Results(progress=Progress(notes=True)),
)


# --- an agent whose tools wait for its user


def obey(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Calls the tools that the prompt names, each with its argument; then says all prompts and what came of it."""
    returned = [
        str(part.content)
        for sent in messages
        if isinstance(sent, ModelRequest)
        for part in sent.parts
        if isinstance(part, ToolReturnPart)
    ]
    calls = [each.split(':') for each in user_prompts(messages)[-1].split() if ':' in each]
    if calls and not returned:
        return ModelResponse(
            parts=[ToolCallPart(name, {'path': path}, f'c{n}') for n, (name, path) in enumerate(calls, 1)]
        )
    return ModelResponse(parts=[TextPart(' + '.join([*user_prompts(messages), *returned]))])


keeping = Agent(FunctionModel(obey), name='Keeper')


@keeping.tool_plain(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    with Path(environ['APPS_LEDGER']).open('a') as ledger:
        ledger.write(f'{path}\n')
    return f'deleted {path}'


@keeping.tool_plain
def fetch(path: str) -> str:
    """Have somebody else fetch a file."""
    raise CallDeferred


@keeping.tool_plain
def ask(path: str) -> str:
    """Ask the user."""
    raise InputRequired(f'What about {path}?')


keeper = to_a2a(keeping, backend=BACKEND)
