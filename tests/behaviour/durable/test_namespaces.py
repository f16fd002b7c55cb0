"""The name under which tasks are stored, and what the log says of the other names and agents of a store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a import A2AApp, Messages, Retention, to_a2a
from pydantic_ai_a2a.errors import AgentUnnamed, StoreUnavailable
from pydantic_ai_a2a.server.runs.presence import present
from pydantic_ai_a2a.server.store.postgres.settings import Postgres
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ...agents import echo_prompts
from ...app_client import lifespan, message
from ...bounds import LIMIT
from ...cases import each_case
from ...clocks import SetClock
from ...commands.command import run_command
from ...dialects import in_no_version
from ...logs import log_event
from ...serving import serving
from ..refusals import BASE_EXCEPTIONS

pytestmark = in_no_version('where tasks are kept is below what versions differ in')


@pytest.fixture(params=['file', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    return f'sqlite:///{tmp_path}/office.db' if request.param == 'file' else request.getfixturevalue('postgres_url')


def named(name: str) -> Agent[None, str]:
    return Agent(FunctionModel(echo_prompts), name=name)


def skill(*ids: str) -> Any:
    return [{'id': name, 'name': name, 'description': name, 'tags': ['x']} for name in ids]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if 'namespace' in record.getMessage()]


OPTIONS: list[dict[str, Any]] = [
    {},
    {'retention': Retention(namespace='')},
    {'name': ''},
    {'messages': Messages(reply='message')},
]


@each_case('options', OPTIONS)
@each_case('wrap', [Agent, WrapperAgent], ids=lambda wrap: wrap.__name__)
def test_unnamed_agent_with_persistent_store_is_refused(
    url: str, wrap: Callable[[Any], AbstractAgent[Any, Any]], options: dict[str, Any]
) -> None:
    weather = wrap('test' if wrap is Agent else Agent('test'))
    with pytest.raises(AgentUnnamed) as refused:
        to_a2a(weather, backend=Postgres(url) if url.startswith('postgres') else url, **options)
    assert str(refused.value) == (
        "The agent has no name, under which its tasks would be stored: write Agent(…, name='weather'),"
        " to_a2a(name='weather') or Retention(namespace='weather'). Tasks that were stored without a name are under"
        " 'agent', and Retention(namespace='agent') keeps them."
    )


async def test_name_option_namespace_and_agent_name_select_same_tasks(url: str) -> None:
    weather = Agent(FunctionModel(echo_prompts))
    ways: list[dict[str, Any]] = [{'name': 'weather'}, {'retention': Retention(namespace='weather')}]
    for options in ways:
        async with serving(weather, backend=url, **options) as client:
            await client.send(message('one', contextId='c'))
    assert weather.name is None  # no run of a server gives the agent a name
    with pytest.raises(AgentUnnamed):
        to_a2a(weather, backend=url)
    await weather.run('hello')  # Pydantic AI takes the name of the variable
    async with serving(weather, backend=url) as client:
        task = await client.send(message('two', contextId='c'))
    assert task['artifacts'][0]['parts'][0]['text'] == 'one + one + two'


async def test_unnamed_agent_may_use_memory_or_own_storage(tmp_path: Path) -> None:
    own = SqliteFileBackend(SqliteFile.of(f'sqlite:///{tmp_path}/own.db'), 'mine', reader_lag=10**6)
    ways: list[dict[str, Any]] = [{}, {'backend': own}, {'storage': InMemoryStorage()}]
    for options in ways:
        async with serving(Agent(FunctionModel(echo_prompts)), **options) as client:
            assert (await client.send())['artifacts']


def test_commands_refuse_unnamed_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'unnamed.py').write_text("from pydantic_ai import Agent\njoker = Agent('test')\n")
    for name in ('serve', 'worker', 'queue'):
        ended = run_command(capsys, name, 'unnamed:joker', '--backend', 'sqlite:///office.db')
        assert ended.code == 2
        assert "The agent has no name, under which its tasks would be stored: write Agent(…, name='joker')" in ended.err


@pytest.mark.parametrize('direct', [False, True], ids=['task', 'message'])
async def test_empty_namespace_in_used_store_is_logged_once(
    url: str, direct: bool, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = Messages(reply='message' if direct else 'task')
    async with serving(named('weather'), backend=url, messages=messages) as client:
        await client.call('SendMessage', {'message': message()})
    assert not warnings(caplog)  # the first one of a store
    with log_event("'joker' has no data") as logged:
        async with serving(named('joker'), backend=url, messages=messages) as client:
            await client.call('SendMessage', {'message': message()})
            assert await asyncio.to_thread(logged.wait, LIMIT)
    [line] = warnings(caplog)
    caplog.clear()
    async with serving(named('joker'), backend=url):
        pass
    assert not warnings(caplog)
    place = re.escape(str(Postgres(url).place)) if url.startswith('postgres') else '.*office.db'
    shown = re.fullmatch(
        rf"The namespace 'joker' has no data in the (SQLite file|PostgreSQL database) {place}, which has data of"
        r" 'weather'\. If the agent had another name before, Retention\(namespace=…\) with that name keeps its tasks\."
        r' To see all: pydantic-ai-a2a (queue .*)',
        line,
    )
    assert shown is not None, line
    arguments = shown[2].replace('MODULE:APP', f'--backend {url}').split()
    rows = (await asyncio.to_thread(run_command, capsys, *arguments, '--json')).lines
    assert [row['namespace'] for row in rows] == ['joker', 'weather']


async def test_namespace_warning_lists_at_most_ten_namespaces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f'sqlite:///{tmp_path}/an office.db'
    for n in range(11):
        async with serving(named(f'agent {n:02}'), backend=url) as client:
            await client.send()
    caplog.clear()
    with log_event("'another' has no data") as logged:
        async with serving(named('another'), backend=url):
            assert await asyncio.to_thread(logged.wait, LIMIT)
    [line] = warnings(caplog)
    assert "has data of 'agent 00', 'agent 01'," in line
    assert "'agent 09', …. If" in line
    assert line.endswith(f'queue --backend sqlite:///{tmp_path}/an%20office.db')


def announcement(app: A2AApp) -> asyncio.Event:
    """Set once an app has announced its service: the start of a server waits only a second for that."""
    announced, announce = asyncio.Event(), app.backend.announce

    async def tell(service: str, *, lease: int) -> None:
        await announce(service, lease=lease)
        announced.set()

    setattr(app.backend, 'announce', tell)  # noqa: B010 (a method)
    return announced


@pytest.mark.parametrize(
    ('options', 'others', 'told'),
    [
        ({}, {}, None),
        ({'skills': skill('a', 'b')}, {'skills': skill('b', 'a')}, None),
        ({}, {'name': "bob's\n"}, ("serves 'agent', and", 'serves "bob\'s\\n". Each')),
        ({}, {'skills': skill('a', 'b')}, ("serves 'agent', and", "serves 'agent' with the skills 'a', 'b'. Each")),
        ({'skills': skill('x' * 400)}, {'skills': skill('x' * 401)}, ("serves 'agent' with the skills 'xx", 'xxx… (')),
    ],
    ids=['equal', 'in another order', 'another name', 'other skills', 'long'],
)
async def test_differing_service_in_namespace_is_logged_once(
    url: str, options: dict[str, Any], others: dict[str, Any], told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Two workers of one process cannot share a namespace: the second one is a server without a worker here."""
    office = Retention(namespace='office')
    first, second = (to_a2a(named('agent'), backend=url, retention=office, **given) for given in (options, others))
    third = to_a2a(named('third'), backend=url, retention=office)
    second.hosting.runs_tasks = third.hosting.runs_tasks = False
    announced = [announcement(app) for app in (first, second, third)]
    async with asyncio.timeout(LIMIT):
        async with lifespan(first):
            await announced[0].wait()
            assert not warnings(caplog)
            for _ in range(2):
                async with lifespan(second):
                    await announced[1].wait()
                    announced[1].clear()
        lines = warnings(caplog)
        assert len(lines) == (told is not None)
        for line in lines:
            assert line.startswith("Another process of the namespace 'office' of the ")
            assert all(text in line for text in told), line
        caplog.clear()
        async with lifespan(third):
            await announced[2].wait()
            assert not warnings(caplog)  # the others have left


