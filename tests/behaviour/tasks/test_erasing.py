"""An owner who is being erased: messages are refused until the erasure has ended, so that it comes to its end."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest

from pydantic_ai_a2a import Workers
from pydantic_ai_a2a.app.app import A2AApp
from pydantic_ai_a2a.commands.stores import erase_all
from pydantic_ai_a2a.store.ports import Backend

from ...bounds import LIMIT
from ...client import Client, RpcError, message
from ..stage import Stage, serving

OWNER = '/'
STORES = ('memory', 'file', 'postgres')


def place(store: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The options of an app with an empty store."""
    if store == 'memory':
        return {}
    if store == 'postgres':
        return {'backend': request.getfixturevalue('postgres_url'), 'name': 'agent'}
    path: Path = request.getfixturevalue('tmp_path')
    return {'backend': f'sqlite:///{path}/agent.db', 'name': 'agent'}


def backend_of(client: Client) -> Backend:
    """The store of a client's app."""
    assert isinstance(client.app, A2AApp)
    return client.app.backend


async def keep_sending(
    client: Client, context_id: str, refused: defaultdict[str, set[str]], done: asyncio.Event
) -> None:
    """Send messages to a context, each as a new task, and keep the texts of the refusals by context."""
    while not done.is_set():
        try:
            await client.send(message(contextId=context_id), returnImmediately=True)
        except RpcError as error:
            refused[context_id].add(error.message)
        await asyncio.sleep(0.01)  # leaves time for the erasure


@pytest.mark.parametrize('context_id', [None, 'one'])
@pytest.mark.parametrize('store', STORES)
async def test_an_erasure_ends_beside_clients_that_keep_sending(
    store: str, context_id: str | None, request: pytest.FixtureRequest
) -> None:
    stage, done, refused = Stage(), asyncio.Event(), defaultdict[str, set[str]](set)
    erased = {'one', 'two'} if context_id is None else {context_id}
    async with serving(stage.agent, workers=Workers(running=4), **place(store, request)) as client:
        senders = [asyncio.create_task(keep_sending(client, one, refused, done)) for one in ('one', 'one', 'two')]
        await stage.reached('hello')
        try:
            while not erased <= set(refused):  # a short erasure may end between two messages
                await erase_all(backend_of(client), OWNER, context_id, grace=LIMIT)
        finally:
            done.set()
        await asyncio.gather(*senders)
        refusal = {'The data of the caller, or of the context, is being erased; try again later.'}
        assert refused == dict.fromkeys(erased, refusal)
        assert await client.send(message(contextId='one'), returnImmediately=True)
