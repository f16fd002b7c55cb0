"""An app with a user's own FastA2A storage, under uvicorn: its process ends, and the next one knows what it knew."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from .server import LIMIT, ROOT, process, rpc

EXAMPLES = ROOT / 'examples'


def serving(storage: Path) -> Any:
    """`uvicorn own_storage:app` in a process of its own, up to the end of the block."""
    return process('-m', 'uvicorn', 'own_storage:app', '--port', '0', cwd=EXAMPLES, env={'MEMORY_FILE': str(storage)})


async def call(url: str, method: str, **params: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=LIMIT, headers={'A2A-Version': '1.0'}) as http:
        return (await http.post(url, json=rpc(method, **params))).json()


async def send(url: str, text: str, **fields: Any) -> dict[str, Any]:
    message = {'messageId': uuid4().hex, 'role': 'ROLE_USER', 'parts': [{'text': text}], **fields}
    return (await call(url, 'SendMessage', message=message))['result']['task']


def said(task: dict[str, Any]) -> str:
    return task['artifacts'][0]['parts'][0]['text']


async def test_the_next_process_answers_get_task_and_goes_on_with_the_context(tmp_path: Path) -> None:
    with serving(tmp_path / 'memory.db') as server:
        before = await send(server.url, 'my name is Ann')
    with serving(tmp_path / 'memory.db') as server:
        after = (await call(server.url, 'GetTask', id=before['id']))['result']
        following = await send(server.url, 'who am I?', contextId=before['contextId'])
        other = await send(server.url, 'who am I?')
    assert {**after, 'status': before['status']} == before
    assert after['status']['state'] == before['status']['state'] == 'TASK_STATE_COMPLETED'
    assert said(before) == 'So far you said: my name is Ann.'
    assert said(following) == 'So far you said: my name is Ann; who am I?.'
    assert said(other) == 'So far you said: who am I?.'
