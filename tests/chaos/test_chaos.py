"""The short form of `make chaos`: everything goes wrong once, and all that was promised holds."""

from __future__ import annotations

from collections import Counter
from math import inf
from pathlib import Path

import pytest

from ..bounds import LIMIT
from ..postgres import postgres_server
from ..sizes import short_or_long
from .faults import OF_PROCESSES
from .judge import judge
from .plan import Plan
from .run import Outcome, Settings, chaos
from .stores import Store, postgres_store, sqlite_store

# Each fault takes a lease or two.
SQLITE_FAULTS = (
    'stop a worker and kill its heir',
    *short_or_long((), ('stop a worker that speaks', 'stop a worker between steps')),
)
POSTGRES_FAULTS = ('stop a worker that speaks', *short_or_long((), ('kill a worker', 'stop a worker between steps')))


async def run(store: Store, folder: Path, *of_workers: str) -> Outcome:
    faults = [*of_workers, 'end a worker', 'kill a server', *store.faults]
    # A busy machine may take over a task late: `make chaos` judges how soon it is taken over, this test does not.
    # The lease is long enough for a worker that waits some seconds for a processor.
    settings = Settings(lease=8.0, recovery=inf, limit=LIMIT)
    return await chaos(Plan.of(4, tasks=24, contexts=6, faults=faults), store, settings, folder)


@pytest.mark.long
async def test_sqlite_loses_or_doubles_no_task_turn_or_event(
    tmp_path: Path,
) -> None:
    outcome = await run(sqlite_store(tmp_path, seconds=1.0), tmp_path, *SQLITE_FAULTS)
    assert judge(outcome.facts) == [], outcome.output
    assert len(outcome.recovered) == len(SQLITE_FAULTS) + 1, outcome.facts.recoveries  # the heir's, too
    assert outcome.dropped


@pytest.mark.long
async def test_postgres_loses_or_doubles_no_task_turn_or_event(
    tmp_path: Path,
) -> None:
    with postgres_server() as server, server.database() as url:
        outcome = await run(postgres_store(server, url, seconds=0.3), tmp_path, *POSTGRES_FAULTS)
    assert judge(outcome.facts) == [], outcome.output
    assert len(outcome.recovered) == len(POSTGRES_FAULTS), outcome.facts.recoveries


def test_messages_and_faults_of_plan_follow_from_seed() -> None:
    plans = [Plan.of(seed, tasks=200, contexts=40, faults=OF_PROCESSES * 4) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert [len(turns) for turns in plans[0].contexts] == [5] * 40
    assert Counter(fault.kind for fault in plans[0].faults) == dict.fromkeys(OF_PROCESSES, 4)
    assert [fault.at for fault in plans[0].faults] == sorted(fault.at for fault in plans[0].faults)
