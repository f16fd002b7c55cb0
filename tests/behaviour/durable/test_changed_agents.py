"""Agents whose code changes between two deploys while a task works or waits, at each engine and without one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from ...app_client import state_of
from ...engines import skip_without_dbos
from ...sizes import short_or_long
from ..durable_processes import ServerClient, kill, server_process
from ..pending_calls import answer_message, approve

PACKAGES = ('pydantic_ai.durable_exec.dbos', 'pydantic_ai.durable_exec.temporal')
MODEL_READS: dict[str, str] = {
    'renamed': "Unknown tool name: 'look'. Available tools: 'look_at'",
    'parameters': 'Field required',
    'default': 'looked in Rome',
    'toolset': 'saw Rome',
    'output': 'saw Rome',
    'settings': 'saw Rome',
}
"""What the model hears from the changed agent, if no workflow holds the agent to its steps."""
UNREPLAYABLE = {'renamed', 'parameters', 'toolset'}
"""Changes with which the agent cannot take the step that Temporal has begun."""


class Deploys:
    """Servers of one agent after another, over one store."""

    def __init__(self, folder: Path, engine: str, temporal: str) -> None:
        self.folder = folder
        self._env = {
            'A2A_TEST_APPROVAL': '0',
            'A2A_TEST_ENGINE': engine,
            'A2A_TEST_FOLDER': str(folder),
            'A2A_TEST_QUEUE': uuid4().hex,
            'A2A_TEST_TEMPORAL': temporal,
        }

    def asks_for_approval(self) -> None:
        """Let the tool ask for approval."""
        self._env['A2A_TEST_APPROVAL'] = '1'

    def server(self, change: str = '') -> AbstractContextManager[ServerClient]:
        env = {**self._env, 'A2A_TEST_CHANGE': change}
        return server_process('tests.behaviour.durable_changed:app', env=env, packages=PACKAGES)


Task: TypeAlias = dict[str, Any]


def failure_of(task: Task) -> str | None:
    return task['status'].get('message', {}).get('metadata', {}).get('failure')


def answer_of(task: Task) -> str:
    return ' '.join(str(part.get('data', part.get('text'))) for each in task['artifacts'] for part in each['parts'])


@pytest.fixture(params=['none', 'dbos', 'temporal'])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine, and none."""
    if request.param == 'dbos':
        skip_without_dbos()
    return request.param


@pytest.fixture
def deploys(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> Deploys:
    return Deploys(tmp_path, engine, request.getfixturevalue('temporal') if engine == 'temporal' else '')


@pytest.mark.long
@pytest.mark.parametrize('change', short_or_long(['parameters', 'toolset', 'output'], [*MODEL_READS]))
async def test_run_after_deploy_continues_or_fails_as_changed_agent(deploys: Deploys, engine: str, change: str) -> None:
    with deploys.server() as server:
        task = await server.send('hello', wait=False)
        await server.gates.reached('look')
        await kill(server.server)
    with deploys.server(change) as server:
        await server.gates.open('look')
        done = await server.ended(task['id'])
        output = server.server.output
    assert 'Traceback' not in output
    if engine == 'temporal' and change in UNREPLAYABLE:
        assert failure_of(done) == 'changed-agent'
        [line] = [line for line in output.splitlines() if 'changed-agent' in line]
        assert f'Task {done["id"]} failed' in line
        assert 'Let the tasks of an agent end before you deploy another one' in line
        assert 'task_queue' in line
    else:
        assert MODEL_READS[change] in answer_of(done)


@pytest.mark.long
@pytest.mark.parametrize('change', short_or_long(['renamed', 'default'], ['renamed', 'parameters', 'default']))
async def test_approval_does_not_run_tool_changed_by_deploy(deploys: Deploys, change: str, tmp_path: Path) -> None:
    deploys.asks_for_approval()
    with deploys.server() as server:
        task = await server.send('hello')
        assert state_of(task) == 'INPUT_REQUIRED'
        await kill(server.server)
    with deploys.server(change) as server:
        answered = await server.call('SendMessage', message=answer_message(task, approve()))
    hears = 'The tool was changed after the call was approved' if change == 'default' else MODEL_READS[change]
    assert hears in answer_of(answered['task'])
    assert [line.split()[0] for line in (tmp_path / 'ledger.txt').read_text().splitlines()] == ['model-1', 'model-3']
