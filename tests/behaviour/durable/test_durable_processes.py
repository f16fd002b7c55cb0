"""One file, several server processes: what one of them leaves, the others take on."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, closing
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import pytest

from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.server.store.postgres.sql_translation import CLOCK
from pydantic_ai_a2a.wire.extensions.client_tools import CLIENT_TOOLS_URI

from ...app_client import state_of, texts
from ...dialects import in_no_version
from ...e2e.server import LIMIT, SERVERS, uvicorn
from ...reserved_ports import port_of, reserved_port
from ...sizes import short_or_long
from ..durable_processes import (
    ServerClient,
    expire_leases,
    holder_first,
    kill,
    pause,
    poll_until,
    server_process,
    wait_for,
)
from ..pending_calls import client_tool, pending_calls, result_answer
from ..promised_behaviours import covers

pytestmark = in_no_version('where tasks are kept is below what versions differ in')


class Start(Protocol):
    def __call__(
        self, app: str, *options: str, lease: float = 30.0, cancel_grace: float = LIMIT
    ) -> AbstractContextManager[ServerClient]: ...


@pytest.fixture(params=['file', 'postgres'])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of what the test's servers share."""
    file = f'sqlite:///{tmp_path}/agent.db'
    return file if request.param == 'file' else request.getfixturevalue('postgres_url')


FILE = pytest.mark.parametrize('store', ['file'], indirect=True)
HOURS: dict[object, str] = {1: 'forward', -1: 'back'}
CLOCKS = short_or_long([('file', 1)], [('file', 1), ('postgres', -1), ('file', -1), ('postgres', 1)])
"""A store, and the hours by which the wall clock of a process is set."""


@pytest.fixture
def start(tmp_path: Path, store: str) -> Start:
    """Starts a server on the test's store."""

    def run(
        app: str, *options: str, lease: float = 30.0, cancel_grace: float = LIMIT
    ) -> AbstractContextManager[ServerClient]:
        env = {
            'A2A_TEST_BACKEND': store,
            'A2A_TEST_LEDGER': str(tmp_path / 'ledger.txt'),
            'A2A_TEST_LEASE': str(lease),
            'A2A_TEST_CANCEL_GRACE': str(cancel_grace),
            'A2A_TEST_CLOCK': str(tmp_path / 'clock.txt'),
        }
        return server_process(f'tests.behaviour.durable_{app}', *options, env=env)

    return run


@SERVERS
@covers('SIGTERM')
async def test_next_process_completes_task_of_killed_process(start: Start, options: tuple[str, ...]) -> None:
    with start('puppet:app', *options, lease=1.0) as remote:
        before = await remote.send('say hello', contextId='c')
        task = await remote.send('wait gate', contextId='c', wait=False)
        queued = await remote.send('recall', contextId='c', wait=False)
        await remote.gates.reached('gate')
        async with remote.subscribe(task['id']) as events:  # from now on the task has a log
            number, snapshot = await anext(events)
        assert (number, snapshot['task']['id']) == (1, task['id'])
        await kill(remote.server)
    with start('puppet:app', *options, lease=1.0) as remote:
        await remote.gates.reached('gate')
        await remote.gates.open('gate')
        async with remote.subscribe(task['id'], Last_Event_ID='1') as events:
            states = [event['statusUpdate']['status']['state'] async for _, event in events if 'statusUpdate' in event]
        assert states == ['TASK_STATE_COMPLETED']
        assert texts(await remote.call('GetTask', id=task['id'])) == ['Before the gate, and after.']
        assert texts(await remote.ended(queued['id'])) == ['Before, you said: say hello; wait gate.']
        assert texts(await remote.call('GetTask', id=before['id'])) == ['hello ']


BOUNDED = ('--timeout-graceful-shutdown', '1')
"""For servers in which a gate may be asked for that no run comes to: they would wait for its end."""


