"""The running tasks of a caller have a limit: its other tasks wait, and leave the slots to the tasks of others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Limits, Quotas, Workers, to_a2a

from ...client import LIMIT, Client, lifespan, state_of
from ..foreign import foreign
from ..metered import AUTH, by
from ..stage import ended


@pytest.fixture(params=['memory', 'sqlite', 'postgres'])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case 'sqlite':
            return f'sqlite:///{tmp_path}/agent.db'
        case 'postgres':
            return request.getfixturevalue('postgres_url')
        case _:
            return 'memory'


async def test_a_caller_with_many_tasks_leaves_room_for_others_and_all_of_them_end(backend: str) -> None:
    goes_on = asyncio.Event()
    running: list[str] = []
    most: list[int] = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        text = 'long' if 'long' in str(messages[0]) else 'short'
        running.append(text)
        most.append(running.count('long'))
        if text == 'long':
            await goes_on.wait()
        running.remove(text)
        return ModelResponse(parts=[TextPart('done')])

    agent = Agent(FunctionModel(model), name='agent')
    limits = Limits(quotas=Quotas(running=2))
    app = to_a2a(agent, backend=backend, auth=AUTH, limits=limits, workers=Workers(running=4, lease=1))
    async with lifespan(app), asyncio.timeout(LIMIT):
        ann, bob = by(Client(app), 'ann'), by(Client(app), 'bob')
        long = [await ann.send('long', returnImmediately=True) for _ in range(5)]
        for _ in range(3):
            assert state_of(await bob.send('short')) == 'COMPLETED'
        states = [state_of(await ann.get_task(task['id'])) for task in long]
        assert sorted(states) == ['SUBMITTED'] * 3 + ['WORKING'] * 2
        goes_on.set()
        for task in long:
            assert state_of(await ended(ann, task['id'])) == 'COMPLETED'
    assert max(most) == 2


@pytest.mark.parametrize(
    ('options', 'error'),
    [
        ({}, r'^Quotas\.running needs auth=: all anonymous callers are one caller'),
        ({'auth': AUTH, 'workers': Workers(worker=foreign())}, r'^Quotas\.running cannot be combined with'),
    ],
)
def test_the_limit_needs_callers_who_can_be_told_apart_and_a_worker_of_the_package(options: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        to_a2a(Agent('test'), limits=Limits(quotas=Quotas(running=2)), **options)
