"""A sweep deletes a batch with few statements, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store import PostgresBackend, SqliteFile, SqliteFileBackend
from pydantic_ai_a2a.store.sql import sweep
from pydantic_ai_a2a.store.sql.database import WriteKind
from pydantic_ai_a2a.store.sql.transaction import LockName, LockTasks, Transaction, TryNames

from ...suites import READER_LAG
from ...suites.push import config, configs_of
from ...suites.values import AT, OWNER, conversation, message, run, submit, turn

OLD, NEW = range(50), range(50, 60)
LATER = AT + 10_000
KEEP = Retention(tasks=timedelta(seconds=5), contexts=timedelta(seconds=5), events=timedelta(seconds=5))


async def test_by_default_a_database_keeps_a_hundred_times_more_tasks_than_a_file(
    tmp_path: Path, postgres_url: str
) -> None:
    file = SqliteFileBackend(SqliteFile(path=tmp_path / 'a.db'), 'agent', reader_lag=READER_LAG)
    database = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)

    def add(agent: str, kind: str, number: int) -> Transaction[None]:
        yield [('INSERT INTO total (agent, owner, kind, number) VALUES (?, ?, ?, ?)', [(agent, '', kind, number)])]

    for backend, most in ((file, 10_000), (database, 1_000_000)):
        try:
            await submit(backend, message(new='t', context='c'))
            await run(backend, 't', messages=turn('hi', 'hello'))
            # The totals count more rows than there are.
            for kind in ('completed', 'conversation'):
                await backend.write(WriteKind(add), 'agent', kind, most - 1)
            swept = await backend.housekeeping.sweep(Retention(), at=AT)
            assert swept.over == {}
            await submit(backend, message(new='u', context='d'))
            await run(backend, 'u', messages=turn('hi', 'hello'))
            swept = await backend.housekeeping.sweep(Retention(), at=AT)
            assert swept.over == {'tasks': 1, 'contexts': 1}
        finally:
            backend.close()


async def test_a_sweep_deletes_fifty_tasks_and_conversations_with_few_statements(tmp_path: Path) -> None:
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'a.db'), 'agent', reader_lag=READER_LAG)
    forks: list[str] = []
    try:
        for n in (*OLD, *NEW):
            at = AT if n in OLD else LATER
            await submit(backend, message(new=f't{n}', context=f'c{n}', at=at))
            await run(backend, f't{n}', at=at, messages=turn(f'prompt {n}', f'answer {n}'))
            if n % 10 == 0:
                await configs_of(backend).create(f't{n}', OWNER, config('hook'), limit=1)
                forks.append((await backend.conversations(OWNER).fork(f'c{n}')).conversation_id)
        statements: list[str] = []

        def counted(agent: str) -> Transaction[int]:
            transaction = sweep.sweep(agent, KEEP, LATER, 100)
            step = next(transaction)
            try:
                while True:
                    match step:
                        case LockName() | TryNames() | LockTasks():
                            statements.append('lock')
                        case list():
                            statements.extend(statement for statement, rows in step for _ in rows)
                        case statement, _:
                            statements.append(statement)
                    step = transaction.send((yield step))
            except StopIteration as stop:
                return stop.value[0].rows

        assert await backend.write(WriteKind(counted), 'agent') > 100
        assert len(statements) <= 60
        for n in (*OLD, *NEW):
            stored = await backend.reader.load(f't{n}', None)
            assert (stored is None) == (n in OLD)
            texts = await conversation(backend, f'c{n}')
            assert texts == ([] if n in OLD else [f'prompt {n}', f'answer {n}'])
        assert [await conversation(backend, fork) for fork in forks] == [
            [f'prompt {n}', f'answer {n}'] for n in (*OLD, *NEW) if n % 10 == 0
        ]
    finally:
        backend.close()
