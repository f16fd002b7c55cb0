"""Push notification configurations over HTTP+JSON (§11.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai import Agent

from pydantic_ai_a2a import Push

from ...client import Client, Exchange
from ..stage import serving


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


@pytest.mark.parametrize('name', ['taskId', 'task_id'])
async def test_a_body_does_not_name_another_task_than_the_path(name: str) -> None:
    async with serving(Agent('test'), push=Push()) as client:
        one, other = [(await client.send())['id'] for _ in range(2)]
        path, url = f'/tasks/{one}/pushNotificationConfigs', 'https://example.com/hook'
        status, answer = await request(client, 'POST', path, {'url': url, name: other})
        assert (status, answer['error']['message']) == (
            400,
            'Invalid parameters: taskId: must be the same as in the path',
        )
        assert await request(client, 'POST', path, {'url': url, 'id': 'c', name: one}) == (
            200,
            {'id': 'c', 'taskId': one, 'url': url},
        )


async def test_without_the_setting_there_are_none() -> None:
    async with serving(Agent('test')) as client:
        status, answer = await request(client, 'POST', '/tasks/t/pushNotificationConfigs', {})
        assert (status, answer['error']['details'][0]['reason']) == (400, 'PUSH_NOTIFICATION_NOT_SUPPORTED')
