"""One file, several server processes: what one of them leaves, the others take on."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import httpx
import pytest

from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.store.postgres.statements import CLOCK

from ...client import LIVE, message, state_of, texts
from ...dialects import unversioned
from ...e2e.server import LIMIT, Gates, Process, process, rpc, uvicorn
from ...long import size
from ...reserved_ports import port_of, reserved_port
from ..rows import covers

pytestmark = unversioned('where tasks are kept is below what versions differ in')

ENDED = ('TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED')


class Start(Protocol):
    def __call__(
        self, agent: str, *options: str, lease: float = 30.0, cancel_grace: float = 5.0
    ) -> AbstractContextManager[Process]: ...


@pytest.fixture(params=['file', 'postgres'])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of what the test's servers share."""
    file = f'sqlite:///{tmp_path}/agent.db'
    return file if request.param == 'file' else request.getfixturevalue('postgres_url')


FILE = pytest.mark.parametrize('store', ['file'], indirect=True)
HOURS: dict[object, str] = {1: 'forward', -1: 'back'}
CLOCKS = size([('file', 1)], [('file', 1), ('postgres', -1), ('file', -1), ('postgres', 1)])
"""A store, and the hours by which the wall clock of a process is set."""


@pytest.fixture
def start(tmp_path: Path, store: str) -> Start:
    """Starts a server on the test's store."""

    @contextmanager
    def run(agent: str, *options: str, lease: float = 30.0, cancel_grace: float = 5.0) -> Generator[Process]:
        env = {
            'A2A_TEST_BACKEND': store,
            'A2A_TEST_LEDGER': str(tmp_path / 'ledger.txt'),
            'A2A_TEST_LEASE': str(lease),
            'A2A_TEST_CANCEL_GRACE': str(cancel_grace),
            'A2A_TEST_CLOCK': str(tmp_path / 'clock.txt'),
        }
        app = f'tests.behaviour.durable_{agent}:app'
        with process('-m', 'uvicorn', app, '--port', '0', *options, env=env) as server:
            assert server.url
            try:
                yield server
            finally:
                server.signal(signal.SIGCONT)  # one that is stopped does not end

    return run


class Remote:
    """A client of one server."""

    def __init__(self, server: Process) -> None:
        self.server = server
        self.url = server.url
        self.gates = Gates(server.url)

    async def call(self, method: str, **params: Any) -> Any:
        async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
            answer = (await http.post(self.url, json=rpc(method, **params), headers={'A2A-Version': '1.0'})).json()
        assert 'result' in answer, answer
        return answer['result']

    async def send(self, text: str, *, wait: bool = True, **fields: Any) -> dict[str, Any]:
        configuration = {'returnImmediately': not wait}
        return (await self.call('SendMessage', message=message(text, **fields), configuration=configuration))['task']

    @asynccontextmanager
    async def subscribe(self, task_id: str, **headers: str) -> AsyncGenerator[AsyncIterator[tuple[int, Any]]]:
        """Numbers and contents of a task's events."""
        async with (
            httpx.AsyncClient(timeout=LIMIT, verify=False) as http,
            http.stream(
                'POST',
                self.url,
                json=rpc('SubscribeToTask', id=task_id),
                headers={'A2A-Version': '1.0', **LIVE, **{name.replace('_', '-'): it for name, it in headers.items()}},
            ) as response,
        ):
            yield _events(response.aiter_lines())

    async def ended(self, task_id: str) -> dict[str, Any]:
        """The task once it is over."""
        async with self.subscribe(task_id) as events:
            async for _ in events:
                pass
        task = await self.call('GetTask', id=task_id)
        assert task['status']['state'] in ENDED
        return task


async def where(gate: str, *remotes: Remote) -> list[Remote]:
    """The servers, first the one whose agent has come to the gate: most often that which took the message."""
    waiting = {asyncio.ensure_future(remote.gates.reached(gate)): remote for remote in remotes}
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    return [waiting[each] for each in (*done, *others)]


def stop(remote: Remote, file: Path) -> None:
    """Stop a server, but not while it writes: nobody else could."""
    database = sqlite3.connect(file, timeout=0, isolation_level=None)
    with closing(database):
        while True:
            remote.server.stop()
            try:
                database.execute('BEGIN IMMEDIATE')
            except sqlite3.OperationalError:
                remote.server.signal(signal.SIGCONT)
            else:
                return


