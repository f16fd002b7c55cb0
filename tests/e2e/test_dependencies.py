"""The examples of dependencies, hooks and references, served by uvicorn and called over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.types import CancelTaskRequest, GetTaskRequest, SendMessageRequest, Task

from ..behaviour.rows import covers
from .official import OFFICIAL, official_client, say, state_of, task_of, text_of
from .server import LIMIT, ROOT, Process, process


def example(name: str) -> Any:
    """A server of an example."""
    return process('-m', 'uvicorn', f'{name}:app', '--app-dir', str(ROOT / 'examples'), '--port', '0')


@asynccontextmanager
async def customer(server: Process, name: str, **headers: str) -> AsyncGenerator[Any]:
    """What sends as a customer of the shop."""
    known = {'Authorization': '-'.join([f'Bearer {name}', *[name] * 4]), **headers}
    async with httpx.AsyncClient(timeout=LIMIT, headers=known) as http:
        client = await create_client(server.url, ClientConfig(httpx_client=http, streaming=False))

        async def order(what: str) -> Task:
            return await task_of(client.send_message(say(what)))

        yield order


@covers(OFFICIAL)
async def test_each_customer_of_the_shop_sees_what_was_ordered_in_sessions_that_ended_well() -> None:
    with example('dependencies') as server:
        async with customer(server, 'ann', **{'X-Currency': 'NOK'}) as ann, customer(server, 'bob') as bob:
            tasks = [await ann('skis'), await bob('a book'), await ann('nothing'), await ann('boots')]
    assert [state_of(task) for task in tasks] == [
        f'TASK_STATE_{state}' for state in ('COMPLETED', 'COMPLETED', 'FAILED', 'COMPLETED')
    ]
    assert [text_of(task) for task in tasks if task.artifacts] == [
        'skis in NOK',
        'a book in EUR',
        'skis in NOK, boots in NOK',
    ]


@covers(OFFICIAL)
@pytest.mark.parametrize(
    ('prompt', 'told'),
    [
        ('hi', 'completed: hi'),
        ('fail', r'failed: internal: It was told to\.'),
        ('wait', r'canceled: {task}\.1'),
    ],
)
async def test_the_hooks_of_the_example_tell_how_runs_end(prompt: str, told: str) -> None:
    with example('hooks') as server:
        async with official_client(server.url, streaming=False) as client:
            request = say(prompt)
            request.configuration.return_immediately = prompt == 'wait'
            task = await task_of(client.send_message(request))
            if prompt == 'wait':
                await running(client, task.id)
                await client.cancel_task(CancelTaskRequest(id=task.id))
            server.wait_for(told.format(task=task.id))


async def running(client: Client, task_id: str) -> None:
    """Wait until a task runs."""
    async with asyncio.timeout(LIMIT):
        while state_of(await client.get_task(GetTaskRequest(id=task_id))) != 'TASK_STATE_WORKING':
            pass


def about(text: str, *tasks: Task) -> SendMessageRequest:
    request = say(text)
    request.message.reference_task_ids.extend(task.id for task in tasks)
    return request


@covers(OFFICIAL)
async def test_the_lister_works_with_what_a_message_refers_to() -> None:
    with example('references') as server:
        async with official_client(server.url, streaming=False) as client:
            first = await task_of(client.send_message(say('milk')))
            second = await task_of(client.send_message(about('bread', first)))
    assert second.context_id != first.context_id
    assert text_of(second).splitlines() == [
        f'- -----BEGIN ARTIFACTS task="{first.id}"-----',
        '- - milk',
        f'- -----END ARTIFACTS task="{first.id}"-----',
        '- bread',
    ]
