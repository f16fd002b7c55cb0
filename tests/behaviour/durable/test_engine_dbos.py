"""What is peculiar to tasks as workflows of DBOS."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dbos
import pytest
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.engines.dbos import DBOS
from pydantic_ai_a2a.errors import BackendUnusable

from ...client import LIMIT, texts
from ...engines import DbosKit
from ..stage import serving
from .test_checkpoints import served


@pytest.fixture
def kit(tmp_path: Path) -> DbosKit:
    return DbosKit(tmp_path)


async def test_a_workflow_that_no_task_of_this_process_has_waits(kit: DbosKit) -> None:
    async with serving(kit.agent(TestModel()), **kit.options()) as client:
        task = await client.send('hello')
        fork = await dbos.DBOS.fork_workflow_async(f'{task["id"]}.1', 1)
        async with asyncio.timeout(LIMIT):
            while (await fork.get_status()).status == 'ENQUEUED':  # noqa: ASYNC110 - DBOS tells nobody
                await asyncio.sleep(0.01)
        assert (await fork.get_status()).status == 'PENDING'


async def test_apps_of_a_process_share_one_engine_and_a_second_dbos_is_refused(kit: DbosKit, tmp_path: Path) -> None:
    shared = kit.options()
    other: dict[str, Any] = {
        'backend': f'sqlite:///{tmp_path}/other.db',
        'engine': DBOS(f'sqlite:///{tmp_path}/another.db'),
    }
    agent = Agent(TestModel(custom_output_text='Hi.'), name='second', capabilities=[DBOSDurability()])
    async with served(kit.agent(TestModel(custom_output_text='Hello.')), **shared) as client:
        assert texts(await client.send('hello')) == ['Hello.']
        async with served(agent, **{**other, 'engine': shared['engine']}) as second:
            assert texts(await second.send('hello')) == ['Hi.']
        assert texts(await client.send('hello')) == ['Hello.']
        refused = to_a2a(agent, **other)
        with pytest.raises(BackendUnusable, match='give all apps the same engine'):
            async with refused.router.lifespan_context(refused):
                pytest.fail('it has started')