@pytest.mark.long
@pytest.mark.parametrize(('store', 'hours'), CLOCKS, ids=lambda value: HOURS.get(value, value), indirect=['store'])
async def test_wall_clock_jump_does_not_affect_leases(start: Start, store: str, tmp_path: Path, hours: int) -> None:
    gates = [f'gate{n}' for n in range(12)]
    with start('puppet:app', *BOUNDED, lease=6.0) as one, start('puppet:app', *BOUNDED, lease=6.0) as two:
        senders = zip(gates, cycle((one, two)), strict=False)
        kept = [await sender.send(f'wait {gate}', wait=False) for gate, sender in senders]
        await asyncio.gather(*(holder_first(gate, one, two) for gate in gates))
        with start('puppet:app', lease=6.0) as doomed:
            lost = [await doomed.send('wait lost', wait=False) for _ in range(6)]
            await doomed.gates.reached('lost')
            (tmp_path / 'clock.txt').write_text(str(hours * 3600))
            await kill(doomed.server)
        for remote in (one, two):
            await asyncio.gather(*(remote.gates.open(gate) for gate in ('lost', *gates)))
        done = [await one.ended(task['id']) for task in (*lost, *kept)]
        # Tasks that ran in the killed server were started twice, and no others.
        assert {state_of(task) for task in done} == {'COMPLETED'}
        attempts = await attempts_of(store)
        assert [attempts[task['id']] for task in kept] == [1] * len(kept)
        assert max(attempts[task['id']] for task in lost) == 2
        for remote in (one, two):
            assert 'was taken over' not in remote.server.output


async def attempts_of(store: str) -> dict[str, int]:
    """How often each task was started."""
    query = 'SELECT id, attempt FROM task'
    if store.startswith('sqlite'):
        with closing(sqlite3.connect(store.removeprefix('sqlite:///'))) as file:
            return dict(file.execute(query).fetchall())
    connection = await asyncpg.connect(store)
    rows = await connection.fetch(query.replace('task', 'a2a.task'))
    await connection.close()
    return {row['id']: row['attempt'] for row in rows}


async def test_conversation_summary_is_shared_between_processes(start: Start) -> None:
    with start('apps:compacting') as one, start('apps:compacting') as two:
        senders = zip(range(12), cycle((one, two)), strict=False)
        answered = [texts(await sender.send(f'{n}', contextId='c')) for n, sender in senders]
    kept = [[f'{n}, a summary of 11'] for n in (3, 5, 7, 9)]
    assert answered == [['1'], ['3'], ['5'], ['7'], ['9'], *kept, *kept[:3]]


@FILE
async def test_late_result_of_paused_process_is_dropped(start: Start, store: str, tmp_path: Path) -> None:
    with start('puppet:app', *BOUNDED, lease=9.0) as one, start('puppet:app', *BOUNDED, lease=9.0) as two:
        task = await one.send('wait gate', wait=False)
        here, there = await holder_first('gate', one, two)
        async with here.subscribe(task['id']) as events:  # from now on the task has a log
            newest, _ = await anext(events)
        pause(here, tmp_path / 'agent.db')
        await expire_leases(store)
        await there.gates.reached('gate')
        here.server.signal(signal.SIGCONT)
        await here.gates.open('gate')
        await wait_for(here, f'Task {task["id"]} was taken over or has ended; its late result is dropped')
        assert state_of(await here.call('GetTask', id=task['id'])) == 'WORKING'
        more = await here.send('recall', contextId=task['contextId'], wait=False)
        await there.gates.open('gate')
        assert texts(await here.ended(more['id'])) == ['Before, you said: wait gate.']
        async with here.subscribe(task['id'], Last_Event_ID=f'{newest}') as events:
            log = [each async for each in events]
        done = await there.call('GetTask', id=task['id'])
    assert [n for n, _ in log] == [*range(newest + 1, newest + len(log) + 1)]
    assert json.dumps(log).count('TASK_STATE_COMPLETED') == 1
    assert (state_of(done), texts(done)) == ('COMPLETED', ['Before the gate, and after.'])


@FILE
@SERVERS
@covers('cancel a running task')
async def test_task_of_hung_process_can_be_canceled(start: Start, tmp_path: Path, options: tuple[str, ...]) -> None:
    hasty = partial(start, 'puppet:app', *BOUNDED, *options, cancel_grace=0.1)
    with hasty() as one, hasty() as two:
        task = await one.send('use gate', wait=False)
        here, there = await holder_first('gate', one, two)
        async with there.subscribe(task['id']) as events:
            assert 'task' in (await anext(events))[1]
            pause(here, tmp_path / 'agent.db')
            canceled = await there.call('CancelTask', id=task['id'])
            seen = [each async for each in events]
        following = await there.send('recall', contextId=task['contextId'])
        here.server.signal(signal.SIGCONT)
        await here.gates.open('gate')
        await wait_for(here, f'Task {task["id"]} was taken over or has ended; its late result is dropped')
        assert await here.call('GetTask', id=task['id']) == canceled
    assert state_of(canceled) == 'CANCELED'
    assert 'TASK_STATE_CANCELED' in json.dumps(seen[-1])
    assert texts(following) == ['Before, you said: .']


