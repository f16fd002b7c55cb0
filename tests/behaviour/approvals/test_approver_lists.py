"""Lists for approvers: their own waiting tasks, and the tasks of others that they may decide about."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from base64 import urlsafe_b64decode
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage

from pydantic_ai_a2a import Access, Approvals, Caller, Limits, Retention, WaitingTask, to_a2a
from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.errors import ClientGone, OverloadedError, UnsupportedOperationError
from pydantic_ai_a2a.server.audit import LOGGER
from pydantic_ai_a2a.server.auth import request_info
from pydantic_ai_a2a.server.store.ports import TaskReader
from pydantic_ai_a2a.server.store.sql.transaction import Transaction

from ...app_client import Client, RpcError, lifespan, message, state_of
from ...bounds import LIMIT
from ...dialects import in_no_version
from ...logs import audit_records
from ...serving import each_backend, wait_until_ended
from ..callers import caller_from_header, client_of_caller
from ..pending_calls import ApprovalAgent, answer_message, approve, pending_calls
from ..refusals import error_of_call

pytestmark = in_no_version('protocol version 0.3 has no lists over JSON-RPC, and the bindings share the rest')

WAITING = {'status': 'TASK_STATE_INPUT_REQUIRED'}
Rule = Callable[[Caller, WaitingTask], Any]


EACH_STORE = each_backend('memory', 'sqlite', 'postgres')


def guarded(rule: str | Rule = 'approve', **options: Any) -> Any:
    return to_a2a(
        ApprovalAgent(name='keeper').agent, auth=caller_from_header, approvals=Approvals(approvers=rule), **options
    )


def every_task(approver: Caller, task: WaitingTask) -> bool:
    return True


def boss(app: Any, tenant: str = '') -> Client:
    return client_of_caller(app, 'boss', tenant=tenant, scopes='approve')


async def ask(app: Any, name: str = 'ann', *, text: str = 'delete', tenant: str = '', **fields: Any) -> str:
    """Send a message whose task waits for an approval, and return the id of the task."""
    task = await client_of_caller(app, name, tenant=tenant).send(message(text, **fields))
    assert state_of(task) == 'INPUT_REQUIRED'
    return task['id']


async def listed(client: Client, **params: Any) -> dict[str, Any]:
    return await client.call('ListTasks', {**WAITING, **params})


def ids(page: dict[str, Any]) -> list[str]:
    return [task['id'] for task in page['tasks']]


async def pages(client: Client, **params: Any) -> list[list[str]]:
    """The ids of the tasks of all pages."""
    found, token = list[list[str]](), ''
    while True:
        page = await listed(client, **params, **({'pageToken': token} if token else {}))
        found.append(ids(page))
        if not (token := page['nextPageToken']):
            return found


@EACH_STORE
async def test_approver_by_scope_lists_own_and_other_waiting_tasks(backend: str) -> None:
    app = guarded(backend=backend)
    async with lifespan(app):
        first = await ask(app, contextId='secret of ann')
        own = await ask(app, 'boss')
        second = await ask(app, 'bob')
        page = await listed(boss(app), historyLength=9, includeArtifacts=True)
        assert (ids(page), page['totalSize'], page['nextPageToken']) == ([second, own, first], 3, '')
        views = [task for task in page['tasks'] if task['id'] != own]
        assert views == [await boss(app).get_task(task_id) for task_id in (second, first)]
        assert [task['contextId'] for task in views] == [second, first]
        assert 'secret' not in json.dumps(page)
        await boss(app).send(answer_message(views[1], approve()))
        await wait_until_ended(client_of_caller(app, 'ann'), first)
        assert ids(await listed(boss(app))) == [second, own]


async def test_caller_without_approval_rights_lists_only_own_tasks() -> None:
    app = guarded()
    async with lifespan(app):
        own = await ask(app)
        await ask(app, 'bob')
        page = await listed(client_of_caller(app, 'ann'))
        assert (ids(page), page['totalSize'], page['nextPageToken']) == ([own], 1, '')
        assert ids(await listed(client_of_caller(app, 'eve'))) == []


@pytest.mark.parametrize(
    'params',
    [
        {},
        {'status': 'TASK_STATE_INPUT_REQUIRED', 'contextId': 'shared'},
        {'status': 'TASK_STATE_AUTH_REQUIRED'},
        {'status': 'TASK_STATE_WORKING'},
    ],
)
async def test_other_lists_of_approver_have_only_own_tasks(params: dict[str, Any]) -> None:
    app = guarded()
    async with lifespan(app):
        await ask(app, contextId='shared')
        page = await boss(app).call('ListTasks', params)
        assert (page['tasks'], page['totalSize']) == ([], 0)


@EACH_STORE
@pytest.mark.parametrize('rule', ['approve', every_task], ids=['scope', 'function'])
async def test_pages_merge_own_and_other_tasks_without_gap(rule: Any, backend: str) -> None:
    app = guarded(rule, backend=backend)
    async with lifespan(app):
        tasks = [await ask(app, name) for name in ('ann', 'boss', 'bob', 'boss', 'boss', 'ann', 'ann')]
        tasks.reverse()
        for size in (1, 2, 3, 7, 100):
            found = await pages(boss(app), pageSize=size)
            assert [task_id for page in found for task_id in page] == tasks
            assert all(len(page) == size for page in found[:-2])


async def test_status_timestamp_after_bounds_other_tasks() -> None:
    app = guarded()
    async with lifespan(app):
        await ask(app)
        newer = await ask(app)
        time = (await boss(app).get_task(newer))['status']['timestamp']
        page = await listed(boss(app), statusTimestampAfter=time)
        assert newer in ids(page)
        assert page['totalSize'] == len(page['tasks'])


@EACH_STORE
async def test_tasks_of_other_tenants_are_never_listed(backend: str) -> None:
    app = guarded(every_task, backend=backend)
    async with lifespan(app):
        await ask(app, tenant='acme')
        here = await ask(app, tenant='beta')
        await ask(app)
        page = await listed(boss(app, 'beta'))
        assert (ids(page), page['totalSize']) == ([here], 1)


async def test_approvers_function_is_called_once_per_approval() -> None:
    seen: list[tuple[str, str]] = []

    def of_ann(approver: Caller, task: WaitingTask) -> bool:
        seen.append((approver.id, task.id))
        return task.owner.id == 'ann'

    app = guarded(of_ann)
    async with lifespan(app):
        shown = await ask(app)
        refused = await ask(app, 'bob')
        own = await ask(app, 'boss')
        await ask(app, 'boss', text='ask')
        await ask(app, 'ann', text='ask')
        seen.clear()
        page = await listed(boss(app))
        assert seen == [('boss', own), ('boss', refused), ('boss', shown)]
        assert page['totalSize'] == 3
        assert refused not in ids(page)


async def test_page_ends_after_100_refused_tasks() -> None:
    asked_for: list[str] = []

    def rule(approver: Caller, task: WaitingTask) -> bool:
        asked_for.append(task.id)
        return task.id == oldest

    app = guarded(rule)
    oldest = ''
    async with lifespan(app):
        oldest = await ask(app)
        others = [await ask(app, 'bob') for _ in range(120)]
        asked_for.clear()
        first = await listed(boss(app), pageSize=5)
        assert (first['tasks'], first['totalSize'], len(asked_for)) == ([], 0, 100)
        token = first['nextPageToken']
        assert not any(task_id.encode() in urlsafe_b64decode(token) for task_id in others)
        second = await listed(boss(app), pageSize=5, pageToken=token)
        assert (ids(second), second['totalSize'], second['nextPageToken']) == ([oldest], 1, '')
        assert asked_for == [*reversed(others), oldest]


async def test_page_token_belongs_to_caller_filter_and_rule(tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/agent.db'
    app = guarded(backend=url, access=Access(owner=lambda caller: 'team'))
    async with lifespan(app):
        for _ in range(3):
            await ask(app, 'eve')
        page = await listed(boss(app), pageSize=1)
        token = page['nextPageToken']
        assert ids(await listed(boss(app), pageSize=1, pageToken=token)) != ids(page)
        time = page['tasks'][0]['status']['timestamp']
        other = client_of_caller(app, 'chief', scopes='approve')
        changed = token[:-4] + ('A' if token[-4] != 'A' else 'B') + token[-3:]
        for client, params in (
            (other, {'pageToken': token}),
            (client_of_caller(app, 'boss'), {'pageToken': token}),
            (boss(app), {'pageToken': token, 'statusTimestampAfter': time}),
            (boss(app), {'pageToken': changed}),
            (boss(app), {'pageToken': token[:20]}),
            (boss(app), {'pageToken': 'no token'}),
        ):
            with pytest.raises(RpcError, match='pageToken'):
                await listed(client, pageSize=1, **params)
    again = guarded(every_task, backend=url, access=Access(owner=lambda caller: 'team'))
    async with lifespan(again):
        with pytest.raises(RpcError, match='pageToken'):
            await listed(boss(again), pageSize=1, pageToken=token)


async def test_page_tokens_of_same_page_differ() -> None:
    app = guarded()
    async with lifespan(app):
        tasks = [await ask(app) for _ in range(2)]
        tokens = {(await listed(boss(app), pageSize=1))['nextPageToken'] for _ in range(2)}
        following = [ids(await listed(boss(app), pageToken=token)) for token in tokens]
    assert following == [[tasks[0]]] * 2


async def test_page_token_is_valid_after_a_restart(tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/agent.db'
    app = guarded(every_task, backend=url)
    async with lifespan(app):
        tasks = [await ask(app) for _ in range(2)]
        token = (await listed(boss(app), pageSize=1))['nextPageToken']
    again = guarded(every_task, backend=url)
    async with lifespan(again):
        assert ids(await listed(boss(again), pageSize=1, pageToken=token)) == tasks[:1]


@pytest.mark.parametrize('wrong', ['raises', 'returns text'])
async def test_list_omits_tasks_with_failing_approvers_function(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    def rule(approver: Caller, task: WaitingTask) -> Any:
        if task.owner.id == 'ann':
            return True
        if wrong == 'raises':
            raise RuntimeError('unknown owner')
        return 'yes'

    app = guarded(rule)
    async with lifespan(app):
        shown = await ask(app)
        await ask(app, 'bob')
        await ask(app, 'bob')
        caplog.clear()
        page = await listed(boss(app))
        assert (ids(page), page['totalSize']) == ([shown], 1)
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith(
        'Approvals.approvers has failed for 2 tasks of a list, which leaves out those of other owners (correlation id'
    )


async def test_damaged_task_is_left_out_of_approver_list() -> None:
    def damage(task_id: str) -> Transaction[None]:
        yield [('UPDATE task SET pending = ? WHERE id = ?', [(b'{"calls": [{"kind": "approval"}]}', task_id)])]

    app = guarded()
    async with lifespan(app):
        tasks = [await ask(app) for _ in range(2)]
        await app.backend.write(damage, tasks[1])
        assert ids(await listed(boss(app))) == [tasks[0]]


async def test_list_fails_if_approvers_function_always_fails(caplog: pytest.LogCaptureFixture) -> None:
    def rule(approver: Caller, task: WaitingTask) -> bool:
        raise RuntimeError('no connection')

    app = guarded(rule)
    async with lifespan(app):
        await ask(app)
        with pytest.raises(RpcError, match='Internal error'):
            await listed(boss(app))
    assert 'no connection' in caplog.text


async def test_hanging_approvers_function_fails_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rule(approver: Caller, task: WaitingTask) -> bool:
        await asyncio.Event().wait()
        return True

    app = guarded(rule)
    async with lifespan(app):
        await ask(app)
        monkeypatch.setattr(request_info, 'FUNCTION_TIME', 0.05)
        with pytest.raises(RpcError) as error:
            await listed(boss(app))
    assert error.value.code == -32000


async def test_approver_functions_share_time_of_list(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[str] = []

    async def rule(approver: Caller, task: WaitingTask) -> bool:
        asked_for.append(task.id)
        monkeypatch.setattr(request_info, 'FUNCTION_TIME', LIMIT)  # for a function that has its own time
        if len(asked_for) > 1:
            await asyncio.Event().wait()
        return True

    app = guarded(rule)
    async with lifespan(app):
        tasks = [await ask(app) for _ in range(3)]
        monkeypatch.setattr(request_info, 'FUNCTION_TIME', 0.05)
        assert ids(await listed(boss(app))) == [tasks[2]]
    assert asked_for == [tasks[2], tasks[1]]


async def test_failing_approver_function_beside_refusal_lists_nothing() -> None:
    def rule(approver: Caller, task: WaitingTask) -> bool:
        if task.id == tasks[0]:
            raise RuntimeError('no connection')
        return False

    app = guarded(rule)
    async with lifespan(app):
        tasks = [await ask(app) for _ in range(2)]
        assert ids(await listed(boss(app))) == []


async def test_withdrawn_scope_hides_listed_tasks() -> None:
    app = guarded()
    async with lifespan(app):
        task = await ask(app)
        assert ids(await listed(boss(app))) == [task]
        assert ids(await listed(client_of_caller(app, 'boss'))) == []
        assert pending_calls(await boss(app).get_task(task))


def copy_waiting_task(path: Path, task_id: str, number: int) -> None:
    """Store copies of a task that waits, which are newer than the task."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        columns: list[str] = [row[1] for row in database.execute('PRAGMA table_info(task)')]
        values = {
            'id': "'copy ' || n",
            'status_at': 'status_at + n',
            'queue_seq': 'queue_seq + n',
            'replay_key': 'replay_key || n',
        }
        database.create_function('a2a_clock', 0, int)
        database.execute(
            f'WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {number})'
            f' INSERT INTO task ({", ".join(columns)}) SELECT'
            f' {", ".join(values.get(column, column) for column in columns)} FROM task, numbers WHERE id = ?',
            (task_id,),
        )
        database.execute("UPDATE task SET status_at = status_at WHERE id LIKE 'copy %'")


