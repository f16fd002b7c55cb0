"""Tools that raise what ends a process: a real server goes on serving."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx
import pytest

from ..behaviour.rows import covers
from .server import Process, rpc, uvicorn

V1 = {'A2A-Version': '1.0'}


@pytest.fixture(scope='module')
def server() -> Generator[Process]:
    with uvicorn('tests.e2e.exiting_app:app') as running:
        yield running


def send(server: Process, text: str) -> dict[str, Any]:
    message = {'messageId': text.replace(' ', '-'), 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    answer = httpx.post(server.url, json=rpc('SendMessage', message=message), headers=V1, timeout=120)
    return answer.json()['result']['task']


@covers('failed run')
@pytest.mark.parametrize('kind', ['SystemExit', 'GeneratorExit'])
@pytest.mark.parametrize('tool', ['in_loop', 'in_thread', 'output'])
def test_a_tool_that_raises_what_ends_a_process_ends_only_its_task(server: Process, tool: str, kind: str) -> None:
    failed = send(server, f'{tool} {kind}')
    assert failed['status']['state'] == 'TASK_STATE_FAILED'
    said = failed['status']['message']
    assert said['metadata']['failure'] == 'internal'
    assert 'SECRET' not in str(failed)
    server.wait_for(rf'{said["metadata"]["correlationId"]}')
    answered = send(server, f'hello-{tool}-{kind}')
    assert answered['status']['state'] == 'TASK_STATE_COMPLETED'
