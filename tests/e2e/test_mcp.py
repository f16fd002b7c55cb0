"""An MCP server that is called on behalf of the caller, by two processes over PostgreSQL, around a pause and a kill."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from cryptography.fernet import Fernet

from ..behaviour.asking import answers, approve, asked
from ..client import message
from .mcp_tokens import BOSS, MARK, TOKENS
from .server import LIMIT, Process, process, rpc

ENCRYPTED = "b'gAAAA"
"""The beginning of each stored credential."""
SECRETS = (*TOKENS.values(), BOSS, MARK, 'secret-of-the-agent')


@contextmanager
def server(app: str, *options: str, env: Mapping[str, str]) -> Generator[Process]:
    """A process with uvicorn. The processes share one import of the packages for MCP, which takes seconds."""
    with process('-m', 'uvicorn', app, '--port', '0', *options, env=env, packages=['pydantic_ai.mcp']) as running:
        assert running.url
        yield running


@pytest.fixture(scope='module')
def mail() -> Generator[Process]:
    with server('tests.e2e.mcp_server:app', env={}) as running:
        yield running


def agent(env: Mapping[str, str]) -> AbstractContextManager[Process]:
    """A process with the agent and its worker."""
    return server('tests.e2e.mcp_agent:make_app', '--factory', '--log-level', 'debug', env=env)


async def call(agent: Process, token: str, method: str, **params: Any) -> Any:
    headers = {'A2A-Version': '1.0', 'Authorization': f'Bearer {token}'}
    async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
        answer = (await http.post(agent.url, json=rpc(method, **params), headers=headers)).json()
    assert 'result' in answer, answer
    return answer['result']


async def ended(agent: Process, token: str, task_id: str) -> dict[str, Any]:
    """Return a task once it has ended."""
    headers = {'A2A-Version': '1.0', 'Authorization': f'Bearer {token}'}
    body = rpc('SubscribeToTask', id=task_id)
    async with (
        httpx.AsyncClient(timeout=LIMIT, verify=False) as http,
        http.stream('POST', agent.url, json=body, headers=headers) as events,
    ):
        await events.aread()
    return await call(agent, token, 'GetTask', id=task_id)


async def seen_by(mail: Process) -> dict[str, list[str]]:
    async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
        return (await http.get(f'{mail.url}seen')).json()


async def notified(mail: Process, *task_ids: str) -> None:
    """Wait until the webhook has a notification of each task."""
    async with asyncio.timeout(LIMIT):
        told = ''
        while any(task_id not in told for task_id in task_ids):
            told = json.dumps((await seen_by(mail))['hooks'])


async def dump(url: str) -> str:
    """Return all rows of all tables."""
    connection = await asyncpg.connect(url)
    try:
        names = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname = 'a2a'"
        )
        tables = [await connection.fetch(f'SELECT * FROM {row["name"]}') for row in names]
    finally:
        await connection.close()
    return '\n'.join(repr([*row.values()]) for rows in tables for row in rows)


def export(env: dict[str, str], owner: str) -> str:
    """Return the exported data of a caller."""
    command = ('-m', 'pydantic_ai_a2a', 'export', '--backend', env['A2A_TEST_BACKEND'], '--namespace', 'inbox')
    with process(*command, '--caller', owner) as running:
        assert running.exit_code() == 0, running.output
        return running.output


async def test_an_mcp_server_sees_the_caller_before_and_after_a_pause_and_a_kill_and_no_secret_is_stored(
    mail: Process, postgres_url: str, tmp_path: Path
) -> None:
    env = {
        'A2A_TEST_BACKEND': postgres_url,
        'MAIL': mail.url,
        'SPANS': str(tmp_path / 'spans'),
        'KEY': Fernet.generate_key().decode(),
    }
    tasks: dict[str, Any] = {}
    with agent(env) as first:
        for user, token in TOKENS.items():
            sent = await call(first, token, 'SendMessage', message=message('Clean up my mail.'))
            tasks[user] = sent['task']
            assert tasks[user]['status']['state'] == 'TASK_STATE_INPUT_REQUIRED'
            target = {'taskId': tasks[user]['id'], 'url': f'{mail.url}hook'}
            await call(first, token, 'CreateTaskPushNotificationConfig', **target)
        assert (await seen_by(mail))['seen'] == ['ann reads', 'bob reads']
        paused = await dump(postgres_url)
        first.signal(signal.SIGKILL)
        assert first.exit_code() == -signal.SIGKILL
    with agent(env) as second:
        ends: list[str] = []
        for task in tasks.values():
            [pending] = asked(task)
            decision = answers(task, approve(pending['id']))
            await call(second, BOSS, 'SendMessage', message=decision)
        for user, token in TOKENS.items():
            task = await ended(second, token, tasks[user]['id'])
            ends.append(task['artifacts'][0]['parts'][0]['text'])
        assert ends == [f'a mail for {user}, then no mail for {user}' for user in TOKENS]
        over = await dump(postgres_url)
        await notified(mail, *(task['id'] for task in tasks.values()))
    assert [text.count(ENCRYPTED) for text in (paused, over)] == [2, 0]
    saw = await seen_by(mail)
    assert saw['seen'] == ['ann reads', 'bob reads', 'ann deletes', 'bob deletes']
    assert [token.split('-')[3] for token in saw['granted']] == ['ann', 'bob']
    places = {
        'database in the pause': paused,
        'database after the end': over,
        'log of the first process': first.output,
        'log of the second process': second.output,
        'spans': (tmp_path / 'spans').read_text(),
        'export': export(env, 'ann'),
        'notifications': json.dumps(saw['hooks']),
    }
    for place, text in places.items():
        assert tasks['ann']['id'] in text, f'{place} is not searched'
        assert [secret for secret in SECRETS if secret in text] == [], place
