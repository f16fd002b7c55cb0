"""Tasks whose stored runs cannot be read: each fails alone, and the tasks behind it run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a.server.store.ports import DeadLetter
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.wire.extensions.own_extensions import RUN_METADATA_URI

from ...agents import echo_prompts
from ...app_client import LIMIT, Client, texts
from ...dialects import in_no_version
from ...logs import log_event
from ...serving import each_backend, serving
from ..durable_handover import run_until_handover
from ..durable_processes import poll_until
from ..pending_calls import ApprovalAgent, answer_message, approve
from ..steps import Steps

pytestmark = in_no_version('where tasks are kept is below what versions differ in')
DAMAGED = f'{{"extensions": ["{RUN_METADATA_URI}", "secret'.encode()


async def damage(client: Client, task_id: str, column: str, table: str = 'task') -> None:
    """Write over a column of a task, as another program would."""

    def write() -> Transaction[None]:
        key = 'id' if table == 'task' else 'task_id'
        yield [(f'UPDATE {table} SET {column} = ? WHERE {key} = ?', [(DAMAGED, task_id)])]

    backend: Any = client.a2a_app.backend
    await backend.write(write)


async def check_dead_letter(client: Client, task_id: str, caplog: pytest.LogCaptureFixture) -> None:
    """Check that a task has failed, with a line in the log."""
    letters: list[DeadLetter] = []

    async def is_stored() -> bool:  # the line is logged before
        letters[:] = await client.a2a_app.backend.housekeeping.dead_letters()
        return bool(letters)

    await poll_until(is_stored)
    [letter] = letters
    assert (letter.task_id, letter.failure) == (task_id, 'storage')
    assert f'Task {task_id} failed (storage, correlation id {letter.correlation_id}).' in caplog.messages


@each_backend('sqlite', 'postgres')
@pytest.mark.parametrize(
    ('table', 'column'),
    [
        ('task', 'own_messages'),
        ('task', 'tried'),
        ('task', 'request'),
        ('task', 'metadata'),
        ('checkpoint', 'message'),
        ('checkpoint', 'used'),
    ],
)
async def test_unreadable_run_fails_and_later_tasks_run(
    table: str, column: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await run_until_handover('model 2', Steps(), backend=backend)
    async with serving(Agent(FunctionModel(echo_prompts), name='other'), backend=backend) as client:
        await damage(client, task_id, column, table)
    with log_event(f'Task {task_id} failed ') as failed:
        async with serving(Agent(FunctionModel(echo_prompts), name='agent'), backend=backend) as client:
            assert await asyncio.to_thread(failed.wait, LIMIT)
            assert texts(await client.send('next')) == ['next']
            await check_dead_letter(client, task_id, caplog)
    assert 'secret' not in caplog.text


@each_backend('sqlite', 'postgres')
@pytest.mark.parametrize('column', ['own_messages', 'own_usage'])
async def test_answered_task_with_unreadable_turn_fails(
    column: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(ApprovalAgent().agent, backend=backend) as client:
        waiting = await client.send('delete')
        await damage(client, waiting['id'], column)
        failed = await client.send(answer_message(waiting, approve()))
        assert failed['status']['message']['metadata']['failure'] == 'storage'
        assert texts(await client.send('next')) == ['next']
        await check_dead_letter(client, waiting['id'], caplog)
