"""A sweep deletes a batch with few statements, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store import SqliteFile, SqliteFileBackend
from pydantic_ai_a2a.store.sql import sweep
from pydantic_ai_a2a.store.sql.database import WriteKind
from pydantic_ai_a2a.store.sql.transaction import LockName, LockTasks, Transaction, TryNames

from ...suites import READER_LAG
from ...suites.push import config, configs_of
from ...suites.values import AT, OWNER, conversation, message, run, submit, turn

OLD, NEW = range(50), range(50, 60)
LATER = AT + 10_000
KEEP = Retention(tasks=timedelta(seconds=5), contexts=timedelta(seconds=5), events=timedelta(seconds=5))


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
            transaction = sweep.sweep(agent, KEEP, LATER)
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
                return stop.value[0]

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
