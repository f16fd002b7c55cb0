"""The fixtures of the pytest plugin, in the hands of a user of anyio and of pytest-asyncio."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

import pytest

from ..e2e.forks import PYTEST
from ..e2e.server import process

APPROVAL = """
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.testing import Answers

agent = Agent('openai:gpt-5.2', defer_model_check=True)

@agent.tool_plain(requires_approval=True)
def delete_file(path: str) -> str:
    return f'{path} is deleted'

async def test_agent_deletes_after_approval(a2a_client):
    with agent.override(model=TestModel()):
        client = await a2a_client(agent)
        task = await client.send('Tidy up.', answers=Answers({'delete_file': True}))
    assert task.text == '{"delete_file":"a is deleted"}'
"""

LIFESPANS = """
from contextlib import asynccontextmanager
import pytest
from pydantic_ai import Agent
from pydantic_ai_a2a import to_a2a

opened = []

def app(name):
    @asynccontextmanager
    async def lifespan(app):
        opened.append(name)
        yield
        opened.remove(name)
    return to_a2a(Agent('test'), lifespan=lifespan)

class TestClients:
    async def test_both_are_open_in_the_test(self, a2a_client):
        first, second = await a2a_client(app('first')), await a2a_client(app('second'))
        assert (await first.send('Hi')).state == (await second.send('Hi')).state == 'completed'
        assert opened == ['first', 'second']

@pytest.mark.xfail(strict=True, raises=ZeroDivisionError)
async def test_that_fails(a2a_client):
    await a2a_client(app('third'))
    1 / 0

def test_all_are_closed_afterwards():
    assert opened == []

async def test_a_served_agent(a2a_client, a2a_server):
    client = await a2a_client(a2a_server(app('served')))
    assert (await client.send('Hi')).state == 'completed'
    assert opened == ['served']

def test_the_server_is_closed():
    assert opened == []
"""

IN_A_FIXTURE = """
import pytest
from pydantic_ai import Agent

@pytest.fixture
async def client(a2a_client):
    return await a2a_client(Agent('test'))

async def test_the_client_of_a_fixture(client):
    assert (await client.send('Hi')).state == 'completed'
"""

NOT_ASYNC = """
import asyncio
import pytest

def test_sync(a2a_client):
    with pytest.raises(RuntimeError) as error:
        asyncio.run(a2a_client('http://localhost'))
    assert str(error.value) == 'a2a_client needs an async test, and test_sync is none. Write `async def`.'
"""

NO_FIXTURE = """
import sys

def test_imports():
    assert 'pydantic_ai_a2a_pytest' in sys.modules
    assert {'pydantic_ai', 'pydantic_ai_a2a', 'httpx2', 'starlette'} & sys.modules.keys() == set()
"""

RUNNERS = {
    'anyio': ['-p', 'no:asyncio', '-o', 'anyio_mode=auto'],
    'asyncio': ['-p', 'no:anyio', '-o', 'asyncio_mode=auto', '-o', 'asyncio_default_fixture_loop_scope=function'],
}


def run(tmp_path: Path, options: list[str], *sources: str, fork: bool) -> tuple[int, str, str]:
    """Return the exit code, the output and the standard error of one pytest with a file of tests for each source."""
    for number, source in enumerate(sources):
        (tmp_path / f'test_{number}.py').write_text(source)
    (tmp_path / 'conftest.py').write_text("import pytest\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'\n")
    with TemporaryFile('w+') as errors:
        arguments = [*PYTEST, '-q', '-p', 'no:cacheprovider', '-p', 'no:hypothesispytest', *options]
        with process(*arguments, cwd=tmp_path, fork=fork, errors=errors.fileno()) as tests:
            code = tests.exit_code()
        errors.seek(0)
        return code, tests.output, errors.read()


@pytest.mark.parametrize('runner', RUNNERS)
def test_fixtures_work_with_anyio_and_pytest_asyncio(tmp_path: Path, runner: str) -> None:
    sources = [APPROVAL, LIFESPANS, IN_A_FIXTURE, NOT_ASYNC]
    code, output, errors = run(tmp_path, RUNNERS[runner], *sources, fork=True)
    assert (code, errors) == (0, ''), output + errors
    assert output.splitlines()[-1].startswith('7 passed, 1 xfailed')


def test_plugin_imports_package_only_if_fixture_is_used(tmp_path: Path) -> None:
    code, output, errors = run(tmp_path, ['-p', 'no:asyncio'], NO_FIXTURE, fork=False)
    assert (code, errors) == (0, ''), output + errors
