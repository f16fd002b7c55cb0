"""The client calls the official SDK of A2A 0.3, in a process and an environment of its own."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pydantic_ai_a2a import A2AClient
from pydantic_ai_a2a.client.connections import Connections
from pydantic_ai_a2a.doctor import examine
from pydantic_ai_a2a.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from ..bounds import LIMIT
from ..e2e.venvs import python_with_a2a_sdk_0_3
from ..tables import each_case
from .peers import ANSWER
from .proxy import cutting
from .test_cut import answer, card_with
from .test_peers import text_of


@pytest.fixture(scope='module')
def url() -> Generator[str]:
    program = Path(__file__).with_name('server_0_3.py')
    command = [str(python_with_a2a_sdk_0_3()), str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


async def test_a_message_is_answered_with_its_task(url: str) -> None:
    async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] == 'completed'
        assert text_of(task) == text_of((await client.get(task['id'])).outcome) == ANSWER
        with pytest.raises(UnsupportedOperationError):
            await anext(aiter(client.list()))


@each_case('declared', ['1.0', '0.1.0', None])
async def test_version_calls_a_version_that_the_card_does_not_declare(url: str, declared: str | None) -> None:
    async with asyncio.timeout(LIMIT), httpx2.AsyncClient() as http:
        card: Any = (await http.get(f'{url}.well-known/agent-card.json')).json()
    card['protocolVersion'] = declared
    async with asyncio.timeout(LIMIT), A2AClient(card, timeout=LIMIT, version='0.3') as client:
        assert text_of((await client.send('hello')).outcome) == ANSWER


async def test_a_stream_assembles_the_task(url: str) -> None:
    async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
        updates = [update async for update in client.stream('hello')]
        last: Any = updates[-1].task
        assert last['status']['state'] == 'completed'
        assert text_of(last) == ANSWER
        assert sum('artifact_update' in update.event for update in updates) == 4


async def test_a_running_task_is_followed_and_finished(url: str) -> None:
    async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
        stream = client.stream('wait')
        update = await anext(stream)
        while 'artifact_update' not in update.event:
            update = await anext(stream)
        task: Any = update.task
        await stream.aclose()
        followed = client.subscribe(task['id'])
        assert (await anext(followed)).task is not None
        await client.send('open')
        *_, last = [update async for update in followed]
        ended: Any = last.task
        assert ended['status']['state'] == 'completed'
        assert text_of(ended) == ANSWER
        with pytest.raises(TaskNotCancelableError):
            await client.cancel(task['id'])


async def test_an_unknown_task_is_a_typed_error(url: str) -> None:
    async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
        with pytest.raises(TaskNotFoundError):
            await client.get('no-such-task')


async def test_over_cut_connections_every_started_task_is_complete_and_its_artifact_comes_once(url: str) -> None:
    async with asyncio.timeout(LIMIT), cutting(url, share=0.6, seed=5) as (proxy_url, cutter):
        card = await card_with(proxy_url, url)
        async with A2AClient(card, timeout=LIMIT) as client:
            tasks = [await answer(client, n, stream=True, resend=True) for n in range(10)]
        assert cutter.cuts > 0
        assert [text_of(task) for task in tasks] == [ANSWER] * 10


async def test_what_an_examination_says_of_the_server(url: str) -> None:
    async with asyncio.timeout(LIMIT):
        connections = Connections(headers={}, auth=None, client=None, timeout=LIMIT)
        found = [finding async for finding in examine(url, connections)]
    noticed = {(finding.level, finding.step) for finding in found if finding.level not in ('ok', 'not checked')}
    assert noticed == {('hint', 'security'), ('hint', 'repeated message'), ('hint', 'event ids')}
