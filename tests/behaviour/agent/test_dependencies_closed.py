"""A database session for each run: hundreds of runs, of which many come to no good end, leave none open."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import CallContext

from ...agents import user_prompts
from ...app_client import Client, state_of
from ...serving import serving
from ...sizes import short_or_long

Session = sqlite3.Connection
AT_ONCE = 25


class Sessions:
    """Opens a connection to a database for each run, and keeps a table of it in there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connected()) as db:  # a connection's own `with` commits and does not close
            db.execute('CREATE TABLE session (task TEXT, opened INTEGER, closed INTEGER, said INTEGER)')

    def _connected(self) -> Session:
        db = sqlite3.connect(self._path, isolation_level=None)
        db.execute('PRAGMA synchronous = OFF')
        return db

    @asynccontextmanager
    async def __call__(self, call: CallContext) -> AsyncGenerator[Session]:
        db = self._connected()
        db.execute('INSERT INTO session VALUES (?, 1, 0, 0)', (call.task_id,))
        try:
            yield db
        finally:
            await asyncio.sleep(0)
            db.execute('UPDATE session SET closed = closed + 1 WHERE task = ?', (call.task_id,))
            db.close()

    def counted(self) -> tuple[int, int, int, int]:
        """Sessions, how often they were opened and closed, and what tools have written through them."""
        with closing(self._connected()) as db:
            [row] = db.execute('SELECT COUNT(*), SUM(opened), SUM(closed), SUM(said) FROM session')
        return row


class EveryEndAgent:
    """Tasks that end in every way there is: as their prompt says."""

    def __init__(self) -> None:
        self.agent: Agent[Session, str] = Agent(FunctionModel(self._answer), deps_type=sqlite3.Connection)
        self.agent.tool(self.say)
        self.waiting = 0
        self._all_wait = asyncio.Event()

    async def say(self, ctx: RunContext[Session]) -> None:
        """Write through the session of the run."""
        metadata: Any = ctx.metadata
        ctx.deps.execute('UPDATE session SET said = said + 1 WHERE task = ?', (metadata['a2a']['task_id'],))

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        match user_prompts(messages)[0]:
            case 'fail':
                raise ValueError
            case 'wait':
                self.waiting += 1
                self._all_wait.set()
                await asyncio.Event().wait()
            case 'say' if len(messages) == 1:
                return ModelResponse(parts=[ToolCallPart('say')])
            case _:
                return ModelResponse(parts=[TextPart('done')])
        raise AssertionError('it waits for ever')

    async def wait_for(self, count: int) -> None:
        """Until so many runs wait."""
        while self.waiting < count:
            self._all_wait.clear()
            await self._all_wait.wait()


async def end_states(client: Client, prompt: str, count: int) -> Counter[str]:
    """How so many tasks end, of which some run at a time."""
    states = Counter[str]()
    for _ in range(0, count, AT_ONCE):
        states.update(map(state_of, await asyncio.gather(*(client.send(prompt) for _ in range(AT_ONCE)))))
    return states


async def start_tasks(client: Client, prompt: str, count: int) -> list[str]:
    """Tasks that nobody waits for."""
    return [(await client.send(prompt, returnImmediately=True))['id'] for _ in range(count)]


@pytest.mark.long
async def test_dependencies_of_each_run_are_closed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, 'pydantic_ai_a2a')  # hundreds of tracebacks
    sessions, crowd = Sessions(tmp_path / 'sessions.db'), EveryEndAgent()
    timed_out, done, failed = short_or_long((50, 75, 75), (200, 350, 250))
    count = timed_out + done + failed + 8 * AT_ONCE
    async with serving(crowd.agent, deps_factory=sessions, timeout=0.01) as client:
        assert await end_states(client, 'wait', timed_out) == {'FAILED': timed_out}
    crowd.waiting = 0
    async with serving(crowd.agent, deps_factory=sessions, drain_grace=0.01) as client:
        assert await end_states(client, 'say', done) == {'COMPLETED': done}
        assert await end_states(client, 'fail', failed) == {'FAILED': failed}
        for n in range(1, 8):
            tasks = await start_tasks(client, 'wait', AT_ONCE)
            await crowd.wait_for(n * AT_ONCE)
            canceled = await asyncio.gather(*(client.call('CancelTask', {'id': task_id}) for task_id in tasks))
            assert Counter(map(state_of, canceled)) == {'CANCELED': AT_ONCE}
        await start_tasks(client, 'wait', AT_ONCE)  # these the server ends
        await crowd.wait_for(8 * AT_ONCE)
    assert sessions.counted() == (count, count, count, done)
