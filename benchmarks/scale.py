"""Measures how the PostgreSQL backend scales, through its ports, without HTTP: `python -m benchmarks.scale`.

Counts (commits, statements, notifications) repeat from run to run. Times are the smallest of many, and rates are worth
comparing only within one table.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count, product
from os import getloadavg, getpid
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import asyncpg

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store import Backend, Claim, Finish, PostgresBackend, PushConfig, Slot, Submission
from tests.postgres import DefaultPostgres, postgres_server
from tests.suites import values
from tests.suites.push import configs_of

from .__main__ import machine
from .report import ROOT, git, table
from .servers import Databases

AT_ONCE = 32
"""Concurrent tasks of a process."""
TOGETHER, PATIENCE = AT_ONCE // 8, 0.1
"""A claim beside a backlog waits for this many free slots, at most for this many seconds, as a worker does."""
BACKLOG = 200
ENOUGH = 10**7
KEEP = Retention(max_tasks=ENOUGH)
ARTIFACT = 'a', b'{"artifactId":"a","parts":[{"text":"hello"}]}'
STORED = "SELECT SUM(pg_total_relation_size(relid))::BIGINT FROM pg_stat_user_tables WHERE schemaname = 'a2a'"
SLOT = Slot('holder', values.LEASE)
_numbers = count()
Lines = list[Sequence[str]]


class Size(NamedTuple):
    """How much is measured."""

    processes: Sequence[int]
    seconds: float
    rows: Sequence[int]
    waiting: int
    swept: int
    streams: int


FULL = Size((1, 2, 4), 6, (0, 1_000, 10_000, 50_000), waiting=100_000, swept=2000, streams=200)
TINY = Size((1,), 0.5, (0, 100), waiting=100, swept=100, streams=5)


# --- what a process does ----------------------------------------------------------------------------------------------


def name() -> str:
    return f'{getpid()}-{next(_numbers)}'


class Slots:
    """Claims tasks of a backlog as a worker does: with the end of a task, or for several free slots at once."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = asyncio.Lock()
        self._free: list[asyncio.Future[Claim]] = []
        self._following: list[Claim] = []

    async def finish(self, claim: Claim, end: Finish) -> None:
        """End a task, and keep the claim of the next one."""
        if (following := await self._backend.queue.finish(claim, replace(end, slot=SLOT))) is not None:
            self._following.append(following)

    async def next(self) -> Claim:
        if self._following:
            return self._following.pop(0)
        slot = asyncio.get_running_loop().create_future()
        self._free.append(slot)
        if len(self._free) < TOGETHER:
            await asyncio.wait([slot], timeout=PATIENCE)
        async with self._lock:
            while not slot.done():
                queue, number = self._backend.queue, len(self._free)
                for claim in await queue.claim(SLOT, at=self._backend.now(), limit=number):
                    self._free.pop(0).set_result(claim)
        return slot.result()


def plain_message(backend: Backend, task_id: str, owner: str = values.OWNER) -> Submission:
    """Return a message for a new task whose events nobody reads."""
    return replace(values.message(new=task_id, owner=owner, at=backend.now()), logged=False)


async def one(backend: Backend, owner: str, slots: Slots | None) -> None:
    """Submit a task, and end a run: of this task in a free slot, or of the next task of a backlog."""
    sent = plain_message(backend, name(), owner)
    accepted = await values.submit(backend, sent, queue_limit=ENOUGH, slot=None if slots else SLOT)
    claim = accepted.claim if slots is None else await slots.next()
    assert claim is not None, 'each task has a context of its own'
    end = values.finish_of(claim, at=backend.now(), messages=values.model_turn('hi', 'hello'), artifacts=[ARTIFACT])
    await (backend.queue if slots is None else slots).finish(claim, end)


async def work(backend: Backend, seconds: float, *, queued: bool) -> int:
    """Run tasks for a time, and return their number."""
    end, done = time.monotonic() + seconds, 0
    slots = Slots(backend) if queued else None

    async def lane(number: int) -> None:
        nonlocal done
        while time.monotonic() < end:
            try:
                await one(backend, f'/owner-{number}', slots)
                done += 1
            except StoreUnavailable:  # a busy machine has stopped this process in a transaction for too long
                pass

    await asyncio.gather(*map(lane, range(AT_ONCE)))
    return done


