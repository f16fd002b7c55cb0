"""Connections that are cut at random places: every artifact is complete and comes once, and no task runs twice."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest
from fasta2a.schema import AgentCard
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.responses import Response
from starlette.types import ASGIApp

from pydantic_ai_a2a import A2AClient, RemoteUnavailable, serve

from ..bounds import LIMIT
from ..long import size
from .canned import WORKING, Canned, stream
from .peers import ANSWER, Talker, fasta2a, official, ours
from .proxy import cutting
from .test_peers import text_of


async def answer(client: A2AClient, n: int, *, stream: bool, resend: bool = False) -> Any:
    """The task of one message, by a stream for each second one."""
    if not stream:
        return (await client.send(f'hello {n}')).outcome
    task: Any = None
    async for update in client.stream(f'hello {n}', resend=resend):
        task = update.task
    return task


async def carded(client: A2AClient) -> None:
    """Fetch the card, over cut connections or on a slow machine."""
    while True:
        try:
            await client.card()
        except RemoteUnavailable:
            continue
        return


@pytest.mark.long
async def test_over_a_bad_network_every_task_of_ours_runs_once_and_is_complete() -> None:
    tasks = size(40, 500)
    talker = Talker()
    app = ours(talker)
    with serve(app) as server:
        async with asyncio.timeout(LIMIT), cutting(server.url, share=0.6, seed=1) as (url, cutter):
            async with A2AClient(url, timeout=LIMIT) as client:
                await carded(client)
                answered = [await answer(client, n, stream=n % 2 == 0) for n in range(tasks)]
                assert cutter.cuts > tasks / 3
            assert [text_of(task) for task in answered] == [ANSWER] * tasks
            assert len({task['id'] for task in answered}) == tasks
        async with A2AClient(server.url) as client:
            assert len([task async for task in client.list()]) == tasks


async def card_with(url: str, server_url: str) -> AgentCard:
    """The card of a server, with the proxy in the place of the server."""
    async with A2AClient(server_url) as client:
        card = await client.card()
    [interface, *_] = card.get('supported_interfaces', [])
    interface['url'] = url + urlsplit(interface['url']).path.removeprefix('/')
    return card


def official_at_root(talker: Talker) -> ASGIApp:
    return official(talker, 'JSONRPC', '1.0')


@pytest.mark.long
@pytest.mark.parametrize('app', [official_at_root, fasta2a], ids=['official', 'fasta2a'])
async def test_over_a_bad_network_every_started_task_of_others_is_complete(app: Any) -> None:
    tasks = size(20, 100)
    with serve(app(Talker()), anonymous=True) as server:
        async with asyncio.timeout(LIMIT), cutting(server.url, share=0.6, seed=2) as (url, cutter):
            card = await card_with(url, server.url)
            answered: list[Any] = []
            lost = 0
            async with A2AClient(card, timeout=LIMIT) as client:
                while len(answered) < tasks:
                    try:
                        answered.append(await answer(client, len(answered), stream=True))
                    except RemoteUnavailable:  # a task that may have been started
                        lost += 1
            assert cutter.cuts > lost > 0
            assert [text_of(task) for task in answered] == [ANSWER] * tasks


async def test_a_request_without_an_answer_is_not_sent_again_to_an_agent_that_would_run_it_twice() -> None:
    with serve(official_at_root(Talker()), anonymous=True) as server:
        async with asyncio.timeout(LIMIT), cutting(server.url, share=1, seed=4) as (url, _):
            card = await card_with(url, server.url)
            async with A2AClient(card, timeout=LIMIT) as client:
                answers = await asyncio.gather(*(client.send('hello') for _ in range(20)), return_exceptions=True)
            lost = [error for error in answers if isinstance(error, RemoteUnavailable)]
            assert any('may have been started' in str(error) for error in lost)


async def test_an_agent_that_is_gone_is_given_up() -> None:
    server = serve(Agent(TestModel()))
    async with asyncio.timeout(LIMIT):
        async with A2AClient(server.url) as client:
            card = await client.card()
        server.close()
    async with asyncio.timeout(LIMIT), A2AClient(card, timeout=0.3) as client:
        with pytest.raises(RemoteUnavailable, match='cannot be reached'):
            await client.send('hello')
        with pytest.raises(RemoteUnavailable, match='cannot be reached'):
            await client.get('task')


async def test_a_client_that_gives_up_names_the_task_that_may_go_on() -> None:
    canned = Canned(stream({'task': WORKING}), Response('', 502))
    async with A2AClient(canned.app, timeout=1.0) as client:
        with pytest.raises(RemoteUnavailable, match='The task t may go on: read it with `get`') as lost:
            await client.send('Hello.')
        assert lost.value.task_id == 't'


async def test_a_client_that_gives_up_before_the_task_is_named_says_that_it_may_have_been_started() -> None:
    async with A2AClient(Canned(Response('', 502)).app, timeout=1.0) as client:
        with pytest.raises(RemoteUnavailable, match=r'The task may have been started: `list` has it then\.') as lost:
            await client.send('Hello.', resend=True)
        assert lost.value.task_id is None