async def wait_until_noticed(here: ServerClient, there: ServerClient) -> None:
    """Wait until one process has looked at the writes of the other one: it notices a cancellation so."""
    for n in count():
        task = await here.send(f'wait other{n}', wait=False)
        holder, _ = await holder_first(f'other{n}', here, there)
        await there.call('CancelTask', id=task['id'])
        if holder is here:
            return


@SERVERS
async def test_task_is_usable_from_every_process(start: Start, options: tuple[str, ...]) -> None:
    app = partial(start, 'puppet:app', *BOUNDED, *options)
    with app() as one, app() as two:
        task = await one.send('use gate', wait=False)
        here, there = await holder_first('gate', one, two)
        assert state_of(await there.call('GetTask', id=task['id'])) == 'WORKING'
        async with there.subscribe(task['id']) as events:
            assert 'task' in (await anext(events))[1]
            more = await there.send('wait ever', taskId=task['id'], contextId=task['contextId'], wait=False)
            await wait_until_noticed(here, there)  # else the second run may not stream
            await here.gates.open('gate')
            seen = [await anext(events)]
            while '"Before the gate, "' not in json.dumps(seen):
                seen.append(await anext(events))
            await here.gates.reached('ever')
            canceled = await there.call('CancelTask', id=more['id'])
            seen += [each async for each in events]
        assert more['id'] == task['id']
        assert state_of(canceled) == 'CANCELED'
        assert await here.gates.stopped('ever')
        numbers = [n for n, _ in seen]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        async with here.subscribe(task['id'], Last_Event_ID=str(numbers[0])) as again:
            assert [each async for each in again] == seen[1:]
        blocked = asyncio.create_task(there.send('recall', contextId=task['contextId']))
        assert texts(await blocked) == ['Before, you said: use gate; wait ever.']


@pytest.mark.long
@pytest.mark.parametrize('store', short_or_long(['file'], ['file', 'postgres']), indirect=True)
@covers('`--workers 2`')
async def test_uvicorn_workers_share_tasks(start: Start) -> None:
    with (
        reserved_port() as reserved,  # uvicorn does not say which port its workers have got
        start('apps:clerk', '--port', f'{port_of(reserved)}', '--workers', '2') as remote,
    ):
        remote.server.wait_for(r'(?s)startup complete.*startup complete')
        tasks = await asyncio.gather(*(remote.send(f'{n}', contextId=f'c{n}') for n in range(10)))
        assert [texts(task) for task in tasks] == [[f'{n}'] for n in range(10)]
        for n, task in enumerate(tasks):
            assert await remote.call('GetTask', id=task['id']) == task
            assert texts(await remote.send('again', contextId=f'c{n}')) == [f'{n} again']


@covers('`--workers 2`')
def test_uvicorn_workers_with_memory_store_are_refused() -> None:
    with uvicorn('tests.e2e.apps:app', '--workers', '2') as server:
        server.wait_for('2 server processes cannot share tasks in memory: use backend=')


@asynccontextmanager
async def store_locked(store: str) -> AsyncGenerator[Callable[[], Awaitable[bool]]]:
    """Lock all servers out of the store for the block. Gives a function that tells if all leases have expired."""
    if store.startswith('sqlite'):
        with closing(sqlite3.connect(store.removeprefix('sqlite:///'), timeout=LIMIT, isolation_level=None)) as file:
            file.execute('BEGIN IMMEDIATE')

            async def in_file() -> bool:
                return file.execute('SELECT MAX(lease_until) < ? FROM task', [SYSTEM.steady()]).fetchone() == (1,)

            yield in_file
        return
    database = await asyncpg.connect(store)
    await database.execute('BEGIN; LOCK TABLE a2a.task IN ACCESS EXCLUSIVE MODE')

    async def in_database() -> bool:
        return await database.fetchval(f'SELECT MAX(lease_until) < {CLOCK} FROM a2a.task')

    try:
        yield in_database
    finally:
        await database.close()


async def lease_is_valid(store: str) -> bool:
    """True once a lease has not expired."""
    async with store_locked(store) as expired:
        return not await expired()


@pytest.mark.long
@pytest.mark.parametrize('store', short_or_long(['postgres'], ['file', 'postgres']), indirect=True)
@covers('storage error in one task')
async def test_long_store_outage_does_not_move_task(start: Start, store: str, tmp_path: Path) -> None:
    lease = 12.0  # a process that comes back has a third of it to renew, before another may claim the task
    with start('apps:clerk', *BOUNDED, lease=lease) as one, start('apps:clerk', *BOUNDED, lease=lease) as two:
        task = await one.send('held', wait=False)
        here, _ = await holder_first('held', one, two)
        async with store_locked(store) as expired:
            await poll_until(expired)
        await poll_until(partial(lease_is_valid, store))
        await here.gates.open('held')
        done = await here.ended(task['id'])
    assert (state_of(done), texts(done)) == ('COMPLETED', ['held'])
    assert (tmp_path / 'ledger.txt').read_text() == 'held\n'


