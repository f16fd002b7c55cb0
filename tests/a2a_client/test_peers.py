"""One body of tests over all servers: ours in each version and binding, the official SDK's, and FastA2A's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pydantic_ai_a2a import A2AClient
from pydantic_ai_a2a.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from ..bounds import LIMIT
from .peers import ANSWER, PEERS, Peer, Talker

pytestmark = pytest.mark.parametrize('peer', [pytest.param(peer, id=name) for name, peer in PEERS.items()])


@asynccontextmanager
async def calling(peer: Peer) -> AsyncGenerator[tuple[A2AClient, Talker]]:
    talker = Talker()
    async with asyncio.timeout(LIMIT), A2AClient(peer.app(talker), timeout=LIMIT, **peer.options) as client:
        yield client, talker


def text_of(task: Any) -> str:
    [artifact] = task['artifacts']
    return ''.join(part['text'] for part in artifact['parts'])


async def test_a_message_is_answered_with_its_task(peer: Peer) -> None:
    async with calling(peer) as (client, _):
        card = await client.card()
        assert card.get('supported_interfaces')
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] == 'completed'
        assert text_of(task) == ANSWER
        again = await client.get(task['id'])
        assert again.text == ANSWER
        assert again.context_id == task['context_id']


async def test_a_stream_assembles_the_task(peer: Peer) -> None:
    async with calling(peer) as (client, _):
        updates = [update async for update in client.stream([{'text': 'hello'}])]
        task: Any = updates[-1].task
        assert task['status']['state'] == 'completed'
        assert text_of(task) == ANSWER
        chunks = [update for update in updates if 'artifact_update' in update.event]
        assert len(chunks) >= 2
        partial: Any = chunks[0].task
        assert ANSWER.startswith(text_of(partial))
        assert text_of((await client.get(task['id'])).outcome) == ANSWER


async def test_a_running_task_is_returned_at_once_followed_and_finished(peer: Peer) -> None:
    async with calling(peer) as (client, talker):
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


async def test_a_task_is_given_back_when_the_wait_is_over(peer: Peer) -> None:
    async with calling(peer) as (client, talker):
        task: Any = (await client.send('wait', max_wait=1)).outcome
        assert task['status']['state'] in ('submitted', 'working')
        talker.opened.set()
        updates = [update async for update in client.subscribe(task['id'])]
        last: Any = updates[-1].task
        assert text_of(last) == ANSWER


async def test_a_running_task_is_canceled(peer: Peer) -> None:
    if not peer.cancels:
        pytest.skip("FastA2A's bridge cancels no running task")
    async with calling(peer) as (client, talker):
        task: Any = (await client.send('wait', return_immediately=True)).outcome
        await talker.reached.wait()
        canceled = await client.cancel(task['id'], metadata={'why': 'test'})
        assert canceled.state == 'canceled'
        with pytest.raises(TaskNotCancelableError):
            await client.cancel(task['id'])


async def test_an_unknown_task_is_a_typed_error(peer: Peer) -> None:
    async with calling(peer) as (client, _):
        with pytest.raises(TaskNotFoundError):
            await client.get('no-such-task')
        with pytest.raises(TaskNotFoundError):
            async for _ in client.subscribe('no-such-task'):
                pass


async def test_tasks_are_listed_over_all_pages(peer: Peer) -> None:
    async with calling(peer) as (client, _):
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


async def test_calls_side_by_side_do_not_mix(peer: Peer) -> None:
    async with calling(peer) as (client, _):
        results = await asyncio.gather(*(client.send(f'hello {n}') for n in range(8)))
        assert len({result.task_id for result in results}) == 8
        assert {result.text for result in results} == {ANSWER}
