"""Functions that decide about requests and never return: they have a time limit, and end when the client leaves."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic_ai import Agent
from starlette.types import Message

from pydantic_ai_a2a import Access, Approvals, Caller, Credentials, Messages, serve, to_a2a
from pydantic_ai_a2a.auth import callers

from ...client import LIMIT, Client, Exchange, RpcError, lifespan, message, rpc
from ..asking import Tools


def identify(request: Any) -> Caller:
    return Caller(id=request.headers.get('x-caller', 'ann'))


def options_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the options of an app that calls a function."""
    if name == 'auth=':
        return {'auth': function}
    if name == 'Messages.reply':
        return {'auth': identify, 'messages': Messages(reply=function)}
    if name == 'Approvals.approvers':
        return {'auth': identify, 'approvals': Approvals(approvers=function)}
    option = name.removeprefix('Access.')
    access: dict[str, Any] = {option: function}
    if name == 'Credentials.exchange':
        access = {'credentials': Credentials(exchange=function, keys=[Fernet.generate_key().decode()])}
    return {'auth': identify, 'access': Access(**access)}


FUNCTIONS = (
    'auth=',
    'Access.tenants',
    'Access.extended_card',
    'Approvals.approvers',
    'Credentials.exchange',
    'Messages.reply',
)


class Endless:
    """A function that never returns, and is told that it ends."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, *_: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def asking(client: Client, name: str) -> tuple[Client, str, Any]:
    """Return a request that calls the function."""
    if name == 'Access.extended_card':
        return client, 'GetExtendedAgentCard', None
    if name == 'Access.tenants':
        return Client(client.app, path='/acme'), 'SendMessage', {'message': message()}
    if name == 'Approvals.approvers':
        task = await client.send('delete')
        return Client(client.app, headers={'X-Caller': 'bob'}), 'GetTask', {'id': task['id']}
    return client, 'SendMessage', {'message': message()}


@pytest.mark.parametrize('name', FUNCTIONS)
async def test_a_function_that_cancels_its_own_task_refuses_the_request(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave(*_: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        raise AssertionError

    app = to_a2a(Tools().agent, **options_of(leave, name))
    async with lifespan(app), asyncio.timeout(LIMIT):
        client, method, params = await asking(Client(app), name)
        answer = await client.post(rpc(method, params))
    assert (answer.json['error']['code'], answer.json['error']['message']) == (-32603, 'Internal error.')
    assert answer.headers['x-correlation-id'] in caplog.text


async def test_a_request_that_its_server_cancels_ends_though_a_function_cancels_it_too() -> None:
    begun = asyncio.Event()

    async def leave(_: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    app = to_a2a(Agent('test'), auth=leave)
    async with lifespan(app), asyncio.timeout(LIMIT):
        exchange = Exchange(app, 'POST', '/', {'Content-Type': 'application/json'}, rpc('SendMessage', {}))
        await begun.wait()
        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task


@pytest.mark.parametrize('name', FUNCTIONS)
async def test_a_function_that_does_not_return_is_given_up(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, 'PATIENCE', 0.01)
    endless = Endless()
    app = to_a2a(Tools().agent, **options_of(endless, name))
    async with asyncio.timeout(LIMIT), lifespan(app):
        client, method, params = await asking(Client(app), name)
        with pytest.raises(RpcError) as refused:
            await client.call(method, params)
    assert refused.value.message.endswith('try again later.')
    assert endless.ended.is_set()
    assert f'{name} has not returned within 0.01 s (correlation id ' in caplog.text


class Leaving(Exchange):
    """A request whose client sends the body, or a part of it, and may leave."""

    def __init__(self, client: Client, body: bytes, *, more: bool = False) -> None:
        self.taken = asyncio.Event()
        self.parts: asyncio.Queue[Message] = asyncio.Queue()
        self.parts.put_nowait({'type': 'http.request', 'body': body, 'more_body': more})
        super().__init__(client.app, 'POST', '/', {'Content-Type': 'application/json', 'A2A-Version': '1.0'}, b'')

    async def _receive(self) -> Message:
        message = await self.parts.get()
        self.taken.set()
        return message

    def leave(self) -> None:
        self.parts.put_nowait({'type': 'http.disconnect'})


@pytest.mark.parametrize('name', ['auth=', 'Messages.reply'])
async def test_a_function_ends_with_the_client(name: str) -> None:
    endless = Endless()
    app = to_a2a(Agent('test'), **options_of(endless, name))
    async with asyncio.timeout(LIMIT), lifespan(app):
        request = Leaving(Client(app), rpc('SendMessage', {'message': message()}))
        await endless.begun.wait()
        request.leave()
        await endless.ended.wait()
        await asyncio.wait([request.task])
        assert await app.list_tasks() == []


async def test_over_a_connection_a_function_ends_with_the_client() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def endless(_: Any) -> Caller:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    with serve(to_a2a(Agent('test'), auth=endless)) as server:
        host, _, port = server.url.removeprefix('http://').strip('/').partition(':')
        body = b'{}'
        with socket.create_connection((host, int(port)), timeout=LIMIT) as connection:
            connection.sendall(
                b'POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s'
                % (host.encode(), len(body), body)
            )
            assert await asyncio.to_thread(begun.wait, LIMIT)
        assert await asyncio.to_thread(ended.wait, LIMIT)


@pytest.mark.parametrize('pieces', [1, 3])
async def test_a_body_that_comes_while_the_client_is_watched_is_read(pieces: int) -> None:
    decide = asyncio.Event()

    async def auth(_: Any) -> Caller:
        await decide.wait()
        return Caller(id='ann')

    app = to_a2a(Agent('test'), auth=auth)
    body = rpc('SendMessage', {'message': message()})
    async with asyncio.timeout(LIMIT), lifespan(app):
        request = Leaving(Client(app), body[: len(body) // pieces], more=pieces > 1)
        await request.taken.wait()  # the server watches its client after a second
        for n in range(1, pieces):
            part = body[len(body) * n // pieces : len(body) * (n + 1) // pieces]
            request.parts.put_nowait({'type': 'http.request', 'body': part, 'more_body': n + 1 < pieces})
        decide.set()
        assert (await request.answer()).status == 200
        assert len(await app.list_tasks()) == 1