@pytest.mark.long
@pytest.mark.parametrize('store', short_or_long(['postgres'], ['file', 'postgres']), indirect=True)
async def test_each_task_ends_once_despite_killed_process(start: Start, store: str, tmp_path: Path) -> None:
    ledger = tmp_path / 'ledger.txt'
    with start('apps:clerk', *BOUNDED, lease=9.0) as one, start('apps:clerk', *BOUNDED, lease=9.0) as two:
        held = await one.send('held', wait=False)
        killed, left = await holder_first('held', one, two)
        sent = [await (one, two)[n % 2].send(f'{n}', contextId=f'c{n % 6}', wait=False) for n in range(24)]
        await kill(killed.server)
        await expire_leases(store)
        await left.gates.reached('held')
        await left.gates.open('held')
        done = [await left.ended(task['id']) for task in (held, *sent)]
    assert [state_of(task) for task in done] == ['COMPLETED'] * 25
    assert [texts(task) for task in done[-6:]] == [[f'{n} {n + 6} {n + 12} {n + 18}'] for n in range(6)]
    written = Counter(ledger.read_text().split())
    assert {*written} == {'held', *(str(n) for n in range(24))}
    assert written['held'] == 2
    query = "SELECT stop_event, COUNT(*) FROM task WHERE state = 'completed' GROUP BY stop_event"
    if store.startswith('sqlite:'):
        with closing(sqlite3.connect(tmp_path / 'agent.db')) as file:
            ends = file.execute(query).fetchall()
    else:
        connection = await asyncpg.connect(store, server_settings={'search_path': 'a2a'})
        ends = [tuple(row) for row in await connection.fetch(query)]
        await connection.close()
    assert ends == [(3, 25)]  # after the start and the result


@SERVERS
async def test_message_enters_run_of_a_different_process(
    start: Start, tmp_path: Path, options: tuple[str, ...]
) -> None:
    app = partial(start, 'apps:steered_clerk', *BOUNDED, *options)
    with app() as one, app() as two:
        task = await one.send('held', wait=False)
        here, there = await holder_first('held', one, two)
        async with here.subscribe(task['id']) as events:
            assert 'task' in (await anext(events))[1]
            await there.send('more', taskId=task['id'], wait=False)
            await here.gates.open('held')
            seen = [event async for _, event in events]
        done = await there.call('GetTask', id=task['id'])
    assert (state_of(done), texts(done)) == ('COMPLETED', ['held more'])
    assert 'held more' in json.dumps(seen)
    assert (tmp_path / 'ledger.txt').read_text().split() == ['held', 'more']
    said = [part['text'] for each in done['history'] for part in each['parts']]
    assert said == ['held', 'more', 'held more']


def stored(folder: Path, query: str) -> Any:
    """A value of the test's file."""
    database = sqlite3.connect(folder / 'agent.db')
    [[value]] = database.execute(query).fetchall()
    database.close()
    return value


@FILE
async def test_killed_run_resumes_at_its_interrupted_step(start: Start, tmp_path: Path) -> None:
    with start('steps:app', lease=1.0) as remote:
        await remote.send('recall', contextId='c')
        task = await remote.send('stop at model-4', contextId='c', wait=False)
        await remote.gates.reached('model-4')
        async with remote.subscribe(task['id']) as stream:  # from now on the task has a log
            newest, _ = await anext(stream)
        await kill(remote.server)
    with start('steps:app', lease=1.0) as remote:
        await remote.gates.open('model-4')
        async with remote.subscribe(task['id'], Last_Event_ID=f'{newest}') as stream:
            events = [event async for event in stream]
        done = await remote.call('GetTask', id=task['id'])
        assert texts(await remote.send('recall', contextId='c')) == ['recall + stop at model-4 + recall']
    assert (state_of(done), texts(done)) == ('COMPLETED', ['Step 5, done.'])
    assert [n for n, _ in events] == list(range(newest + 1, newest + len(events) + 1))
    notes = [event['statusUpdate']['status'].get('message') for _, event in events if 'statusUpdate' in event]
    assert [each['parts'][0]['text'] for each in notes if each] == ['Step 4, done.']
    begun = [line.split()[0] for line in (tmp_path / 'ledger.txt').read_text().splitlines()]
    assert begun[:7] == ['model-1', 'tool-1', 'model-2', 'tool-2', 'model-3', 'tool-3', 'model-4']
    assert begun[7:] == ['model-4', 'tool-4', 'model-5']
    usage = json.loads(stored(tmp_path, 'SELECT record FROM conversation'))['usage']
    assert (usage['requests'], usage['tool_calls']) == (1 + 5 + 1, 4)
    assert stored(tmp_path, 'SELECT COUNT(*) FROM entry') == 2 + 10 + 2
    assert stored(tmp_path, 'SELECT COUNT(*) FROM checkpoint') == 0


