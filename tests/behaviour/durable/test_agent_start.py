"""What is entered with the agent, and what happens if that fails."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice, repeat

import anyio
import pytest
from anyio.abc import TaskGroup
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.exceptions import UserError
from starlette.testclient import TestClient

from pydantic_ai_a2a import Limits, Quotas, Rate, to_a2a
from pydantic_ai_a2a.errors import BackendUnusable
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...app_client import LIMIT, Client, lifespan, message, state_of
from ...dialects import current_dialect, json_rpc
from ...serving import serving
from ..refusals import error_of_answer, send_body


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
            except (RuntimeError, ImportError):
                self.inside = 0
                raise
        return self

    async def __aexit__(self, *args: object) -> None:
        self.inside -= 1


@pytest.mark.parametrize('limits', [Limits(), Limits(quotas=Quotas(rates=Rate(1000, 60)))], ids=['all', 'counted'])
async def test_agent_start_failure_gets_503_and_is_retried(limits: Limits, caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    async def connect() -> None:
        attempts.append(1)
        if len(attempts) <= 2:
            raise RuntimeError('password "1234" is wrong')

    app = to_a2a(Agent('test', toolsets=[Connection(connect)]), limits=limits)
    app.hosting.pauses = partial(repeat, 3600.0)
    await Client(app).post(send_body())
    answer = await Client(app).post(send_body())
    error = error_of_answer(answer, status=503)
    assert (error.code, answer.headers['retry-after']) == (-32000, '5')
    assert b'1234' not in answer.body
    [record] = [each for each in caplog.records if answer.headers['x-correlation-id'] in each.getMessage()]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == 'password "1234" is wrong'
    assert len([each for each in caplog.records if each.exc_info]) == 2  # a line for each of the two requests
    assert state_of(await Client(app).send()) == 'COMPLETED'
    assert len(await app.list_tasks()) == 1


@pytest.mark.parametrize('kind', [UserError, ImportError])
async def test_agent_without_key_or_package_is_internal_error(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    async def connect() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise kind('the key 1234 is wrong')

    app = to_a2a(Agent('test', toolsets=[Connection(connect)]), limits=Limits(quotas=Quotas(rates=Rate(1000, 60))))
    app.hosting.pauses = partial(repeat, 3600.0)
    async with lifespan(app):
        answer = await Client(app).post(send_body())
        error = error_of_answer(answer)
        assert error.code == -32603
        assert error.message.startswith('The agent cannot be started. The log of the server has the reason')
        assert 'retry-after' not in answer.headers
        assert b'1234' not in answer.body
        [record] = [each for each in caplog.records if answer.headers['x-correlation-id'] in each.getMessage()]
        assert (record.levelname, record.exc_info and str(record.exc_info[1])) == ('ERROR', 'the key 1234 is wrong')
        assert (await Client(app).get('/health/ready')).status == 503
        assert len(attempts) == 2  # one at the start, and one for the request
        assert state_of(await Client(app).send()) == 'COMPLETED'


@json_rpc('the request is written by hand')
def test_agent_card_is_served_without_started_agent(caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    async def connect() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError('no key')

    app = to_a2a(Agent('test', toolsets=[Connection(connect)]))
    app.hosting.pauses = partial(repeat, 3600.0)
    with TestClient(app) as client:
        assert "The agent cannot be started: RuntimeError('no key'). The server serves only its card" in caplog.text
        assert client.get('/.well-known/agent-card.json').status_code == 200
        assert len(attempts) == 1
        answer = client.post('/', content=send_body(), headers={'Content-Type': 'application/json'})
    assert state_of(current_dialect().result('SendMessage', answer.json())['task']) == 'COMPLETED'


async def test_agent_start_is_retried_in_background(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[int] = []
    entered = asyncio.Event()

    async def connect() -> None:
        attempts.append(1)
        if len(attempts) < 4:
            raise RuntimeError('no key')
        entered.set()

    app = to_a2a(Agent('test', toolsets=[Connection(connect)]))
    first_pauses = list(islice(app.hosting.pauses(), 7))
    app.hosting.pauses = partial(repeat, 0.0)
    async with lifespan(app), asyncio.timeout(LIMIT):
        await entered.wait()
        assert state_of(await Client(app).send()) == 'COMPLETED'
    assert [said for said in caplog.messages if 'still' in said] == [
        "The agent still cannot be started, and the server tries again: RuntimeError('no key')"
    ] * 2
    assert first_pauses == [1, 2, 4, 8, 16, 30, 30]


async def test_server_stops_during_retry_of_agent_start() -> None:
    attempts: list[int] = []
    trying, given_up = asyncio.Event(), asyncio.Event()

    async def connect() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError('no key')
        trying.set()
        try:
            await asyncio.Future()
        finally:
            given_up.set()

    app = to_a2a(Agent('test', toolsets=[Connection(connect)]))
    app.hosting.pauses = partial(repeat, 0.0)
    async with asyncio.timeout(LIMIT):
        async with lifespan(app):
            await trying.wait()
        await given_up.wait()
    assert len(attempts) == 2


async def test_two_running_apps_cannot_share_a_backend() -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    apps = [to_a2a(Agent('test', name=name), backend=backend) for name in ('ada', 'bob')]
    async with lifespan(apps[0]):
        assert state_of(await Client(apps[0]).send()) == 'COMPLETED'
        with pytest.raises(BackendUnusable, match='Another running app of this process uses this backend'):
            async with apps[1].router.lifespan_context(apps[1]):
                pytest.fail('it has started')
        assert error_of_answer(await Client(apps[1]).post(send_body())).code == -32603
    async with lifespan(apps[1]):
        assert state_of(await Client(apps[1]).send()) == 'COMPLETED'
    del apps
    gc.collect()
    async with lifespan(to_a2a(Agent('test'), backend=backend)):
        pass
    backend.close()


async def test_server_survives_failure_inside_agent_context(caplog: pytest.LogCaptureFixture) -> None:
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

    async with serving(Agent('test', toolsets=[Connection(connect)])) as client:
        assert state_of(await client.send()) == 'COMPLETED'
        connection_lost.set()
        await dead.wait()
        while 'A failure inside the agent has closed' not in caplog.text:
            assert state_of(await client.send()) == 'COMPLETED'


async def test_agent_exit_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(FunctionToolset[object]):
        async def __aexit__(self, *args: object) -> None:
            if app.hosting.accepting():
                return  # the end of a run, which leaves it too
            raise RuntimeError('the door is stuck')

    app = to_a2a(Agent('test', toolsets=[Stuck()]))
    async with lifespan(app):
        assert state_of(await Client(app).send()) == 'COMPLETED'
    assert 'The agent failed while the server closed it; the server stops anyway.' in caplog.text
    assert 'the door is stuck' in caplog.text


def test_closed_event_loops_are_released() -> None:
    app = to_a2a(Agent('test'))
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def once() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await Client(app).send(message())

    for _ in range(10):
        asyncio.run(once())
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 2  # the last, and one that a traceback may still hold


def test_server_start_without_asyncio_is_refused() -> None:
    starting = to_a2a(Agent('test')).hosting.start()
    with pytest.raises(RuntimeError, match='--worker-class asyncio'):
        starting.send(None)  # as trio does
