"""The command line in processes of its own: servers, workers, both over one file, and the operator's commands."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.types import GetTaskRequest
from a2a.utils.errors import TaskNotFoundError

from pydantic_ai_a2a import A2AClient

from ..behaviour.durable_processes import expire_leases
from ..behaviour.promised_behaviours import covers
from ..client.canned_agent import TASK, CannedAgent, error_response, stream_response
from ..client.canned_agent import serve_canned as canned
from ..commands.command import process_in_terminal
from .official import collect, event_summary, official_client, state_of, task_of, text_of, text_request
from .server import LIMIT, ROOT, Process, process, uvicorn

APPS = 'tests.e2e.shared_apps'
SLOW_AGENT = """
import asyncio
from pathlib import Path
from pydantic_ai import Agent, ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

async def answer(messages, info):
    print('A run has begun', flush=True)
    while not Path(__file__).with_name('opened').exists():
        await asyncio.sleep(0.01)
    print('A run has ended', flush=True)
    return ModelResponse(parts=[TextPart('Done.')])

agent = Agent(FunctionModel(answer), name='slow')
"""
"""An agent whose run ends after the test has made a file."""
OK = {'server': 'ok', 'agent': 'ok', 'worker': 'ok', 'backend': 'ok'}


def command(where: Path, *arguments: str, **env: str) -> AbstractContextManager[Process]:
    """`pydantic-ai-a2a ...` in a directory, with the apps of this repository."""
    return process('-m', 'pydantic_ai_a2a', *arguments, '--app-dir', str(ROOT), cwd=where, env=env)


def worker(where: Path, name: str = 'app', *options: str, **env: str) -> AbstractContextManager[Process]:
    return command(where, 'worker', f'{APPS}:{name}', *options, **env)


def web(where: Path, name: str = 'app') -> AbstractContextManager[Process]:
    return command(where, 'serve', f'{APPS}:{name}', '--no-worker', '--port', '0')


async def get(url: str) -> tuple[int, Any]:
    async with httpx.AsyncClient(timeout=LIMIT) as http:
        answer = await http.get(url)
        return answer.status_code, answer.json()


async def test_serve_command_serves_a_bare_agent(tmp_path: Path) -> None:
    with command(tmp_path, 'serve', f'{APPS}:agent', '--port', '0', NAME='the agent') as server:
        async with official_client(server.url, streaming=False) as client:
            task = await task_of(client.send_message(text_request('hello')))
        assert await get(f'{server.url}health/ready') == (200, {'ready': True, 'components': OK})
        server.signal(signal.SIGTERM)
        assert await server.ended() == -signal.SIGTERM
    assert text_of(task) == 'Answered by the agent.'
    assert not list(tmp_path.iterdir())


def test_serve_reload_restarts_after_module_change(tmp_path: Path) -> None:
    module = tmp_path / 'joker.py'
    text = (
        "from pydantic_ai import Agent\nfrom pydantic_ai_a2a import to_a2a\napp = to_a2a(Agent('test', name='NAME'))\n"
    )
    module.write_text(text.replace('NAME', 'first'))
    arguments = ('-m', 'pydantic_ai_a2a', 'serve', 'joker', '--app-dir', str(tmp_path), '--port', '0', '--reload')
    with process(*arguments, cwd=tmp_path, fork=False) as server:
        server.wait_for('The card of first has')
        module.write_text(text.replace('NAME', 'second'))
        server.wait_for('The card of second has')
        server.signal(signal.SIGINT)
        assert server.exit_code() == 0
    assert 'Traceback' not in server.output


async def test_worker_runs_tasks_of_separate_server(tmp_path: Path) -> None:
    with web(tmp_path) as server, worker(tmp_path, NAME='the worker') as running:
        async with (
            official_client(server.url, streaming=False) as plain,
            official_client(server.url) as streaming,
        ):
            task = await task_of(plain.send_message(text_request('hello')))
            events = await collect(streaming.send_message(text_request('hello')))
        off = {**OK, 'agent': 'off', 'worker': 'off'}
        assert await get(f'{server.url}health/ready') == (200, {'ready': True, 'components': off})
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert running.output.splitlines()[-1] == 'pydantic-ai-a2a: the worker stops'
    assert text_of(task) == 'Answered by the worker.'
    assert event_summary(events)[-1] == 'COMPLETED'


async def test_worker_runs_tasks_of_uvicorn_without_workers(tmp_path: Path) -> None:
    env = {'PYDANTIC_AI_A2A_WORKER': 'off', 'NAME': 'the server'}
    options = ('--app-dir', str(ROOT))
    with (
        uvicorn(f'{APPS}:app', *options, cwd=tmp_path, env=env) as server,
        worker(tmp_path, **{**env, 'NAME': 'the worker'}) as running,
    ):
        async with official_client(server.url, streaming=False) as client:
            assert text_of(await task_of(client.send_message(text_request('hello')))) == 'Answered by the worker.'
        off = {**OK, 'agent': 'off', 'worker': 'off'}
        assert await get(f'{server.url}health/ready') == (200, {'ready': True, 'components': off})
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
    with process('-m', 'uvicorn', 'tests.e2e.apps:app', *options, '--port', '0', cwd=tmp_path, env=env) as server:
        assert server.exit_code() == 3
    assert 'PYDANTIC_AI_A2A_WORKER=off leaves the tasks to other processes' in server.output


async def test_killed_command_ends_its_server_processes(tmp_path: Path) -> None:
    with command(tmp_path, 'serve', f'{APPS}:app', '--workers', '2', '--port', '0', NAME='a server') as server:
        server.wait_for('(?s)' + 'startup complete.*' * 2)
        server.signal(signal.SIGKILL)
        assert await server.ended() == -signal.SIGKILL
    assert server.output.count('Finished server process') == 2


@pytest.mark.parametrize('store', ['SQLite', 'PostgreSQL'])
async def test_ctrl_c_lets_server_processes_finish_tasks(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store_url = f'sqlite:///{tmp_path}/agent.db' if store == 'SQLite' else request.getfixturevalue('postgres_url')
    (tmp_path / 'slow.py').write_text(SLOW_AGENT)
    arguments = ('serve', 'slow.py', '--workers', '2', '--port', '0', '--app-dir', str(tmp_path))
    with process_in_terminal(*arguments, '--backend', store_url) as (terminal, running):
        terminal.until('startup complete', times=2)
        terminal.until('Uvicorn running on ')
        [url] = re.findall(r'Uvicorn running on (\S+)', terminal.text)
        async with A2AClient(url) as client:
            await client.send('Hello!', return_immediately=True)
            await asyncio.to_thread(terminal.until, 'A run has begun')
            terminal.type('\x03')
            await asyncio.to_thread(terminal.until, 'Shutting down', times=2)
            (tmp_path / 'opened').touch()
            assert await asyncio.to_thread(running.wait, LIMIT) == 0
        output = terminal.close()
    assert 'A run has ended' in output
    assert 'Traceback' not in output, output


async def test_worker_runs_tasks_of_all_mounted_apps(tmp_path: Path) -> None:
    with web(tmp_path, 'parent') as server, worker(tmp_path, 'parent', '--health-port', '0', NAME='one') as running:
        for path in ('ann/', 'bob/'):
            async with official_client(f'{server.url}{path}', streaming=False) as client:
                assert text_of(await task_of(client.send_message(text_request('hello')))) == 'Answered by one.'
        health = running.wait_for(r'the health endpoints listen on (\S+)')[1]
        for path in ('ann/', 'bob/'):
            assert await get(f'{health}{path}health/ready') == (200, {'ready': True, 'components': OK})
        async with httpx.AsyncClient(timeout=LIMIT) as http:
            assert (await http.get(f'{health}ann/.well-known/agent-card.json')).status_code == 404


@covers('SIGTERM')
async def test_next_worker_continues_task_of_stopped_worker(tmp_path: Path) -> None:
    with web(tmp_path) as server, worker(tmp_path, 'hasty', NAME='one', HANGS='1') as one:
        async with official_client(server.url) as client:
            stream = client.send_message(text_request('hello'))
            task = (await anext(stream)).task
            one.wait_for('A run has begun')
            one.signal(signal.SIGTERM)
            assert await one.ended() == 0
            assert state_of(await client.get_task(GetTaskRequest(id=task.id))) == 'TASK_STATE_WORKING'
            with worker(tmp_path, NAME='two'):
                assert event_summary(await collect(stream))[-1] == 'COMPLETED'
            assert text_of(await client.get_task(GetTaskRequest(id=task.id))) == 'Answered by two.'


@covers('SIGTERM')
async def test_draining_worker_reports_health_until_second_signal(tmp_path: Path) -> None:
    with (
        web(tmp_path) as server,
        worker(tmp_path, 'patient', '--health-port', '0', NAME='one', HANGS='1') as running,
    ):
        health = running.wait_for(r'the health endpoints listen on (\S+)')[1]
        async with official_client(server.url) as client:
            stream = client.send_message(text_request('hello'))
            await anext(stream)
            running.wait_for('A run has begun')
            running.signal(signal.SIGTERM)
            running.wait_for('the worker stops')
            draining = {**OK, 'server': 'draining'}
            assert await get(f'{health}health/ready') == (503, {'ready': False, 'components': draining})
            assert (await get(f'{health}health/live'))[0] == 200
            running.signal(signal.SIGINT)
            assert await running.ended() == 1
    assert 'Traceback' not in running.output, running.output


def test_worker_exits_when_its_agent_cannot_start(tmp_path: Path) -> None:
    with worker(tmp_path, 'locked') as running:
        assert running.exit_code() == 1
    assert 'LookupError: there is no key' in running.output


@pytest.mark.parametrize(
    ('name', 'options', 'exit_code'),
    [('serve', '--port 0', 3), ('serve', '--port 0 --workers 2', 3), ('worker', '', 1)],
)
def test_unusable_backend_ends_serve_and_worker(name: str, options: str, exit_code: int, tmp_path: Path) -> None:
    with command(tmp_path, name, f'{APPS}:agent', *options.split(), '--backend', 'sqlite:///none/agent.db') as running:
        assert running.exit_code() == exit_code
    assert 'none/agent.db cannot be made: there is no folder ' in running.output


def test_agent_with_unknown_model_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / 'keyless.py').write_text(
        "from pydantic_ai import Agent\nagent = Agent('unknown:model', name='keyless', defer_model_check=True)\n"
    )
    serve = ('-m', 'pydantic_ai_a2a', 'serve', 'keyless:agent', '--port', '0', '--backend', 'sqlite:///agent.db')
    with process(*serve, cwd=tmp_path) as server:
        url = server.url
        assert httpx.get(f'{url}health/ready', timeout=LIMIT).status_code == 503
        with process('-m', 'pydantic_ai_a2a', 'send', url, 'Hello') as sending:
            assert sending.exit_code() == 1
    text = 'The agent cannot be started. The log of the server has the reason, with the correlation id of this error.'
    [correlation_id] = re.findall(rf'{re.escape(text)} \(correlation id (\w+)\)', sending.output)
    assert f'a request is refused (correlation id {correlation_id}).' in server.output
    assert 'UserError: Unknown model: unknown:model' in server.output
    with process(*serve, '--no-worker', cwd=tmp_path) as server:
        assert httpx.get(f'{server.url}health/ready', timeout=LIMIT).status_code == 200


def test_send_command_reports_reason_of_its_retry() -> None:
    busy = error_response(-32000, 'The agent is not ready.', 503, {'retry-after': '1'})
    with (
        canned(CannedAgent(busy, stream_response({'task': TASK}))) as server,
        process('-m', 'pydantic_ai_a2a', 'send', server.url, 'Hello') as sending,
    ):
        assert sending.exit_code() == 0
    [line] = [line for line in sending.output.splitlines() if 'is repeated' in line]
    assert re.fullmatch(r'The request is repeated for up to \d+ seconds: The agent is not ready\.', line)


async def test_server_without_worker_does_not_start_agent(tmp_path: Path) -> None:
    with web(tmp_path, 'locked') as server, worker(tmp_path, 'locked', KEY='1', NAME='the worker'):
        async with official_client(server.url, streaming=False) as client:
            assert text_of(await task_of(client.send_message(text_request('hello')))) == 'Answered by the worker.'


@covers('SIGTERM')
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
async def test_draining_server_serves_but_is_not_ready(number: signal.Signals, tmp_path: Path) -> None:
    with command(tmp_path, 'serve', f'{APPS}:hasty', '--port', '0', NAME='the server') as server:
        assert (await get(f'{server.url}health/ready'))[0] == 200
        server.signal(number)
        async with asyncio.timeout(LIMIT):
            while (answer := await get(f'{server.url}health/ready'))[0] == 200:
                pass  # the signal is on its way
        assert answer == (503, {'ready': False, 'components': {**OK, 'server': 'draining'}})
        async with official_client(server.url, streaming=False) as client:
            task = await task_of(client.send_message(text_request('hello')))
        server.signal(number)
        assert await server.ended() == (0 if number == signal.SIGINT else -number)
    assert text_of(task) == 'Answered by the server.'
    assert 'Traceback' not in server.output, server.output


def status_by_host(url: str) -> list[int]:
    """What is answered to requests in the name of a proxy, a stranger and this machine."""
    hosts = ('agent.example.com', 'evil.example', 'localhost')
    return [httpx.get(url, headers={'Host': host}, timeout=LIMIT).status_code for host in hosts]


def test_server_answers_only_localhost_and_allowed_hosts(tmp_path: Path) -> None:
    named = ('--allowed-host', 'agent.example.com', '--allowed-host', '*.example.org', '--anonymous')
    with command(tmp_path, 'serve', f'{APPS}:agent', '--port', '0', *named) as server:
        assert status_by_host(f'{server.url}.well-known/agent-card.json') == [200, 421, 200]


@pytest.mark.parametrize('app', ['app', 'wrapped'])
def test_worker_health_answers_only_localhost(app: str, tmp_path: Path) -> None:
    with worker(tmp_path, app, '--health-port', '0') as running:
        health = running.wait_for(r'the health endpoints listen on (\S+)')[1]
        running.wait_for('the worker runs')
        assert status_by_host(f'{health}health/live') == [421, 421, 200]


# --- the operator's commands beside servers and workers


async def run(where: Path, *arguments: str) -> tuple[int, list[Any]]:
    """How a command ends, and the JSON Lines that it writes, but for those of the audit log."""

    def lines() -> tuple[int, list[Any]]:
        with command(where, *arguments) as running:
            code = running.exit_code()
        written = [json.loads(line) for line in running.output.splitlines() if line.startswith('{')]
        return code, [line for line in written if 'event' not in line]

    return await asyncio.to_thread(lines)


async def test_listed_dead_letter_completes_when_retried(tmp_path: Path) -> None:
    with web(tmp_path, 'fragile') as server:
        async with official_client(server.url) as client:
            stream = client.send_message(text_request('hello'))
            task = (await anext(stream)).task
            with worker(tmp_path, 'fragile', NAME='one', HANGS='1') as one:
                one.wait_for('A run has begun')
                one.signal(signal.SIGKILL)
                assert await one.ended() == -signal.SIGKILL
            await expire_leases(f'sqlite:///{tmp_path}/agent.db')
            with worker(tmp_path, 'fragile', NAME='two'):
                assert event_summary(await collect(stream))[-1].startswith('FAILED')
                code, [letter] = await run(tmp_path, 'dead-letters', 'list', f'{APPS}:fragile', '--json')
                assert (code, letter['taskId'], letter['owner'], letter['attempts']) == (0, task.id, '/', 1)
                retry = ('dead-letters', 'retry', f'{APPS}:fragile', '--task', task.id, '--json')
                code, [retried] = await run(tmp_path, *retry)
                assert code == 0
                async with official_client(server.url, streaming=False) as plain:
                    next_ = await task_of(plain.send_message(text_request('and then?', context_id=task.context_id)))
            again = await client.get_task(GetTaskRequest(id=retried['retriedAs']))
    assert [text_of(each) for each in (again, next_)] == ['Answered by two.', 'Answered by two.']
    assert list(again.history[0].reference_task_ids) == [task.id]


async def test_export_and_erase_work_beside_server(tmp_path: Path) -> None:
    store = ('--backend', 'sqlite:///agent.db', '--namespace', 'shared', '--owner', '/')
    with command(tmp_path, 'serve', f'{APPS}:app', '--port', '0', NAME='the server') as server:
        async with official_client(server.url, streaming=False) as client:
            task = await task_of(client.send_message(text_request('remember SECRET')))
            code, lines = await run(tmp_path, 'export', *store)
            assert code == 0
            assert [line.get('task', {}).get('id') for line in lines] == [task.id, None]
            code, [counts] = await run(tmp_path, 'erase', *store, '--yes', '--compact', '--json')
            assert (code, counts['tasks'], counts['conversations']) == (0, 1, 1)
            assert [path.name for path in tmp_path.glob('agent.db*') if b'SECRET' in path.read_bytes()] == []
            assert await run(tmp_path, 'export', *store) == (1, [])
            assert text_of(await task_of(client.send_message(text_request('go on')))) == 'Answered by the server.'


async def test_erase_with_cancel_ends_running_task_first(tmp_path: Path) -> None:
    store = ('--backend', 'sqlite:///agent.db', '--namespace', 'shared', '--owner', '/')
    with web(tmp_path) as server, worker(tmp_path, NAME='one', HANGS='1') as running:
        async with official_client(server.url) as client:
            stream = client.send_message(text_request('hello'))
            task = (await anext(stream)).task
            running.wait_for('A run has begun')
            assert await run(tmp_path, 'erase', *store, '--yes') == (1, [])
            wait = ('--cancel', '--grace', str(LIMIT))
            code, [counts] = await run(tmp_path, 'erase', *store, '--yes', *wait, '--json')
            assert (code, counts['tasks']) == (0, 1)
            await collect(stream)  # it is over, and there is nothing left to tell of it
            with pytest.raises(TaskNotFoundError):
                await client.get_task(GetTaskRequest(id=task.id))
