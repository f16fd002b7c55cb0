"""Two servers whose agents call each other: nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from pydantic_ai_a2a import A2AClient

from ..bounds import LIMIT
from ..reserved_ports import port_of, reserved_port
from .server import Process, process


@contextmanager
def server(port: int, peer: int) -> Generator[Process]:
    app = ('tests.e2e.chain_apps:make_app', '--factory')
    env = {'PEER': f'http://127.0.0.1:{peer}/'}
    with process('-m', 'uvicorn', *app, '--port', str(port), env=env) as running:
        assert running.url
        yield running


@pytest.fixture(scope='module')
def servers() -> Generator[tuple[Process, Process]]:
    with reserved_port() as one, reserved_port() as other:
        ports = port_of(one), port_of(other)
        with server(*ports) as first, server(*reversed(ports)) as second:
            yield first, second


async def answer(server: Process, text: str) -> str:
    async with A2AClient(server.url) as client:
        task: Any = (await client.send(text)).outcome
    [artifact] = task.get('artifacts') or [{'parts': [{'text': task['status']['state']}]}]
    return artifact['parts'][0]['text']


async def test_agents_that_call_each_other_serve_many_users(servers: tuple[Process, Process]) -> None:
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        chains = [group.create_task(answer(servers[n % 2], '3')) for n in range(40)]
        plain = [group.create_task(answer(each, '0')) for each in servers]
    assert [each.result() for each in (*chains, *plain)] == ['done'] * 42


async def test_agents_that_call_each_other_in_a_circle_come_to_an_end(servers: tuple[Process, Process]) -> None:
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        circles = [group.create_task(answer(servers[n % 2], '50')) for n in range(8)]
        plain = [group.create_task(answer(each, '0')) for each in servers]
    assert [each.result() for each in plain] == ['done'] * 2
    assert 'done' not in [each.result() for each in circles]
    assert 'more than 10 agents' in servers[0].output
