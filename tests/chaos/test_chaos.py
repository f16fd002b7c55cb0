"""The short form of `make chaos`: everything goes wrong once, and all that was promised holds."""

from __future__ import annotations

from pathlib import Path

from ..postgres import postgres_server
from .judge import judge
from .plan import Plan
from .run import Settings, chaos
from .stores import postgres_store, sqlite_store

FAULTS = ('kill a worker', 'stop a worker', 'kill a server')


async def test_no_task_turn_or_event_is_lost_or_doubled_whatever_happens_to_processes_over_a_file(
    tmp_path: Path,
) -> None:
    store = sqlite_store(tmp_path, seconds=1.0)
    plan = Plan.of(4, tasks=24, contexts=6, faults=[*FAULTS, *store.faults])
    outcome = await chaos(plan, store, Settings(), tmp_path)
    assert judge(outcome.facts) == [], outcome.output
    assert len(outcome.facts.tasks) == 24 + 6
    assert {*outcome.faults} == {*FAULTS, *store.faults}


async def test_no_task_turn_or_event_is_lost_or_doubled_whatever_happens_to_processes_and_postgresql(
    tmp_path: Path,
) -> None:
    with postgres_server() as server, server.database() as url:
        store = postgres_store(server, url, seconds=0.3)
        plan = Plan.of(4, tasks=24, contexts=6, faults=[*FAULTS, *store.faults])
        outcome = await chaos(plan, store, Settings(), tmp_path)
    assert judge(outcome.facts) == [], outcome.output
    assert len(outcome.facts.tasks) == 24 + 6
    assert {*outcome.faults} == {*FAULTS, *store.faults}


def test_what_is_sent_and_what_goes_wrong_follows_from_the_seed() -> None:
    plans = [Plan.of(seed, tasks=200, contexts=40, faults=[*FAULTS] * 4) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert [len(turns) for turns in plans[0].contexts] == [5] * 40
    assert sorted(fault.kind for fault in plans[0].faults) == sorted(FAULTS * 4)
    assert [fault.at for fault in plans[0].faults] == sorted(fault.at for fault in plans[0].faults)