async def test_last_allowed_task_is_listed_after_9999_refusals(tmp_path: Path) -> None:
    asked_for: list[str] = []

    def rule(approver: Caller, task: WaitingTask) -> bool:
        asked_for.append(task.id)
        return not task.id.startswith('copy')

    app = guarded(rule, backend=f'sqlite:///{tmp_path}/agent.db?synchronous=normal')
    async with lifespan(app):
        oldest = await ask(app)
        copy_waiting_task(tmp_path / 'agent.db', oldest, 9_999)
        found = await pages(boss(app))
    assert [task_id for page in found for task_id in page] == [oldest]
    assert (len(asked_for), len({*asked_for}), len(found)) == (10_000, 10_000, 101)


@pytest.mark.parametrize('hangs', [True, False], ids=['hangs', 'is overloaded'])
async def test_page_ends_before_first_undecidable_task(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rule(approver: Caller, task: WaitingTask) -> bool:
        if task.id == slow:
            if not hangs:
                raise OverloadedError
            await asyncio.Event().wait()
        return True

    slow = ''
    app = guarded(rule)
    async with lifespan(app), asyncio.timeout(LIMIT):
        tasks = [await ask(app) for _ in range(3)]
        own = await ask(app, 'boss')
        slow = tasks[1]
        if hangs:
            monkeypatch.setattr(request_info, 'FUNCTION_TIME', 1.0)
        page = await listed(boss(app))
        assert (ids(page), page['totalSize']) == ([own, tasks[2]], 2)
        with pytest.raises(RpcError) as error:
            await listed(boss(app), pageToken=page['nextPageToken'])
        assert error.value.code == -32000
        slow = ''
        monkeypatch.undo()
        assert ids(await listed(boss(app), pageToken=page['nextPageToken'])) == [tasks[1], tasks[0]]


async def test_disconnect_in_approvers_function_ends_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rule(approver: Caller, task: WaitingTask) -> bool:
        raise ClientGone

    app = guarded(rule)
    async with lifespan(app):
        own = await ask(app, 'boss')
        for name, params in (('ListTasks', WAITING), ('GetTask', {'id': own})):
            with pytest.raises(AssertionError, match='without finishing its answer'):
                await boss(app).call(name, params)


@pytest.mark.parametrize('method', ['ListTasks', 'GetTask'])
async def test_canceled_request_logs_no_approvers_failure(method: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def rule(approver: Caller, task: WaitingTask) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    app = guarded(rule)
    async with lifespan(app), asyncio.timeout(LIMIT):
        own = await ask(app, 'boss')
        params = WAITING if method == 'ListTasks' else {'id': own}
        request = asyncio.create_task(boss(app).call(method, params))
        await asked.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
    assert 'Approvals.approvers has' not in caplog.text


@EACH_STORE
async def test_approver_pages_are_limited_in_bytes(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, 'page', 3000)
    app = guarded(backend=backend)
    async with lifespan(app):
        tasks = [await ask(app, name) for name in ('ann', 'boss', 'ann', 'boss', 'bob')]
        found = await pages(boss(app))
    assert [task_id for page in found for task_id in page] == tasks[::-1]
    assert 1 < len(found) <= 5


async def test_task_larger_than_page_has_own_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, 'page', 1)
    app = guarded()
    async with lifespan(app):
        tasks = [await ask(app) for _ in range(2)]
        page = await listed(boss(app))
        assert ids(page) == [tasks[1]]
        assert ids(await listed(boss(app), pageToken=page['nextPageToken'])) == [tasks[0]]


async def test_changed_rule_applies_to_next_page() -> None:
    allowed = True

    def rule(approver: Caller, task: WaitingTask) -> bool:
        return allowed

    app = guarded(rule)
    async with lifespan(app):
        tasks = [await ask(app) for _ in range(3)]
        own = await ask(app, 'boss')
        first = await listed(boss(app), pageSize=2)
        assert ids(first) == [own, tasks[2]]
        allowed = False
        second = await listed(boss(app), pageSize=2, pageToken=first['nextPageToken'])
        assert (ids(second), second['totalSize'], second['nextPageToken']) == ([], 2, '')


@EACH_STORE
async def test_decisions_between_pages_skip_no_task(backend: str) -> None:
    app = guarded(backend=backend)
    async with lifespan(app):
        tasks = [await ask(app) for _ in range(5)]
        first = await listed(boss(app), pageSize=2)
        assert ids(first) == [tasks[4], tasks[3]]
        for decided in (tasks[4], tasks[2]):
            await boss(app).send(answer_message(await boss(app).get_task(decided), approve()))
        newer = await ask(app, 'bob')
        second = await listed(boss(app), pageSize=2, pageToken=first['nextPageToken'])
        assert (ids(second), second['totalSize'], second['nextPageToken']) == ([tasks[1], tasks[0]], 4, '')
        assert ids(await listed(boss(app))) == [newer, tasks[3], tasks[1], tasks[0]]


@EACH_STORE
async def test_listed_task_shows_state_after_decision_or_expiry(backend: str) -> None:
    app = guarded(backend=backend, retention=Retention(waiting=timedelta(days=1)))
    async with lifespan(app):
        decided, expired, erased = [await ask(app) for _ in range(3)]
        seen = {task['id']: task for task in (await listed(boss(app)))['tasks']}
        await client_of_caller(app, 'chief', scopes='approve').send(answer_message(seen[decided], approve()))
        await wait_until_ended(client_of_caller(app, 'ann'), decided)
        later = SYSTEM.now() + 2 * 24 * 3600 * 1000
        await app.backend.housekeeping.sweep(Retention(waiting=timedelta(days=1)), at=later)
        await app.erase_task(erased)
        views = [await boss(app).get_task(task_id) for task_id in (decided, expired)]
        assert [state_of(view) for view in views] == ['COMPLETED', 'FAILED']
        with pytest.raises(RpcError, match='Task not found'):
            await boss(app).get_task(erased)
        refusals = [await error_of_call(boss(app).send(answer_message(task, approve()))) for task in seen.values()]
        assert sorted(error.code for error in refusals) == [-32004, -32004, -32001]
        page = await listed(boss(app))
        assert (ids(page), page['totalSize']) == ([], 0)


async def test_page_token_is_refused_after_scope_change() -> None:
    app = guarded()
    async with lifespan(app):
        for name in ('ann', 'ann', 'boss', 'boss'):
            await ask(app, name)
        without = client_of_caller(app, 'boss')
        tokens = [(await listed(client, pageSize=1))['nextPageToken'] for client in (boss(app), without)]
        for client, token in ((without, tokens[0]), (boss(app), tokens[1])):
            with pytest.raises(RpcError, match='pageToken'):
                await listed(client, pageSize=1, pageToken=token)


async def test_team_list_marks_calls_caller_may_decide() -> None:
    def not_the_sender(approver: Caller, task: WaitingTask) -> bool:
        return approver.id != task.caller.id

    app = guarded(not_the_sender, access=Access(owner=lambda caller: 'team'))
    async with lifespan(app):
        tasks = [await ask(app, name, contextId='desk') for name in ('ann', 'bob')]
        page = await listed(client_of_caller(app, 'ann'))
        assert (ids(page), page['totalSize']) == (tasks[::-1], 2)
        assert [task['contextId'] for task in page['tasks']] == ['desk', 'desk']
        assert [pending_calls(task)[0]['decidedBy'] for task in page['tasks']] == ['caller', 'approver']


async def test_list_of_approver_writes_no_audit_record(caplog: pytest.LogCaptureFixture) -> None:
    app = guarded(lambda approver, task: False)
    async with lifespan(app):
        await ask(app)
        with caplog.at_level(logging.INFO, LOGGER):
            caplog.clear()
            assert ids(await listed(boss(app))) == []
    assert audit_records(caplog) == []


async def test_storage_of_fasta2a_refuses_lists_of_approvers() -> None:
    app = guarded(storage=InMemoryStorage())
    async with lifespan(app):
        with pytest.raises(RpcError, match='A FastA2A storage cannot list tasks: read each task by its id') as error:
            await listed(boss(app))
    assert error.value.code == -32004


async def test_open_approvals_are_unsupported_by_default() -> None:
    reader = guarded().backend.reader
    for finding in (
        TaskReader.open_approvals(reader, '/boss', limit=1),
        TaskReader.count_open_approvals(reader, '/boss'),
        TaskReader.page_key(reader),
    ):
        with pytest.raises(UnsupportedOperationError, match='does not find the approvals of other owners'):
            await finding


async def test_operator_lists_waiting_tasks_of_all_owners() -> None:
    app = guarded()
    async with lifespan(app):
        tasks = [await ask(app, name) for name in ('ann', 'bob')]
        page = await app.list_tasks(state='input-required')
        assert [task['id'] for task in page] == tasks[::-1]