async def wait_for(remote: Remote, line: str) -> None:
    """Wait until a server has said something."""
    await asyncio.to_thread(remote.server.wait_for, re.escape(line))


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[int, Any]]:
    number = 0
    async for line in lines:
        if line.startswith('id: '):
            number = int(line[4:])
        elif line.startswith('data: '):
            yield number, json.loads(line[6:]).get('result')


@covers('SIGTERM')
async def test_a_task_whose_process_was_killed_is_done_by_the_next_one_and_its_conversation_goes_on(
    start: Start,
) -> None:
    with start('puppet', lease=1.0) as server:
        remote = Remote(server)
        before = await remote.send('say hello', contextId='c')
        task = await remote.send('wait gate', contextId='c', wait=False)
        queued = await remote.send('recall', contextId='c', wait=False)
        await remote.gates.reached('gate')
        async with remote.subscribe(task['id']) as events:  # from now on the task has a log
            number, snapshot = await anext(events)
        assert (number, snapshot['task']['id']) == (1, task['id'])
        server.signal(signal.SIGKILL)
        assert await server.ended() == -signal.SIGKILL
    with start('puppet', lease=1.0) as server:
        remote = Remote(server)
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
async def test_a_wall_clock_that_is_set_takes_no_task_away_and_lets_lost_ones_go_on(
    start: Start, store: str, tmp_path: Path, hours: int
) -> None:
    gates = [f'gate{n}' for n in range(12)]
    with start('stepped', *BOUNDED, lease=6.0) as one, start('stepped', *BOUNDED, lease=6.0) as two:
        here, there = Remote(one), Remote(two)
        senders = zip(gates, cycle((here, there)), strict=False)
        kept = [await sender.send(f'wait {gate}', wait=False) for gate, sender in senders]
        await asyncio.gather(*(where(gate, here, there) for gate in gates))
        with start('stepped', lease=6.0) as third:
            doomed = Remote(third)
            lost = [await doomed.send('wait lost', wait=False) for _ in range(6)]
            await doomed.gates.reached('lost')
            (tmp_path / 'clock.txt').write_text(str(hours * 3600))
            third.signal(signal.SIGKILL)
            await third.ended()
        for remote in (here, there):
            await asyncio.gather(*(remote.gates.open(gate) for gate in ('lost', *gates)))
        done = [await here.ended(task['id']) for task in (*lost, *kept)]
        # Tasks that ran in the killed server were started twice, and no others.
        assert {state_of(task) for task in done} == {'COMPLETED'}
        attempts = await attempts_of(store)
        assert [attempts[task['id']] for task in kept] == [1] * len(kept)
        assert max(attempts[task['id']] for task in lost) == 2
        for server in (one, two):
            assert 'was taken over' not in server.output


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


async def test_a_summary_of_one_process_is_read_by_the_others(start: Start) -> None:
    with start('compacting') as one, start('compacting') as two:
        senders = zip(range(12), cycle((Remote(one), Remote(two))), strict=False)
        answered = [texts(await sender.send(f'{n}', contextId='c')) for n, sender in senders]
    kept = [[f'{n}, a summary of 11'] for n in (3, 5, 7, 9)]
    assert answered == [['1'], ['3'], ['5'], ['7'], ['9'], *kept, *kept[:3]]


@FILE
async def test_what_a_process_does_that_was_stopped_past_its_lease_is_dropped_when_it_wakes_up(
    start: Start, tmp_path: Path
) -> None:
    with start('puppet', *BOUNDED, lease=3.0) as one, start('puppet', *BOUNDED, lease=3.0) as two:
        task = await Remote(one).send('wait gate', wait=False)
        here, there = await where('gate', Remote(one), Remote(two))
        async with here.subscribe(task['id']) as events:  # from now on the task has a log
            newest, _ = await anext(events)
        stop(here, tmp_path / 'agent.db')
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
@covers('cancel a running task')
async def test_a_task_whose_process_hangs_is_canceled_by_another_one_and_its_context_goes_on(
    start: Start, tmp_path: Path
) -> None:
    options: dict[str, Any] = {'cancel_grace': 0.1}
    with start('puppet', *BOUNDED, **options) as one, start('puppet', *BOUNDED, **options) as two:
        task = await Remote(one).send('use gate', wait=False)
        here, there = await where('gate', Remote(one), Remote(two))
        async with there.subscribe(task['id']) as events:
            assert 'task' in (await anext(events))[1]
            stop(here, tmp_path / 'agent.db')
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


async def noticed(here: Remote, there: Remote) -> None:
    """Wait until one process has looked at the writes of the other one: it notices a cancellation so."""
    for n in count():
        task = await here.send(f'wait other{n}', wait=False)
        holder, _ = await where(f'other{n}', here, there)
        await there.call('CancelTask', id=task['id'])
        if holder is here:
            return


