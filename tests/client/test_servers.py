"""One body of tests over all servers: ours in each version and binding, the official SDK's, and FastA2A's.

The official SDK of A2A 0.3 runs in a process and an environment of its own.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pydantic_ai_a2a import A2AClient
from pydantic_ai_a2a.client.doctor.examination import examine
from pydantic_ai_a2a.client.http_connections import HttpConnections
from pydantic_ai_a2a.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from ..bounds import LIMIT
from ..e2e.venvs import python_with_a2a_sdk_0_3
from .cutting_proxy import cutting_proxy
from .servers import ANSWER, SERVERS, ServerKind, client_of, text_of, wait_until_named
from .test_http_connections import card_through_proxy, send_and_wait

EACH_SERVER = pytest.mark.parametrize('peer', [pytest.param(peer, id=name) for name, peer in SERVERS.items()])


@EACH_SERVER
async def test_sent_message_returns_completed_task(peer: ServerKind) -> None:
    async with client_of(peer) as (client, _):
        card = await client.card()
        assert card.get('supported_interfaces')
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] == 'completed'
        assert text_of(task) == ANSWER
        again = await client.get(task['id'])
        assert again.text == ANSWER
        assert again.context_id == task['context_id']


@EACH_SERVER
async def test_stream_updates_assemble_task(peer: ServerKind) -> None:
    async with client_of(peer) as (client, _):
        updates = [update async for update in client.stream([{'text': 'hello'}])]
        task: Any = updates[-1].task
        assert task['status']['state'] == 'completed'
        assert text_of(task) == ANSWER
        chunks = [update for update in updates if 'artifact_update' in update.event]
        assert len(chunks) >= 2
        partial: Any = chunks[0].task
        assert ANSWER.startswith(text_of(partial))
        assert text_of((await client.get(task['id'])).outcome) == ANSWER


@EACH_SERVER
async def test_subscribe_follows_running_task_to_completion(peer: ServerKind) -> None:
    async with client_of(peer) as (client, talker):
        task: Any = (await client.send('wait', return_immediately=True)).outcome
        await talker.reached.wait()
        assert (await client.get(task['id'])).state in ('submitted', 'working')
        followed = client.subscribe(task['id'])
        first: Any = await anext(followed)
        assert first.task['id'] == task['id']
        talker.opened.set()
        updates = [update async for update in followed]
        ended: Any = updates[-1].task
        assert ended['status']['state'] == 'completed'
        assert text_of(ended) == ANSWER
        *_, last = [update async for update in client.subscribe(task['id'])]
        assert text_of(last.task) == ANSWER


@EACH_SERVER
async def test_max_wait_returns_running_task(peer: ServerKind, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(peer) as (client, talker):
        task: Any = (await client.send('wait', max_wait=wait_until_named(monkeypatch))).outcome
        assert task['status']['state'] in ('submitted', 'working')
        talker.opened.set()
        updates = [update async for update in client.subscribe(task['id'])]
        last: Any = updates[-1].task
        assert text_of(last) == ANSWER


@EACH_SERVER
async def test_cancel_ends_running_task(peer: ServerKind) -> None:
    if not peer.cancels:
        pytest.skip("FastA2A's bridge cancels no running task")
    async with client_of(peer) as (client, talker):
        task: Any = (await client.send('wait', return_immediately=True)).outcome
        await talker.reached.wait()
        canceled = await client.cancel(task['id'], metadata={'why': 'test'})
        assert canceled.state == 'canceled'
        with pytest.raises(TaskNotCancelableError):
            await client.cancel(task['id'])


@EACH_SERVER
async def test_unknown_task_is_task_not_found(peer: ServerKind) -> None:
    async with client_of(peer) as (client, _):
        with pytest.raises(TaskNotFoundError):
            await client.get('no-such-task')
        with pytest.raises(TaskNotFoundError):
            async for _ in client.subscribe('no-such-task'):
                pass


@EACH_SERVER
async def test_list_returns_completed_tasks_of_context(peer: ServerKind) -> None:
    async with client_of(peer) as (client, _):
        task: Any = (await client.send('hello')).outcome
        if not peer.lists:
            with pytest.raises(UnsupportedOperationError):
                await anext(aiter(client.list()))
            return
        context_id = task['context_id']
        ids = {task['id']}
        for _ in range(2):
            again: Any = (await client.send('hello', context_id=context_id)).outcome
            ids.add(again['id'])
        listed = client.list(context_id=context_id, state='completed', include_artifacts=True)
        assert {result.task_id: result.text async for result in listed} == dict.fromkeys(ids, ANSWER)


@EACH_SERVER
async def test_concurrent_messages_get_separate_tasks(peer: ServerKind) -> None:
    async with client_of(peer) as (client, _):
        results = await asyncio.gather(*(client.send(f'hello {n}') for n in range(8)))
        assert len({result.task_id for result in results}) == 8
        assert {result.text for result in results} == {ANSWER}


# --- the official SDK of A2A 0.3


@pytest.fixture(scope='module')
def url() -> Generator[str]:
    program = Path(__file__).with_name('server_0_3.py')
    command = [str(python_with_a2a_sdk_0_3()), str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


async def test_server_of_0_3_answers_message_with_completed_task(url: str) -> None:
    async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] == 'completed'
        assert text_of(task) == text_of((await client.get(task['id'])).outcome) == ANSWER
        with pytest.raises(UnsupportedOperationError):
            await anext(aiter(client.list()))


async def test_stream_updates_of_0_3_assemble_task(url: str) -> None:
    async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
        updates = [update async for update in client.stream('hello')]
        last: Any = updates[-1].task
        assert last['status']['state'] == 'completed'
        assert text_of(last) == ANSWER
        assert sum('artifact_update' in update.event for update in updates) == 4


async def test_subscribe_follows_running_task_of_0_3_to_completion(url: str) -> None:
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


async def test_unknown_task_of_0_3_is_task_not_found(url: str) -> None:
    async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
        with pytest.raises(TaskNotFoundError):
            await client.get('no-such-task')


async def test_artifacts_of_0_3_are_complete_over_cut_connections(url: str) -> None:
    async with asyncio.timeout(LIMIT), cutting_proxy(url, share=0.6, seed=5) as (proxy_url, cutter):
        card = await card_through_proxy(proxy_url, url)
        async with A2AClient(card, timeout=LIMIT) as client:
            tasks = [await send_and_wait(client, n, stream=True, resend=True) for n in range(10)]
        assert cutter.cuts > 0
        assert [text_of(task) for task in tasks] == [ANSWER] * 10


async def test_doctor_reports_only_hints_for_server_of_0_3(url: str) -> None:
    async with asyncio.timeout(LIMIT):
        connections = HttpConnections(headers={}, auth=None, client=None, timeout=LIMIT)
        found = [finding async for finding in examine(url, connections)]
    noticed = {(finding.level, finding.step) for finding in found if finding.level not in ('ok', 'not checked')}
    assert noticed == {('hint', 'security'), ('hint', 'repeated message'), ('hint', 'event ids')}
