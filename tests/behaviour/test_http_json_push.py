"""Push notification configurations over HTTP+JSON (§11.3)."""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai import Agent

from pydantic_ai_a2a import Push

from ..client import Client, Exchange
from ..dialects import only
from .stage import serving

pytestmark = only('1.0', 'HTTP+JSON is of 1.0')


async def request(client: Client, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {'A2A-Version': '1.0', 'Content-Type': 'application/a2a+json'}
    content = b'' if body is None else json.dumps(body).encode()
    answer = await Exchange(client.app, verb, path, headers, content).answer()
    return answer.status, answer.json


async def test_configurations_are_created_read_listed_and_removed() -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = (await client.send())['id']
        path = f'/tasks/{task_id}/pushNotificationConfigs'
        config = {'id': 'mine', 'taskId': task_id, 'url': 'https://example.com/hook'}
        assert await request(client, 'POST', path, {'id': 'mine', 'url': config['url']}) == (200, config)
        assert await request(client, 'GET', f'{path}/mine') == (200, config)
        assert await request(client, 'GET', path) == (200, {'configs': [config]})
        assert await request(client, 'DELETE', f'{path}/mine') == (200, {})
        assert (await request(client, 'GET', f'{path}/mine'))[0] == 404
        assert (await request(client, 'POST', path, {'url': 'http://127.0.0.1/'}))[0] == 400


async def test_without_the_setting_there_are_none() -> None:
    async with serving(Agent('test')) as client:
        status, answer = await request(client, 'POST', '/tasks/t/pushNotificationConfigs', {})
        assert (status, answer['error']['details'][0]['reason']) == (400, 'PUSH_NOTIFICATION_NOT_SUPPORTED')