async def test_a_task_of_one_process_is_read_streamed_continued_and_canceled_in_another_one(start: Start) -> None:
    with start('puppet', *BOUNDED) as one, start('puppet', *BOUNDED) as two:
        task = await Remote(one).send('use gate', wait=False)
        here, there = await where('gate', Remote(one), Remote(two))
        assert state_of(await there.call('GetTask', id=task['id'])) == 'WORKING'
        async with there.subscribe(task['id']) as events:
            assert 'task' in (await anext(events))[1]
            more = await there.send('wait ever', taskId=task['id'], contextId=task['contextId'], wait=False)
            await noticed(here, there)  # else the second run may not stream
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
@pytest.mark.parametrize('store', size(['file'], ['file', 'postgres']), indirect=True)
@covers('`--workers 2`')
async def test_workers_of_one_server_share_their_tasks(start: Start) -> None:
    with (
        reserved_port() as reserved,  # uvicorn does not say which port its workers have got
        start('clerk', '--port', f'{port_of(reserved)}', '--workers', '2') as server,
    ):
        server.wait_for(r'(?s)startup complete.*startup complete')
        remote = Remote(server)
        tasks = await asyncio.gather(*(remote.send(f'{n}', contextId=f'c{n}') for n in range(10)))
        assert [texts(task) for task in tasks] == [[f'{n}'] for n in range(10)]
        for n, task in enumerate(tasks):
            assert await remote.call('GetTask', id=task['id']) == task
            assert texts(await remote.send('again', contextId=f'c{n}')) == [f'{n} again']


@covers('`--workers 2`')
def test_workers_of_one_server_are_refused_in_memory() -> None:
    with uvicorn('tests.e2e.apps:app', '--workers', '2') as server:
        server.wait_for('2 server processes cannot share tasks in memory: use backend=')


@asynccontextmanager
async def taken_away(store: str) -> AsyncGenerator[Callable[[], Awaitable[bool]]]:
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


async def renewed(store: str) -> bool:
    """True once a lease has not expired."""
    async with taken_away(store) as expired:
        return not await expired()


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until the answer is yes."""
    async with asyncio.timeout(LIMIT):
        while not await reached():
            await asyncio.to_thread(time.sleep, 0.05)


@pytest.mark.long
@pytest.mark.parametrize('store', size(['postgres'], ['file', 'postgres']), indirect=True)
@covers('storage error in one task')
async def test_a_task_stays_with_its_process_after_an_outage_that_was_longer_than_the_lease(
    start: Start, store: str, tmp_path: Path
) -> None:
    lease = 12.0  # a process that comes back has a third of it to renew, before another may claim the task
    with start('clerk', *BOUNDED, lease=lease) as one, start('clerk', *BOUNDED, lease=lease) as two:
        remotes = [Remote(one), Remote(two)]
        task = await remotes[0].send('held', wait=False)
        here, _ = await where('held', *remotes)
        async with taken_away(store) as expired:
            await until(expired)
        await until(partial(renewed, store))
        await here.gates.open('held')
        done = await here.ended(task['id'])
    assert (state_of(done), texts(done)) == ('COMPLETED', ['held'])
    assert (tmp_path / 'ledger.txt').read_text() == 'held\n'


@pytest.mark.long
@pytest.mark.parametrize('store', size(['postgres'], ['file', 'postgres']), indirect=True)
async def test_each_task_ends_once_while_a_process_is_killed(start: Start, store: str, tmp_path: Path) -> None:
    ledger = tmp_path / 'ledger.txt'
    with start('clerk', *BOUNDED, lease=6.0) as one, start('clerk', *BOUNDED, lease=6.0) as two:
        remotes = [Remote(one), Remote(two)]
        held = await remotes[0].send('held', wait=False)
        killed, left = await where('held', *remotes)
        sent = [await remotes[n % 2].send(f'{n}', contextId=f'c{n % 6}', wait=False) for n in range(24)]
        killed.server.signal(signal.SIGKILL)
        await left.gates.reached('held')
        await left.gates.open('held')
        done = [await left.ended(task['id']) for task in (held, *sent)]
        assert await killed.server.ended() == -signal.SIGKILL
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


async def test_a_message_that_one_process_takes_enters_the_run_of_another(start: Start, tmp_path: Path) -> None:
    with start('desk', *BOUNDED) as one, start('desk', *BOUNDED) as two:
        task = await Remote(one).send('held', wait=False)
        here, there = await where('held', Remote(one), Remote(two))
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