def test_service_is_announced_until_its_lease_expires(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, clock = SqliteFile.of(f'sqlite:///{tmp_path}/office.db'), SetClock()

    async def announced(service: str, *, lease: int = 30_000, again: bool = False) -> list[str]:
        """What the log says at the announcement of a process, which is then killed."""
        caplog.clear()
        backend = SqliteFileBackend(file, 'office', reader_lag=10**6, clock=clock)
        await backend.announce(service, lease=lease)
        if again:
            clock.passed += 20_000
            await backend.announce(service, lease=lease)
        backend.close()
        return warnings(caplog)

    async def all_announced() -> None:
        assert not await announced('weather', again=True)
        clock.passed += 20_000
        assert 'serves weather, and this one serves joker' in (await announced('joker'))[0]
        assert 'serves joker, and weather, and this one serves clerk' in (await announced('clerk', lease=0))[0]
        clock.passed += 10_001
        assert 'serves joker, and this one serves maid' in (await announced('maid', lease=0))[0]
        clock.passed += 30_000
        assert not await announced('other')

    asyncio.run(all_announced())


@pytest.mark.parametrize('error', [StoreUnavailable, *BASE_EXCEPTIONS.values()], ids=['error', *BASE_EXCEPTIONS])
async def test_service_announcement_is_renewed_after_failure(error: Callable[[], BaseException]) -> None:
    announced: list[int] = []
    renewed = asyncio.Event()

    class Shared(MemoryBackend):
        async def announce(self, service: str, *, lease: int) -> None:
            announced.append(lease)
            if len(announced) == 1:
                raise error()
            if len(announced) == 3:
                renewed.set()

    async with asyncio.timeout(LIMIT), present(Shared('office', reader_lag=1), 'weather', lease=0.03):
        await renewed.wait()
    assert announced[:3] == [30, 30, 30]
    assert announced[-1] == 0


async def test_server_stops_during_announcement_of_service() -> None:
    leases: list[int] = []

    class Hanging(MemoryBackend):
        async def announce(self, service: str, *, lease: int) -> None:
            leases.append(lease)
            if lease:
                await asyncio.Event().wait()

    async with asyncio.timeout(LIMIT), present(Hanging('office', reader_lag=1), 'weather', lease=30):
        pass
    assert leases == [30_000, 0]
