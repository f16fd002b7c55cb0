"""What is entered with the agent, and what happens if that fails."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.abc import TaskGroup
from pydantic_ai import Agent, FunctionToolset
from starlette.testclient import TestClient

from pydantic_ai_a2a import to_a2a

from ..client import LIMIT, Client, lifespan, message, state_of
from ..dialects import spoken
from .refused import refusal, send


class Connection(FunctionToolset[object]):
    """A toolset with a connection, made where the toolset is entered first."""

    def __init__(self, connect: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.connect = connect
        self.inside = 0

    async def __aenter__(self) -> Connection:
        self.inside += 1
        if self.inside == 1:
            try:
                await self.connect()
            except RuntimeError:
                self.inside = 0
                raise
        return self

    async def __aexit__(self, *args: object) -> None:
        self.inside -= 1


async def test_a_call_that_cannot_enter_the_agent_is_answered_and_the_next_one_tries_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[int] = []

    async def connect() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError('password "1234" is wrong')

    app = to_a2a(Agent('test', toolsets=[Connection(connect)]))
    answer = await Client(app).post(send())
    error = refusal(answer)
    assert (error.code, error.message) == (-32603, spoken().text('Internal error.'))
    assert b'1234' not in answer.body
    assert answer.headers['x-correlation-id'] in caplog.text
    assert 'password "1234" is wrong' in caplog.text
    assert state_of(await Client(app).send()) == 'COMPLETED'
    assert len(await app.list_tasks()) == 1


def test_an_app_whose_agent_cannot_be_entered_at_the_start_serves_its_card(caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    async def connect() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError('no key')

    app = to_a2a(Agent('test', toolsets=[Connection(connect)]))
    with TestClient(app) as client:
        assert 'The agent cannot be entered. Its card is served, and the next request tries again.' in caplog.text
        assert client.get('/.well-known/agent-card.json').status_code == 200
        assert len(attempts) == 1
        answer = client.post('/', content=send(), headers={'Content-Type': 'application/json'})
    assert state_of(spoken().result('SendMessage', answer.json())['task']) == 'COMPLETED'


async def test_a_server_outlives_what_dies_inside_its_agent(caplog: pytest.LogCaptureFixture) -> None:
    connection_lost = asyncio.Event()
    dead = asyncio.Event()
    groups: list[TaskGroup] = []

    async def read() -> None:
        try:
            await connection_lost.wait()
            raise RuntimeError('connection lost')
        finally:
            dead.set()

    async def connect() -> None:
        groups.append(anyio.create_task_group())
        await groups[0].__aenter__()
        groups[0].start_soon(read)

    app = to_a2a(Agent('test', toolsets=[Connection(connect)]))
    async with lifespan(app), asyncio.timeout(LIMIT):
        assert state_of(await Client(app).send()) == 'COMPLETED'
        connection_lost.set()
        await dead.wait()
        while 'Something inside the agent has failed' not in caplog.text:
            assert state_of(await Client(app).send()) == 'COMPLETED'


async def test_an_agent_that_cannot_be_left_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(FunctionToolset[object]):
        async def __aexit__(self, *args: object) -> None:
            if app.hosting.accepting():
                return  # the end of a run, which leaves it too
            raise RuntimeError('the door is stuck')

    app = to_a2a(Agent('test', toolsets=[Stuck()]))
    async with lifespan(app):
        assert state_of(await Client(app).send()) == 'COMPLETED'
    assert 'The agent could not be left properly.' in caplog.text
    assert 'the door is stuck' in caplog.text


def test_event_loops_that_have_ended_are_forgotten() -> None:
    app = to_a2a(Agent('test'))
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def once() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await Client(app).send(message())

    for _ in range(10):
        asyncio.run(once())
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 2  # the last, and one that a traceback may still hold
