"""Agents that raise what ends a process: a real server goes on serving."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx
import pytest

from ..behaviour.rows import covers
from ..bounds import LIMIT
from ..client import LIVE
from .server import Process, rpc, uvicorn

V1 = {'A2A-Version': '1.0'}
PLACES = [
    'in_loop',
    'in_thread',
    'output',
    'model',
    'instructions',
    'system_prompt',
    'prepare',
    'history',
    'validator',
    'deps',
    'deps_closing',
]


@pytest.fixture(scope='module')
def server() -> Generator[Process]:
    with uvicorn('tests.e2e.exiting_app:app') as running:
        yield running


def post(server: Process, text: str, method: str = 'SendMessage', *, direct: bool = False) -> httpx.Response:
    message = {'messageId': f'{text} {method} {direct}', 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    body = rpc(method, message=message | {'metadata': {'direct': direct}})
    return httpx.post(server.url, json=body, headers=V1 | LIVE, timeout=LIMIT, verify=False)


def send(server: Process, text: str) -> dict[str, Any]:
    return post(server, text).json()['result']['task']


@covers('failed run')
@pytest.mark.parametrize('kind', ['SystemExit', 'GeneratorExit'])
@pytest.mark.parametrize('place', PLACES)
def test_an_agent_that_raises_what_ends_a_process_ends_only_its_task(server: Process, place: str, kind: str) -> None:
    failed = send(server, f'{place} {kind}')
    assert failed['status']['state'] == 'TASK_STATE_FAILED'
    said = failed['status']['message']
    assert said['metadata']['failure'] == 'internal'
    assert 'SECRET' not in str(failed)
    server.wait_for(rf'{said["metadata"]["correlationId"]}')
    answered = send(server, f'hello-{place}-{kind}')
    assert answered['status']['state'] == 'TASK_STATE_COMPLETED'


@pytest.mark.parametrize('kind', ['SystemExit', 'GeneratorExit'])
@pytest.mark.parametrize('place', ['in_loop', 'model', 'stream', 'instructions', 'prepare', 'history', 'validator'])
def test_an_agent_that_raises_what_ends_a_process_ends_only_its_stream(server: Process, place: str, kind: str) -> None:
    streamed = post(server, f'{place} {kind}', 'SendStreamingMessage')
    assert 'TASK_STATE_FAILED' in streamed.text.split('data: ')[-1]
    assert 'SECRET' not in streamed.text
    assert send(server, f'hello-{place}-{kind}-streamed')['status']['state'] == 'TASK_STATE_COMPLETED'


@pytest.mark.parametrize('kind', ['SystemExit', 'GeneratorExit', 'CancelledError'])
@pytest.mark.parametrize('place', ['in_loop', 'model', 'validator', 'deps', 'reply'])
def test_an_agent_that_raises_what_ends_a_process_ends_only_its_direct_answer(
    server: Process, place: str, kind: str
) -> None:
    refused = post(server, f'{place} {kind}', direct=True)
    assert refused.json()['error']['code'] == -32603
    assert 'SECRET' not in refused.text
    server.wait_for(refused.headers['x-correlation-id'])
    answered = post(server, f'hello-{place}-{kind}', direct=True)
    assert answered.json()['result']['message']['parts'][0]['text'] == f'hello-{place}-{kind}'
