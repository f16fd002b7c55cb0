"""Apps that serve agents, agents whose runs wait for the test, and what runs, tasks and logs say."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from fasta2a.schema import Task
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Retention, Workers, to_a2a
from pydantic_ai_a2a.server.audit import LOGGER

from ..app_client import LIMIT, Client, RpcError, lifespan, message, state_of
from ..bounds import LOGS


def each_backend(*kinds: str) -> pytest.MarkDecorator:
    """Run a test with the URL `backend` of an empty store of each kind: `memory`, `sqlite` or `postgres`."""
    return pytest.mark.parametrize('backend', kinds, indirect=True)


@asynccontextmanager
async def serving(
    agent: AbstractAgent[Any, Any],
    *,
    headers: Mapping[str, str] | None = None,
    workers: Workers | None = None,
    **options: Any,
) -> AsyncGenerator[Client]:
    """A client of an app that serves the agent: everything in the block is bounded, and runs left over are ended."""
    options.setdefault('retention', Retention(events=LOGS))
    app = to_a2a(agent, workers=replace(workers or Workers(), drain_grace=1.0), **options)
    async with lifespan(app), asyncio.timeout(LIMIT):
        yield Client(app, headers=headers)


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """All that users said in a conversation."""
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


def heard(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """A model that answers with all that users said to it."""
    return ModelResponse(parts=[TextPart(' + '.join(prompts(messages)))])


class Stage:
    """An agent whose model answers with all that users said to it, once the gate named after the prompt is open."""

    def __init__(self) -> None:
        self.agent: Agent[object, str] = Agent(FunctionModel(self.answer), name='agent')
        self.began: list[str] = []
        """The prompts whose runs have begun, in that order."""
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def reached(self, *prompts: str) -> None:
        """Wait until the runs of these prompts have begun."""
        for prompt in prompts:
            await self._reached[prompt].wait()

    def open(self, *prompts: str) -> None:
        """Let the runs of these prompts go on, whether they have begun or not."""
        for prompt in prompts:
            self._gates[prompt].set()

    async def run_twice(self, client: Client) -> dict[str, Any]:
        """A task that has run for the message `one`, and then for `two`, which came meanwhile."""
        task = await client.send('one', returnImmediately=True)
        await self.reached('one')
        await client.send(message('two', taskId=task['id']), returnImmediately=True)
        self.open('one', 'two')
        return await ended(client, task['id'])

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Answer as the model of the agent."""
        prompt = prompts(messages)[-1]
        self.began.append(prompt)
        self._reached[prompt].set()
        await self._gates[prompt].wait()
        return heard(messages, info)


class Desk:
    """An agent that looks so many things up, as long as it is kept there, and then says all that it was told.

    Told to `delete` first, it wants to do that instead, which needs approval.
    """

    def __init__(self, *, steps: int = 1) -> None:
        self.looking, self.found = asyncio.Event(), asyncio.Event()
        self.seen: list[list[str]] = []
        """What users had said, at each request to the model."""
        self.reached = asyncio.Event()
        """Set once a run waits where it is to be held."""
        self._hold_at = ''
        self._steps = steps
        self.agent: Agent[object, Any] = Agent(FunctionModel(self.answer), name='agent')
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(requires_approval=True)(self.delete)

    def hold(self, point: str) -> None:
        """Let the next run that comes to `model 1`, `tool 1`, `model 2`, ... wait there for ever."""
        self._hold_at = point
        self.reached.clear()

    async def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        said = prompts(messages)
        self.seen.append(said)
        step = 1 + sum(isinstance(part, ToolReturnPart) for each in messages for part in each.parts)
        await self._at(f'model {step}')
        if step > self._steps:
            return ModelResponse(parts=[TextPart(' + '.join(said))])
        return ModelResponse(
            parts=[ToolCallPart('delete') if said[0] == 'delete' else ToolCallPart('look', {'n': step})]
        )

    async def look(self, n: int) -> str:
        self.looking.set()
        await self.found.wait()
        await self._at(f'tool {n}')
        return 'found'

    async def delete(self) -> str:
        return 'deleted'

    async def _at(self, point: str) -> None:
        if point == self._hold_at:
            self._hold_at = ''
            self.reached.set()
            await asyncio.Event().wait()


async def tasks_of(client: Client, **which: Any) -> list[Task]:
    """The tasks that the app of a client has, by its `list_tasks`."""
    return await client.a2a_app.list_tasks(**which)


async def ended(client: Client, task_id: str) -> dict[str, Any]:
    """The task once it is over."""
    with suppress(RpcError):  # it may be over already: then 1.0 has nothing to subscribe to
        async with client.subscribe(task_id) as stream:
            await stream.rest()
    task = await client.get_task(task_id)
    assert state_of(task) in ('COMPLETED', 'FAILED', 'CANCELED', 'REJECTED')
    return task


def audited(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The records of the audit log, whose lines say the same, without their times."""
    records = [record for record in caplog.records if record.name == LOGGER]
    facts: list[dict[str, Any]] = [vars(record)['audit'] for record in records]
    assert [json.loads(record.getMessage()) for record in records] == facts
    return [{name: value for name, value in fact.items() if name != 'time'} for fact in facts]


@contextmanager
def told_in_log(text: str) -> Generator[Event]:
    """What is set, in whatever thread, once the package logs something with this text."""
    told = Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                told.set()

    listener = Listener()
    logging.getLogger('pydantic_ai_a2a').addHandler(listener)
    try:
        yield told
    finally:
        logging.getLogger('pydantic_ai_a2a').removeHandler(listener)


@contextmanager
def told_to_loop() -> Generator[list[str]]:
    """What the event loop is told by the end of the block, such as of a task that has failed for nobody."""
    loop, told = asyncio.get_running_loop(), list[str]()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: told.append(context['message']))
    try:
        yield told
    finally:
        gc.collect()
        loop.set_exception_handler(before)