def opened(url: str, namespace: str = 'agent') -> PostgresBackend:
    return PostgresBackend(Postgres(url), namespace, reader_lag=10**6)


async def process(url: str, seconds: float, *, queued: bool) -> None:
    """Be one of several processes: begin at a line of the standard input, and print the number of tasks."""
    backend = opened(url)
    stop = backend.listen(lambda _: None, lambda _: None)
    await backend.queued()
    print('ready', flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(await work(backend, seconds, queued=queued), flush=True)
    stop()
    backend.close()


# --- meters -----------------------------------------------------------------------------------------------------------

counts: Counter[str] = Counter()
"""Statements of this process, and how many of them notify."""


def counted(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a method of a connection that counts its calls."""

    async def call(connection: Any, query: str, *arguments: Any, **options: Any) -> Any:
        counts.update(statements=1, notifications='notify' in query.lower())
        return await method(connection, query, *arguments, **options)

    return call


def count_statements() -> None:
    for method in ('execute', 'executemany', 'fetch', 'fetchrow', 'fetchval'):
        setattr(asyncpg.Connection, method, counted(getattr(asyncpg.Connection, method)))


async def database_use(databases: Databases, url: str) -> tuple[int, float]:
    """Return the commits of a database, and the CPU seconds of the PostgreSQL server."""
    await asyncio.sleep(1.2)  # sessions report their counts once a second
    sql = f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{url.rpartition('/')[2].partition('?')[0]}'"
    return int(databases.postgres.run(sql)[0]), databases.postgres_cpu()


async def fastest(act: Callable[[], Awaitable[object]], times: int = 20) -> str:
    """Return the milliseconds of the fastest of several calls."""
    best = float('inf')
    for _ in range(times):
        begin = time.perf_counter()
        await act()
        best = min(best, time.perf_counter() - begin)
    return f'{best * 1e3:.1f} ms'


# --- databases --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def fresh(databases: Databases) -> AsyncGenerator[tuple[PostgresBackend, str]]:
    """Provide a backend over a new database, with a worker that listens."""
    url = databases.make('postgres')
    backend = opened(url)
    stop = backend.listen(lambda _: None, lambda _: None)
    try:
        await backend.queued()
        yield backend, url
    finally:
        stop()
        backend.close()


async def queue(backend: Backend, number: int = 1) -> str:
    """Queue tasks, and return the id of the last one."""
    task_id = ''
    for _ in range(number):
        task_id = name()
        await values.submit(backend, plain_message(backend, task_id), queue_limit=ENOUGH)
    return task_id


async def copy(url: str, task_id: str, first: int, last: int) -> None:
    """Copy the row of a task, each time with another id and another context."""
    connection = await asyncpg.connect(url, server_settings={'search_path': 'a2a'})
    await connection.execute(f"""
        INSERT INTO task SELECT (jsonb_populate_record(task, jsonb_build_object(
            'id', 'copy ' || n, 'context_id', 'copy ' || n, 'queue_seq', n, 'replay_key', NULL))).*
        FROM task, generate_series({first}, {last}) n WHERE id = '{task_id}'""")
    await connection.execute('VACUUM ANALYZE task')
    await connection.close()


# --- the parts --------------------------------------------------------------------------------------------------------


async def processes(databases: Databases, size: Size) -> Lines:
    """Tasks a second of several processes: with free slots, and behind a backlog."""
    lines: Lines = []
    for queued, number in product((False, True), size.processes):
        async with fresh(databases) as (backend, url):
            await queue(backend, BACKLOG * queued)
            await backend.housekeeping.sweep(KEEP, at=backend.now())
            command = [sys.executable, '-m', 'benchmarks.scale', '--process', url, str(size.seconds), str(int(queued))]
            with ExitStack() as stack:
                children = [
                    stack.enter_context(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT))
                    for _ in range(number)
                ]
                pipes = [(each.stdin, each.stdout) for each in children if each.stdin and each.stdout]
                assert [out.readline() for _, out in pipes] == ['ready\n'] * number
                before = await database_use(databases, url)
                for into, _ in pipes:
                    print(file=into, flush=True)
                done = sum([int(await asyncio.to_thread(out.readline)) for _, out in pipes])
            after = await database_use(databases, url)
        case = f'{number} process{"es" * (number > 1)}, {f"{BACKLOG} queued" if queued else "free slots"}'
        commits, cpu = (now - then for now, then in zip(after, before, strict=True))
        cost = f'{commits / done:.1f} commits and {cpu / done * 1e3:.1f} ms of PostgreSQL a task'
        lines.append((case, f'{done / size.seconds:,.0f} tasks/s', cost))
    return lines


async def statements(databases: Databases, size: Size) -> Lines:
    """Statements and notifications of a task."""
    lines: Lines = []
    for queued, number in ((False, 0), (True, BACKLOG)):
        async with fresh(databases) as (backend, _):
            await queue(backend, number)
            slots = Slots(backend) if queued else None
            counts.clear()
            for _ in range(5):
                await asyncio.gather(*(one(backend, values.OWNER, slots) for _ in range(AT_ONCE)))
            cost = [f'{counts[kind] / 5 / AT_ONCE:.1f} {kind}' for kind in ('statements', 'notifications')]
        lines.append((f'a task, {f"{number} queued" if queued else "free slot"}', *cost))
    return lines


def claiming(backend: Backend, *, lost: bool = False) -> Callable[[], Awaitable[list[Claim]]]:
    """Return a claim of one task; `lost`: as at a heartbeat, which also looks for tasks of lost processes."""
    return partial(backend.queue.claim, SLOT, at=backend.now(), limit=1, lost=lost)


async def running(databases: Databases, size: Size) -> Lines:
    """A claim beside running tasks."""
    lines: Lines = []
    async with fresh(databases) as (backend, url):
        model, before = await queue(backend), 0
        await claiming(backend)()
        for number in size.rows:
            await copy(url, model, before + 1, number)
            before = number
            heartbeat = await fastest(claiming(backend, lost=True))
            await queue(backend, 20)
            claim = await fastest(claiming(backend))
            lines.append((f'claim beside {number:,} running tasks', claim, f'{heartbeat} at a heartbeat'))
    return lines


async def queued(databases: Databases, size: Size) -> Lines:
    """A submit and a claim beside queued tasks."""
    lines: Lines = []
    async with fresh(databases) as (backend, url):
        model, before = await queue(backend), 0
        for number in size.rows:
            await copy(url, model, before + 1, number)
            before = number
            submit = await fastest(partial(queue, backend))
            claim = await fastest(claiming(backend))
            lines.append((f'submit beside {number:,} queued tasks', submit, f'{claim} for a claim'))
    return lines


async def waiting(databases: Databases, size: Size) -> Lines:
    """A task and a sweep beside tasks that wait for their clients."""
    lines: Lines = []
    async with fresh(databases) as (backend, url):
        model = await queue(backend)
        await values.claim_and_finish(backend, model, 'input-required', at=backend.now())
        await backend.housekeeping.sweep(KEEP, at=backend.now())
        for number in (0, size.waiting):
            await copy(url, model, 1, number)
            ran = await fastest(partial(one, backend, values.OWNER, None))
            while await backend.housekeeping.sweep(KEEP, at=backend.now()):
                pass
            swept = await fastest(partial(backend.housekeeping.sweep, KEEP, at=backend.now()))
            lines.append((f'task beside {number:,} waiting tasks', ran, f'{swept} for a sweep without work'))
    return lines


async def sweep(databases: Databases, size: Size) -> Lines:
    """Deletion of tasks with their conversations: each tenth task has a webhook, each tenth conversation a fork."""
    async with fresh(databases) as (backend, url):
        other = opened(url, 'other')
        for kept in (backend, other):
            await one(kept, '/kept', None)
        configs = configs_of(backend)
        connection = await asyncpg.connect(url, server_settings={'search_path': 'a2a'})
        empty = await connection.fetchval(STORED)

        async def make(lane: int) -> None:
            for number in range(lane, size.swept, AT_ONCE):
                task_id = await queue(backend)
                await values.claim_and_finish(
                    backend, task_id, at=values.START, messages=values.model_turn('hi', 'hello')
                )
                if number % 10 == 0:
                    hook = PushConfig(id='hook', version='1.0', takes='statuses', body=b'{}')
                    await configs.create(task_id, values.OWNER, hook, limit=1)
                    await backend.conversations(values.OWNER).fork(f'context of {task_id}')

        await asyncio.gather(*map(make, range(AT_ONCE)))
        await backend.housekeeping.sweep(KEEP, at=values.START)
        stored = (await connection.fetchval(STORED) - empty) / size.swept / 1000
        counts.clear()
        begin, batches, own, cpu = time.monotonic(), 0, time.process_time(), databases.postgres_cpu()
        keep = Retention(tasks=timedelta(days=1), contexts=timedelta(days=1))
        while await backend.housekeeping.sweep(keep, at=backend.now()):
            batches += 1
        rate = size.swept / (time.monotonic() - begin)
        own, cpu = time.process_time() - own, databases.postgres_cpu() - cpu
        left = [await connection.fetchval(f'SELECT COUNT(*) FROM {rows}') for rows in ('task', 'conversation', 'entry')]
        await connection.close()
        other.close()
    forks = size.swept // 10
    assert left == [2, 2 + forks, 4 + 2 * forks], left
    times = f'{own / size.swept * 1e3:.2f} + {cpu / size.swept * 1e3:.2f} ms of the process and of PostgreSQL a task'
    each = f'{counts["statements"] / batches:.0f} statements a batch, {times}, {stored:.1f} kB of disk before'
    return [(f'sweep of {size.swept:,} tasks and conversations', f'{rate:,.0f} tasks/s', each)]


async def streams(databases: Databases, size: Size) -> Lines:
    """Statements and notifications for readers of the own process: of idle tasks, and of tasks that emit."""
    lines: Lines = []
    for number, idle in ((size.streams, True), (20, False)):
        async with fresh(databases) as (backend, _):
            await queue(backend, number)
            claims = await backend.queue.claim(SLOT, at=backend.now(), limit=number)
            opened_streams = [backend.events.subscribe(claim.header.id, lambda: None) for claim in claims]
            for stream in opened_streams:
                stream.start(claims[0].header.last_event)
            counts.clear()
            begin, n = time.monotonic(), claims[0].header.last_event
            while time.monotonic() < begin + 2 * size.seconds:
                n += 1
                if not idle:
                    await asyncio.gather(
                        *(backend.queue.emit(claim, [values.artifact_chunk(n, '.')]) for claim in claims)
                    )
                await asyncio.sleep(0.1)
            seconds = time.monotonic() - begin
            for stream in opened_streams:
                stream.close()
            case = f'{number} {"idle streams" if idle else "streams with 10 updates a second"} of one process'
            rates = [f'{counts[kind] / seconds:,.1f} {kind}/s' for kind in ('statements', 'notifications')]
        lines.append((case, *rates))
    return lines


PARTS = (processes, statements, running, queued, waiting, sweep, streams)


async def measured(parts: Sequence[str], size: Size) -> Lines:
    lines: Lines = []
    with postgres_server(DefaultPostgres) as postgres:
        databases = Databases(Path(), postgres)
        for part in PARTS:
            if part.__name__ in parts:
                begin = time.monotonic()
                lines += await part(databases, size)
                print(f'{part.__name__}: {time.monotonic() - begin:.0f} s', file=sys.stderr, flush=True)
    return lines


def main() -> None:
    names = [part.__name__ for part in PARTS]
    parser = argparse.ArgumentParser(prog='python -m benchmarks.scale', description=__doc__)
    parser.add_argument('--tiny', action='store_true', help='show only that it works')
    parser.add_argument('--only', action='append', choices=names, help='measure this only; may be repeated')
    parser.add_argument('--out', type=Path, help='file to write instead of benchmarks/scale.md')
    parser.add_argument('--process', nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        url, seconds, queued = options.process
        asyncio.run(process(url, float(seconds), queued=queued == '1'))
        return
    commit, load = git('describe', '--always', '--dirty').strip(), getloadavg()[0]
    count_statements()
    lines = asyncio.run(measured(options.only or names, TINY if options.tiny else FULL))
    place = f'Commit {commit}, {machine()}, PostgreSQL on the same machine, load average {load:.1f} at the start.'
    text = f'# Scale of the PostgreSQL backend\n\n{place}\n\n' + table(('', 'result', 'and'), lines)
    print(text)
    (options.out or Path(__file__).with_name('scale.md')).write_text(text)


if __name__ == '__main__':
    main()
