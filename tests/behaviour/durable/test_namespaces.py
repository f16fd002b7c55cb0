"""The name under which tasks are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a import Messages, Retention, to_a2a
from pydantic_ai_a2a.errors import AgentUnnamed
from pydantic_ai_a2a.store.postgres.settings import Postgres
from pydantic_ai_a2a.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.store.sqlite.connect import SqliteFile

from ...client import message
from ...commands.command import command
from ...dialects import unversioned
from ...tables import each_case
from ..stage import heard, serving

pytestmark = unversioned('where tasks are kept is below what versions differ in')


@pytest.fixture(params=['file', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    return f'sqlite:///{tmp_path}/office.db' if request.param == 'file' else request.getfixturevalue('postgres_url')


def named(name: str) -> Agent[None, str]:
    return Agent(FunctionModel(heard), name=name)


OPTIONS: list[dict[str, Any]] = [
    {},
    {'retention': Retention(namespace='')},
    {'name': ''},
    {'messages': Messages(reply='message')},
]


@each_case('options', OPTIONS)
@each_case('wrap', [Agent, WrapperAgent], ids=lambda wrap: wrap.__name__)
def test_an_agent_without_a_name_is_refused_a_file_and_a_database(
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


async def test_each_way_out_gives_the_tasks_a_name(url: str) -> None:
    weather = Agent(FunctionModel(heard))
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


async def test_tasks_in_memory_and_in_a_store_of_ones_own_need_no_name(tmp_path: Path) -> None:
    own = SqliteFileBackend(SqliteFile.of(f'sqlite:///{tmp_path}/own.db'), 'mine', reader_lag=10**6)
    ways: list[dict[str, Any]] = [{}, {'backend': own}, {'storage': InMemoryStorage()}]
    for options in ways:
        async with serving(Agent(FunctionModel(heard)), **options) as client:
            assert (await client.send())['artifacts']


def test_a_command_refuses_an_agent_without_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'unnamed.py').write_text("from pydantic_ai import Agent\njoker = Agent('test')\n")
    for name in ('serve', 'worker', 'queue'):
        ended = command(capsys, name, 'unnamed:joker', '--backend', 'sqlite:///office.db')
        assert ended.code == 2
        assert "The agent has no name, under which its tasks would be stored: write Agent(…, name='joker')" in ended.err
