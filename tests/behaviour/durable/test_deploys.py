"""Processes of several versions over one store, while a version replaces another one.

The steps of the newer version are made up.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a import Postgres, to_a2a
from pydantic_ai_a2a.errors import BackendUnusable
from pydantic_ai_a2a.server.store.postgres import migration
from pydantic_ai_a2a.server.store.postgres.connect import once
from pydantic_ai_a2a.server.store.sql.migrations import MIGRATIONS, newest
from pydantic_ai_a2a.server.store.sqlite.connect import connect
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ...agents import GatedAgent, echo_prompts
from ...app_client import message, texts
from ...dialects import in_no_version
from ...serving import serving, wait_until_ended

pytestmark = in_no_version('where tasks are kept is below what versions differ in')

KNOWN = newest(MIGRATIONS)
ADDS = (
    (
        'CREATE TABLE note (agent TEXT NOT NULL, task_id TEXT NOT NULL)',
        'ALTER TABLE task ADD COLUMN noted INTEGER NOT NULL DEFAULT 0',
        'ALTER TABLE conversation ADD COLUMN noted INTEGER',
    ),
    ('CREATE INDEX task_noted ON task (agent, noted)', 'CREATE INDEX conversation_noted ON conversation (noted)'),
)
"""Two steps that older processes can bear."""
CHANGES = ((f'UPDATE a2a_schema SET min_reader = {KNOWN + 1}',),)


async def upgrade(url: str, steps: Sequence[Sequence[str]]) -> None:
    """Take further steps, as a process of a newer version does."""
    newer = [*MIGRATIONS, *steps]
    if url.startswith('sqlite'):
        connect(SqliteFile.of(url), newer).close()
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migration, 'MIGRATIONS', newer)
        await once(Postgres(url), migration.migrate)


@pytest.fixture(params=['sqlite', 'postgres'])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == 'sqlite':
        return f'sqlite:///{request.getfixturevalue("tmp_path")}/agent.db?synchronous=normal'
    return request.getfixturevalue('postgres_url')


async def test_additive_migration_does_not_stop_older_version(url: str) -> None:
    gates = GatedAgent()
    gates.open('two', 'three')
    async with serving(gates.agent, backend=url) as client:
        running = await client.send(message('one', contextId='c'), returnImmediately=True)
        await gates.reached('one')
        await upgrade(url, ADDS)
        gates.open('one')
        assert texts(await wait_until_ended(client, running['id'])) == ['one']
        assert texts(await client.send(message('two', contextId='c'))) == ['one + two']
    async with serving(gates.agent, backend=url) as client:
        assert texts(await client.get_task(running['id'])) == ['one']
        assert texts(await client.send(message('three', contextId='c'))) == ['one + two + three']


async def test_older_version_cannot_start_after_breaking_migration(url: str) -> None:
    agent = Agent(FunctionModel(echo_prompts), name='ada')
    async with serving(agent, backend=url) as client:
        await client.send('one')
        await upgrade(url, CHANGES)
        assert texts(await client.send('two')) == ['two']
    # With equal settings, the app would share the connections of the one before, which has looked already.
    app = to_a2a(agent, backend=url if url.startswith('sqlite') else Postgres(url, pool_size=3))
    with pytest.raises(BackendUnusable) as refused:
        async with app.router.lifespan_context(app):
            pytest.fail('it has started')
    assert str(refused.value).partition(' cannot be used: ')[2] == (
        f'it was written by a newer version of pydantic-ai-a2a (schema {KNOWN + 1}, for versions that know'
        f' {KNOWN + 1}, and this version knows {KNOWN}): upgrade the package, or use another database.'
    )
