"""Approvals that wait say who decides: callers that `Approvals.approvers` names, or the caller that reads the task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pydantic_ai_a2a import Approvals, Caller, WaitingTask, to_a2a
from pydantic_ai_a2a.server.auth import request_info
from pydantic_ai_a2a.server.service import approvers
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...app_client import lifespan, message, state_of
from ...bounds import LIMIT
from ...cases import each_case
from ...dialects import current_dialect
from ..callers import caller_from_header, client_of_caller
from ..faulty_queues import BeforePause
from ..pending_calls import ApprovalAgent, answer_message, approve, pending_calls

WAITING = {'status': 'TASK_STATE_INPUT_REQUIRED'}


def app_with(approvers: Any, **options: Any) -> Any:
    agent = ApprovalAgent(name='keeper').agent
    return to_a2a(agent, auth=caller_from_header, approvals=Approvals(approvers=approvers), **options)


def decided_by(task: dict[str, Any]) -> list[str | None]:
    return [call.get('decidedBy') for call in pending_calls(task)]


async def deciders_of_list(client: Any, **params: Any) -> list[list[str | None]]:
    page = await client.call('ListTasks', {**WAITING, **params})
    return [decided_by(task) for task in page['tasks']]


async def test_approval_names_caller_or_approver_as_decider() -> None:
    app = app_with('approve')
    async with lifespan(app):
        ann, boss = client_of_caller(app, 'ann'), client_of_caller(app, 'boss', scopes='approve')
        task = await ann.send('delete two')
        own = await boss.send(message('delete', contextId='desk'))
        assert (decided_by(task), decided_by(own)) == (['approver', 'approver'], ['caller'])
        assert decided_by(await ann.get_task(task['id'])) == ['approver', 'approver']
        assert decided_by(await boss.get_task(task['id'])) == ['caller', 'caller']
        assert decided_by(await boss.get_task(own['id'])) == ['caller']
        if current_dialect().has_lists:
            assert await deciders_of_list(ann) == [['approver', 'approver']]
            assert await deciders_of_list(boss) == [['caller'], ['caller', 'caller']]
            assert await deciders_of_list(boss, contextId='desk') == [['caller']]
        rest = await boss.send(answer_message(task, approve()))
        assert decided_by(rest) == ['caller']


async def test_immediate_answer_names_decider() -> None:
    app = app_with('approve')
    async with lifespan(app):
        boss = client_of_caller(app, 'boss', scopes='approve')
        task = await boss.send('delete two')
        assert decided_by(await boss.send(answer_message(task, approve('c1')), returnImmediately=True)) == ['caller']


async def deciders_of_stream(stream: Any) -> list[str | None]:
    """Who decides, by the first status of a stream that waits."""
    async for event in stream:
        content: dict[str, Any] = event.result.get('task') or event.result.get('statusUpdate') or {}
        if 'status' in content and state_of(content) == 'INPUT_REQUIRED':
            return decided_by(content)
    raise AssertionError


@each_case('scopes, decider', [('', 'approver'), ('approve', 'caller')])
async def test_streamed_approval_names_caller_or_approver(scopes: str, decider: str) -> None:
    app = app_with('approve')
    async with lifespan(app), asyncio.timeout(LIMIT):
        client = client_of_caller(app, 'boss', scopes=scopes)
        async with client.send_streaming('delete two') as stream:
            assert await deciders_of_stream(stream) == [decider] * 2
        task = await client.send('delete')
        async with client.subscribe(task['id']) as stream:
            assert await deciders_of_stream(stream) == [decider]


async def test_responses_omit_decider_if_function_decides() -> None:
    asked: list[str] = []

    def rule(approver: Caller, task: WaitingTask) -> bool:
        asked.append(task.id)
        return True

    app = app_with(rule)
    async with lifespan(app), asyncio.timeout(LIMIT):
        boss = client_of_caller(app, 'boss')
        task = await boss.send(message('delete', contextId='desk'))
        async with boss.send_streaming('delete') as stream:
            found = [decided_by(task), await deciders_of_stream(stream)]
        if current_dialect().has_lists:
            found += await deciders_of_list(boss, contextId='desk')
        assert (asked, {*map(tuple, found)}) == ([], {(None,)})
        assert decided_by(await boss.get_task(task['id'])) == ['caller']


async def test_only_approvals_name_their_decider() -> None:
    app = app_with('approve')
    async with lifespan(app):
        boss = client_of_caller(app, 'boss', scopes='approve')
        task = await boss.send('mixed')
        asked = await boss.send('ask')
        kinds = [(call['kind'], call.get('decidedBy')) for call in pending_calls(await boss.get_task(task['id']))]
        assert kinds == [('external', None), ('approval', 'caller'), ('question', None), ('approval', 'caller')]
        assert await boss.get_task(asked['id']) == asked


async def test_without_approvers_approvals_name_no_decider() -> None:
    app = to_a2a(ApprovalAgent(name='keeper').agent, auth=caller_from_header)
    async with lifespan(app):
        ann = client_of_caller(app, 'ann')
        task = await ann.send('delete')
        assert decided_by(task) == [None]
        assert await ann.get_task(task['id']) == task


async def test_approvers_function_decides_about_own_approvals() -> None:
    def not_the_sender(approver: Caller, task: WaitingTask) -> bool:
        return approver.id != task.caller.id or approver.id == 'chief'

    app = app_with(not_the_sender)
    async with lifespan(app):
        clients = [client_of_caller(app, name) for name in ('boss', 'chief')]
        tasks = [await client.send('delete') for client in clients]
        asked = await clients[0].send('ask')
        found = [decided_by(await client.get_task(task['id'])) for client in clients for task in tasks]
        assert found == [['approver'], ['caller'], ['caller'], ['caller']]
        assert await clients[0].get_task(asked['id']) == asked
        done = await clients[1].send('hello')
        assert state_of(await clients[0].get_task(done['id'])) == 'COMPLETED'
        if current_dialect().has_lists:
            assert await deciders_of_list(clients[0]) == [[None], ['caller'], ['approver']]
            assert await deciders_of_list(clients[1]) == [['caller'], ['caller']]


async def test_task_answered_during_read_names_no_decider() -> None:
    def everyone(approver: Caller, task: WaitingTask) -> bool:
        return True

    backend = MemoryBackend('keeper', reader_lag=10**6)
    backend.reader = reader = BeforePause(backend)
    app = app_with(everyone, backend=backend)
    async with lifespan(app):
        boss = client_of_caller(app, 'boss')
        task = await boss.send('delete two')
        reader.first = lambda: boss.send(answer_message(task, approve('c1')))
        assert decided_by(await boss.get_task(task['id'])) == [None, None]
        assert decided_by(await boss.get_task(task['id'])) == ['caller']


def failing(approver: Caller, task: WaitingTask) -> bool:
    raise RuntimeError('no connection')


def wrong(approver: Caller, task: WaitingTask) -> Any:
    return 'yes'


async def hanging(approver: Caller, task: WaitingTask) -> bool:
    await asyncio.Event().wait()
    return True


@pytest.mark.parametrize('rule', [failing, wrong, hanging])
async def test_faulty_approvers_function_leaves_own_tasks_readable(
    rule: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_info, 'FUNCTION_TIME', 0.05)
    monkeypatch.setattr(approvers, '_BRIEFLY', 0.05)
    app = app_with(rule)
    async with lifespan(app), asyncio.timeout(LIMIT):
        ann = client_of_caller(app, 'ann')
        tasks = [await ann.send('delete') for _ in range(2)]
        caplog.clear()
        assert decided_by(await ann.get_task(tasks[0]['id'])) == ['approver']
        assert 'Approvals.approvers has' in caplog.text
        caplog.clear()
        if current_dialect().has_lists:
            assert await deciders_of_list(ann) == [['approver'], ['approver']]
            assert len([line for line in caplog.records if line.levelno >= logging.ERROR]) == 1
