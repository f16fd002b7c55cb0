"""Right and wrong programs for type checkers: they must find an error in each line with `type: ignore`, and no other.

`python -m tests.docs.types` checks this module, which never runs, with the programs of the pages.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from fasta2a.broker import Broker
from fasta2a.storage import Storage
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.run import AgentRunResult

from pydantic_ai_a2a import (
    A2AClient,
    AgentWorker,
    CallContext,
    Conversation,
    RemoteResult,
    RunOptions,
    ToolCall,
    ToolResult,
    Update,
    WaitingCall,
    WaitingTask,
    to_a2a,
)
from pydantic_ai_a2a.testing import A2ATestClient


@dataclass
class Deps:
    user: str


class LocalDeps(Deps):
    pass


class City(BaseModel):
    name: str


agent = Agent('test', deps_type=Deps)
cities = Agent('test', deps_type=Deps, output_type=City)
optional = Agent[Deps | None, str]('test', deps_type=Deps | None)
plain = Agent('test')


# --- deps


to_a2a(agent, deps=Deps('ada'))
to_a2a(agent, deps=LocalDeps('ada'))
to_a2a(agent, deps=3)  # type: ignore[misc]
to_a2a(agent, deps=None)  # type: ignore[misc]
to_a2a(optional, deps=Deps('ada'))
to_a2a(optional, deps=None)
to_a2a(optional, deps=3)  # type: ignore[misc]
to_a2a(plain, deps=3)
to_a2a(agent, output_type=City, deps=Deps('ada'))
to_a2a(agent, output_type=City, deps=3)  # type: ignore[misc]


def options_of_runs(untyped: RunOptions, right: RunOptions[Deps], wrong: RunOptions[int]) -> None:
    to_a2a(agent, **untyped)
    to_a2a(agent, name='ada', **right)
    to_a2a(agent, **wrong)  # type: ignore[arg-type]


def worker(broker: Broker, storage: Storage[Any]) -> None:
    AgentWorker(agent=agent, broker=broker, storage=storage, deps=Deps('ada'))
    AgentWorker(agent=agent, broker=broker, storage=storage, deps=3)  # type: ignore[misc]


# --- factories


def value(call: CallContext) -> Deps:
    return Deps(call.task_id)


def local_value(call: CallContext) -> LocalDeps:
    return LocalDeps(call.task_id)


async def awaited(call: CallContext) -> Deps:
    return Deps(call.task_id)


@contextmanager
def context(call: CallContext) -> Generator[Deps]:
    yield Deps(call.task_id)


@asynccontextmanager
async def async_context(call: CallContext) -> AsyncGenerator[Deps]:
    yield Deps(call.task_id)


async def awaited_context(call: CallContext) -> AbstractAsyncContextManager[Deps]:
    return async_context(call)


def number(call: CallContext) -> int:
    return 3


async def awaited_number(call: CallContext) -> int:
    return 3


@contextmanager
def number_context(call: CallContext) -> Generator[int]:
    yield 3


@asynccontextmanager
async def async_number_context(call: CallContext) -> AsyncGenerator[int]:
    yield 3


to_a2a(agent, deps_factory=value)
to_a2a(agent, deps_factory=local_value)
to_a2a(agent, deps_factory=awaited)
to_a2a(agent, deps_factory=context)
to_a2a(agent, deps_factory=async_context)
to_a2a(agent, deps_factory=awaited_context)
to_a2a(agent, deps_factory=lambda call: Deps(call.task_id))
to_a2a(optional, deps_factory=value)
to_a2a(optional, deps_factory=async_context)
to_a2a(optional, deps_factory=lambda call: None)
to_a2a(plain, deps_factory=number)
to_a2a(agent, deps_factory=number)  # type: ignore[arg-type]
to_a2a(agent, deps_factory=awaited_number)  # type: ignore[arg-type]
to_a2a(agent, deps_factory=number_context)  # type: ignore[arg-type]
to_a2a(agent, deps_factory=async_number_context)  # type: ignore[arg-type]
to_a2a(agent, deps_factory=lambda call: 3)  # type: ignore[arg-type, return-value]
to_a2a(optional, deps_factory=number)  # type: ignore[arg-type]


# --- hooks


def on_text(result: AgentRunResult[str]) -> None:
    print(result.output.upper())


async def on_city(result: AgentRunResult[City]) -> None:
    print(result.output.name)


def on_city_or_number(result: AgentRunResult[City | int]) -> None: ...


def on_any(result: AgentRunResult[Any]) -> None: ...


def on_call(call: ToolCall[Deps]) -> None:
    print(call.ctx.deps.user)


def on_any_call(call: ToolCall) -> None: ...


def on_wrong_call(call: ToolCall[int]) -> None: ...


def on_result(result: ToolResult[Deps]) -> None:
    print(result.ctx.deps.user)


to_a2a(agent, on_complete=on_text)
to_a2a(agent, on_complete=on_any)
to_a2a(agent, on_complete=lambda result: print(result.output.upper()))
to_a2a(agent, on_complete=on_city)  # type: ignore[arg-type]
to_a2a(agent, on_complete=lambda result: print(result.output.name))  # type: ignore[attr-defined]
to_a2a(cities, on_complete=on_city)
to_a2a(cities, on_complete=on_city_or_number)
to_a2a(cities, on_complete=on_text)  # type: ignore[arg-type]
to_a2a(agent, output_type=City, on_complete=on_city)
to_a2a(agent, output_type=City, on_complete=lambda result: print(result.output.name))
to_a2a(agent, output_type=[City, int], on_complete=on_city_or_number)
to_a2a(agent, output_type=None, on_complete=on_text)
to_a2a(agent, output_type=City, on_complete=on_text)  # type: ignore[misc]
to_a2a(cities, output_type=str, on_complete=on_city)  # type: ignore[misc]
to_a2a(agent, on_tool_call=on_call, on_tool_result=on_result)
to_a2a(agent, on_tool_call=on_any_call, on_tool_result=on_any_call)
to_a2a(agent, on_tool_call=on_wrong_call)  # type: ignore[arg-type]


def agent_of_unknown_types(served: AbstractAgent[Any, Any]) -> None:
    to_a2a(served, deps=3, on_complete=on_text)
    to_a2a(served, deps_factory=value, on_complete=lambda result: print(result.output))


def first_call(task: WaitingTask) -> WaitingCall:
    return task.calls[0]


# --- other arguments


to_a2a(agent, name='ada')
to_a2a(agent, name=3)  # type: ignore[call-overload]
to_a2a(agent, nmae='ada')  # type: ignore[call-overload]


# --- outputs of remote agents


async def outputs(client: A2AClient, chat: Conversation, test: A2ATestClient) -> None:
    city: City = (await client.send('Hi.', output_type=City)).output
    async for update in client.stream('Hi.', output_type=City):
        city = update.result.output
        number: int = update.result.output  # type: ignore[assignment]
    async for update in chat.stream('Hi.', output_type=City):
        number = update.result.output  # type: ignore[assignment]
    async for update in test.stream('Hi.', output_type=City):
        number = update.result.output  # type: ignore[assignment]
    number = (await client.send('Hi.')).output
    async for untyped in client.stream('Hi.'):
        number = untyped.result.output
    print(city, number, await anext(client.stream('Hi.')), await anext(chat.stream('Hi.')))


def bare(update: Update, updates: list[Update]) -> RemoteResult:
    updates.append(update)
    return update.result
