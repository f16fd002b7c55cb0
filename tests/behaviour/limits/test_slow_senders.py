"""Clients that send slowly or not at all: they are given up, and nobody else notices."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping

import pytest
from pydantic_ai import Agent
from starlette.types import Message

from pydantic_ai_a2a import Limits, serve, to_a2a

from ...client import LIMIT, Client, Exchange, state_of
from ...fixed import fixed
from ..refused import refusal, send, untouched
from ..stage import serving

SOON = fixed(Limits, body_time=0.01)
NEVER = fixed(Limits, body_time=1000)


class Slow(Exchange):
    """A request whose body comes as the test wants."""

    def __init__(self, client: Client, headers: Mapping[str, str] | None = None) -> None:
        self.asked = asyncio.Event()
        self.parts: asyncio.Queue[Message] = asyncio.Queue()
        merged = {'Content-Type': 'application/json', **client.headers, **(headers or {})}
        super().__init__(client.app, 'POST', '/', merged, b'')

    async def _receive(self) -> Message:
        self.asked.set()
        return await self.parts.get()

    def give(self, body: bytes, *, more: bool) -> None:
        self.parts.put_nowait({'type': 'http.request', 'body': body, 'more_body': more})


@pytest.mark.parametrize('begun', [b'', b'{"jsonrpc"'], ids=['nothing', 'the beginning'])
async def test_a_body_that_does_not_come_is_given_up(begun: bytes) -> None:
    async with untouched(limits=SOON) as client:
        slow = Slow(client)
        if begun:
            slow.give(begun, more=True)
        answer = await slow.answer()
        error = refusal(answer, status=408, id=None)
    assert (error.code, error.message) == (-32600, 'The request body did not arrive in time.')
    assert answer.headers['connection'] == 'close'


async def test_a_body_that_comes_in_pieces_is_taken() -> None:
    async with serving(Agent('test'), limits=NEVER) as client:
        slow, body = Slow(client), send()
        for n in range(len(body)):
            slow.give(body[n : n + 1], more=n + 1 < len(body))
        assert state_of((await slow.answer()).json['result']['task']) == 'COMPLETED'


async def test_others_are_served_while_bodies_are_waited_for() -> None:
    async with serving(Agent('test'), limits=NEVER) as client:
        waiting = [Slow(client) for _ in range(50)]
        for each in waiting:
            await each.asked.wait()
        assert state_of(await client.send()) == 'COMPLETED'
        for each in waiting:
            each.give(send(), more=False)
            assert (await each.answer()).status == 200


async def test_a_request_that_is_ended_while_it_is_read_is_not_answered() -> None:
    async with untouched(limits=NEVER) as client:
        slow = Slow(client)
        await slow.asked.wait()
        slow.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow.task


async def test_a_client_that_goes_in_the_middle_of_its_body_is_not_answered() -> None:
    async with untouched(limits=NEVER) as client:
        slow = Slow(client)
        slow.parts.put_nowait({'type': 'http.disconnect'})
        await slow.task


def test_bodies_are_given_up_in_every_loop_that_an_app_is_used_in() -> None:
    app = to_a2a(Agent('test'), limits=SOON)

    async def status() -> int:
        async with asyncio.timeout(LIMIT):
            return (await Slow(Client(app)).answer()).status

    async def leave() -> None:
        await Slow(Client(app)).asked.wait()

    asyncio.run(leave())  # its timer goes with its loop
    both = [408, 408]
    there: list[int] = []
    thread = threading.Thread(target=lambda: there.append(asyncio.run(status())))

    async def here() -> int:
        thread.start()
        try:
            return await status()
        finally:
            await asyncio.to_thread(thread.join)

    assert [asyncio.run(here()), *there] == both


def test_a_server_closes_the_connection_of_a_client_that_does_not_send() -> None:
    with serve(to_a2a(Agent('test'), limits=SOON)) as server:
        host, port = server.url.removeprefix('http://').rstrip('/').split(':')
        with socket.create_connection((host, int(port)), timeout=LIMIT) as connection:
            connection.sendall(
                b'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{'
            )
            answer = b''
            while piece := connection.recv(65536):
                answer += piece
    assert answer.startswith(b'HTTP/1.1 408 ')
    assert b'did not arrive in time' in answer