@FILE
async def test_tools_see_attempt_number_after_each_kill(start: Start, tmp_path: Path) -> None:
    with start('steps:app', lease=1.0) as remote:
        task_id = (await remote.send('stop at tool-2 model-4', wait=False))['id']
        await remote.gates.reached('tool-2')
        await kill(remote.server)
    with start('steps:app', lease=1.0) as remote:
        await remote.gates.open('tool-2')
        await remote.gates.reached('model-4')
        await kill(remote.server)
    with start('steps:app', lease=1.0) as remote:
        await remote.gates.open('model-4')
        assert texts(await remote.ended(task_id)) == ['Step 5, done.']
    lines = (tmp_path / 'ledger.txt').read_text().splitlines()
    assert [line for line in lines if 'tool' in line] == [
        f'tool-1 call-1 {task_id}.1 attempt 1',
        f'tool-2 call-2 {task_id}.1 attempt 1',
        f'tool-2 call-2 {task_id}.1 attempt 2',
        f'tool-3 call-3 {task_id}.1 attempt 2',
        f'tool-4 call-4 {task_id}.1 attempt 3',
    ]
    assert [line for line in lines if 'model' in line] == [f'model-{n}' for n in (1, 2, 3, 4, 4, 5)]
    usage = json.loads(stored(tmp_path, 'SELECT record FROM conversation'))['usage']
    assert (usage['requests'], usage['tool_calls']) == (5, 4)


async def test_message_enqueued_by_tool_survives_killed_run(start: Start) -> None:
    with start('steps:app', lease=1.0) as remote:
        task_id = (await remote.send('enqueue stop at model-3', wait=False))['id']
        await remote.gates.reached('model-3')
        await kill(remote.server)
    with start('steps:app', lease=1.0) as remote:
        await remote.gates.open('model-3')
        assert texts(await remote.ended(task_id)) == ['enqueue stop at model-3 + recall']


STOPPED = ('TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_COMPLETED')


async def answer(remote: ServerClient, task: dict[str, Any], value: Any, *, wait: bool = True) -> dict[str, Any]:
    """Answer the only call of a task."""
    [call] = pending_calls(task)
    data = {'callAnswers': [result_answer(call, value)]}
    return await remote.send('', wait=wait, parts=[{'data': data}], taskId=task['id'])


async def stopped(remote: ServerClient, task_id: str) -> dict[str, Any]:
    """The task once it waits or is over."""
    async with remote.subscribe(task_id) as events:
        async for _, event in events:
            if event.get('statusUpdate', event.get('task', {})).get('status', {}).get('state') in STOPPED:
                break
    return await remote.call('GetTask', id=task_id)


@FILE
async def test_client_tools_survive_kills_and_pause(start: Start, tmp_path: Path) -> None:
    declared = {CLIENT_TOOLS_URI: {'tools': [client_tool(), client_tool('fetch')]}}
    with start('apps:declaring', lease=1.0) as remote:
        task_id = (await remote.send('go', wait=False, metadata=declared))['id']
        await remote.gates.reached('step-0')
        await kill(remote.server)
    with start('apps:declaring', lease=1.0) as remote:
        await remote.gates.open('step-0')
        waiting = await stopped(remote, task_id)
        await kill(remote.server)
    with start('apps:declaring', lease=1.0) as remote:
        await answer(remote, waiting, 'hit', wait=False)
        await remote.gates.reached('step-1')
        await kill(remote.server)
    with start('apps:declaring', lease=1.0) as remote:
        await remote.gates.open('step-1')
        waiting = await stopped(remote, task_id)
        await remote.gates.open('step-2')
        done = await answer(remote, waiting, 'page')
    assert (state_of(done), texts(done)) == ('COMPLETED', ['hit + page'])
    assert (tmp_path / 'ledger.txt').read_text().splitlines() == [
        'step-0 fetch,search',
        'step-0 fetch,search',
        'step-1 fetch,search',
        'step-1 fetch,search',
        'step-2 fetch,search',
    ]
