"""What messages that are answered with messages may take: at once, of the memory, and when they do not stop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Message
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Budget, Limits, Messages, Quotas, Workers
from pydantic_ai_a2a.server.store.ports import Charge
from pydantic_ai_a2a.server.store.sql.backend import SqlQuotas
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.settings import Reply

from ...agents import echo_prompts, user_prompts
from ...app_client import LIMIT, Client, Exchange, message, rpc
from ...clocks import skip_time
from ...logs import log_event, loop_errors
from ...serving import serving
from ..refusals import error_of_answer


def ask(client: Client, text: str, **configuration: Any) -> Exchange:
    """A message that is on its way."""
    params = {'message': message(text), **({'configuration': configuration} if configuration else {})}
    headers = {'Content-Type': 'application/json', **client.headers}
    return Exchange(client.app, 'POST', '/', headers, rpc('SendMessage', params))


class BlockedAgent:
    """An agent whose runs end when they are let go, but for quick ones; and how many have begun."""

    def __init__(self) -> None:
        self.begun, self.ended, self.one = 0, asyncio.Event(), asyncio.Event()
        self.agent: Agent[object, str] = Agent(FunctionModel(self._answer))

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if user_prompts(messages)[-1] != 'quick':
            self.begun += 1
            self.one.set()
            await self.ended.wait()
        return echo_prompts(messages, _)

    @asynccontextmanager
    async def serving(self, **options: Any) -> AsyncGenerator[Client]:
        async with serving(self.agent, messages=Messages(reply='message'), **options) as client, asyncio.timeout(LIMIT):
            yield client


async def test_simultaneous_messages_respect_task_quota(tmp_path: Path) -> None:
    held = BlockedAgent()
    quotas = Quotas(tasks=1, budgets=[Budget(window=timedelta(hours=1), requests=100)])
    async with held.serving(name='a', backend=f'sqlite:///{tmp_path}/a.db', limits=Limits(quotas=quotas)) as client:
        exchanges = [ask(client, f'message {n}') for n in range(5)]
        pending = {each.task for each in exchanges}
        async with asyncio.timeout(LIMIT):
            while len(pending) > 1:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            await held.one.wait()
        held.ended.set()
        answers = [await each.answer() for each in exchanges]
    assert sorted(each.status for each in answers).count(429) == 4
    assert held.begun == 1


async def test_twice_canceled_request_frees_its_slot() -> None:
    held = BlockedAgent()
    async with held.serving(workers=Workers(running=1)) as client:
        exchange = ask(client, 'slow')
        await held.one.wait()
        for _ in range(2):  # the second time while it waits for its run to stop
            exchange.task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await exchange.task
        while (answer := await ask(client, 'quick').answer()).status == 503:
            pass  # the run itself is over a moment later
    assert answer.status == 200


def backend_with_short_busy_timeout(folder: Path) -> SqliteFileBackend:
    """A file whose lock is waited for no longer than a moment."""
    file = SqliteFile(path=folder / 'a.db', synchronous='normal', busy_timeout=0.01)
    return SqliteFileBackend(file, 'agent', reader_lag=10**6)


@contextmanager
def locked_database(folder: Path) -> Generator[None]:
    """Lock the file against writers."""
    with closing(sqlite3.connect(folder / 'a.db', timeout=LIMIT, isolation_level=None)) as other:
        other.execute('BEGIN IMMEDIATE')
        yield


async def test_unstored_usage_of_disconnected_client_is_logged(tmp_path: Path) -> None:
    held, backend = BlockedAgent(), backend_with_short_busy_timeout(tmp_path)
    quotas = Quotas(budgets=[Budget(window=timedelta(hours=1), requests=100)])
    with loop_errors() as told, log_event('usage or the messages of a run could not be stored') as logged:
        async with held.serving(backend=backend, limits=Limits(quotas=quotas)) as client:
            exchange = ask(client, 'slow')
            await held.one.wait()
            with locked_database(tmp_path):
                exchange.gone.set()
                await exchange.task
                assert await asyncio.to_thread(logged.wait, LIMIT)
    assert told == []
    backend.close()


async def test_completed_run_waits_for_store_without_rerun(tmp_path: Path) -> None:
    held, backend = BlockedAgent(), backend_with_short_busy_timeout(tmp_path)
    async with held.serving(backend=backend) as client:
        exchange = ask(client, 'slow')
        await held.one.wait()
        with locked_database(tmp_path), log_event('continues once the store is available again') as waiting:
            held.ended.set()
            assert await asyncio.to_thread(waiting.wait, LIMIT)
        answer = await exchange.answer()
    assert (answer.status, held.begun) == (200, 1)
    assert b'slow' in answer.body
    backend.close()


async def test_wait_for_locked_store_ends_with_503(tmp_path: Path) -> None:
    held, backend = BlockedAgent(), backend_with_short_busy_timeout(tmp_path)
    async with held.serving(backend=backend, limits=Limits(max_wait=LIMIT / 4)) as client:
        exchange = ask(client, 'slow')
        await held.one.wait()
        with locked_database(tmp_path), log_event('continues once the store is available again') as waiting:
            held.ended.set()
            assert await asyncio.to_thread(waiting.wait, LIMIT)
            skip_time(LIMIT / 4)
            answer = await exchange.answer()
    assert (answer.status, answer.headers['retry-after']) == (503, '1')
    backend.close()


class FullDiskQuotas(SqlQuotas):
    """Has a disk that takes no more."""

    async def charge(self, charges: Sequence[Charge]) -> None:
        raise sqlite3.OperationalError('database or disk is full')


async def test_failed_charge_is_logged_after_disconnect(tmp_path: Path) -> None:
    held = BlockedAgent()
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'a.db', synchronous='normal'), 'agent', reader_lag=10**6)
    backend.quotas = FullDiskQuotas(backend)
    quotas = Quotas(budgets=[Budget(window=timedelta(hours=1), requests=100)])
    with loop_errors() as told, log_event('disk is full') as logged:
        async with held.serving(backend=backend, limits=Limits(quotas=quotas)) as client:
            exchange = ask(client, 'slow')
            await held.one.wait()
            exchange.gone.set()
            await exchange.task
    assert (told, logged.is_set()) == ([], True)
    backend.close()


@pytest.mark.parametrize('make_broker', [lambda: None, InMemoryBroker])
async def test_full_memory_store_refuses_direct_messages(
    make_broker: Callable[[], InMemoryBroker | None],
) -> None:
    async with serving(
        Agent(FunctionModel(echo_prompts)),
        messages=Messages(reply='message'),
        limits=Limits(memory=10**6),
        broker=make_broker(),
    ) as client:
        statuses = [(await ask(client, 'x' * 50_000).answer()).status for _ in range(20)]
        full = await ask(client, 'x' * 50_000).answer()
    assert 5 < statuses.count(200) < 20
    assert (error_of_answer(full, status=503).code, full.headers['retry-after']) == (-32000, '60')


@pytest.mark.parametrize('reply', ['message', 'task'])
async def test_direct_reply_waits_despite_return_immediately(reply: Reply) -> None:
    asked: list[Message] = []

    def rule(said: Message) -> Reply:
        asked.append(said)
        return reply

    held = BlockedAgent()
    async with (
        serving(held.agent, messages=Messages(reply=rule), limits=Limits(quotas=Quotas(streams=1))) as client,
        asyncio.timeout(LIMIT),
    ):
        first = ask(client, 'one', returnImmediately=True)
        await held.one.wait()
        second = ask(client, 'two', returnImmediately=True)
        if reply == 'message':
            error_of_answer(await second.answer(), status=429)
        held.ended.set()
        answers = [await first.answer()] + ([await second.answer()] if reply == 'task' else [])
    assert {each.status for each in answers} == {200}
    assert len(asked) == 2
