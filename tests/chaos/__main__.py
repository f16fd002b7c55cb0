"""`make chaos`: the long form. Prints what was done and what came of it; ends with 1 if anything must not be."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..postgres import postgres_server
from .facts import AnswerWord
from .faults import OF_PROCESSES
from .judge import judge
from .plan import Plan
from .run import Outcome, Settings, chaos
from .stores import Store, postgres_store, sqlite_store

_BACKENDS = ('sqlite', 'postgres')


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='make chaos', description=__doc__)
    parser.add_argument('--backend', choices=_BACKENDS, nargs='+', default=_BACKENDS)
    parser.add_argument('--tasks', type=int, default=200)
    parser.add_argument('--contexts', type=int, default=40)
    parser.add_argument('--seed', type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument('--rounds', type=int, default=1, help='runs, each with the next seed')
    parser.add_argument('--faults', type=int, default=4, help='how often each kind of fault happens')
    parser.add_argument('--lease', type=float, default=1.5, help='seconds')
    parser.add_argument(
        '--away', type=float, default=2.0, help='seconds for which the database is away, or its file locked'
    )
    parser.add_argument('--outage', type=float, default=15.0, help='seconds for which it is so once in each round')
    parser.add_argument('--pace', type=float, default=0.2, help='seconds that a tool takes')
    parser.add_argument('--attempts', type=int, default=50)
    parser.add_argument('--limit', type=float, default=900.0, help='seconds in which all tasks have to end')
    parser.add_argument('--output', type=Path, help='file for what the processes say')
    return parser.parse_args()


def main() -> int:
    options = _options()
    seeds = range(options.seed, options.seed + options.rounds)
    return max(_round(options, backend, seed) for seed in seeds for backend in options.backend)


def _round(options: argparse.Namespace, backend: str, seed: int) -> int:
    """One run; 1 if anything must not be."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name, _store(options, backend, Path(name)) as store:
        faults = (*OF_PROCESSES, *store.faults) * options.faults
        plan = Plan.of(seed, tasks=options.tasks, contexts=options.contexts, faults=faults)
        settings = Settings(lease=options.lease, attempts=options.attempts, pace=options.pace, limit=options.limit)
        outcome = asyncio.run(chaos(plan, store, settings, Path(name)))
    print(f'{backend}, seed {seed}, {time.monotonic() - begun:.0f} s')
    if options.output is not None:
        with options.output.open('a') as output:
            output.write(outcome.output)
    _say(outcome)
    violations = judge(outcome.facts)
    for violation in violations:
        print('VIOLATION', *violation, sep=' | ')
    print(f'{len(violations)} violations', flush=True)
    return 1 if violations else 0


@contextmanager
def _store(options: argparse.Namespace, backend: str, folder: Path) -> Generator[Store]:
    """A new database."""
    if backend == 'sqlite':
        yield sqlite_store(folder, seconds=options.away, long=options.outage)
        return
    with postgres_server() as server, server.database() as url:
        yield postgres_store(server, url, seconds=options.away, long=options.outage)


def _counts(counts: Mapping[str, int]) -> str:
    return ', '.join(f'{count} {name}' for name, count in sorted(counts.items())) or 'none'


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return 'nothing'
    return f'{min(seconds):.1f} to {max(seconds):.1f} s, median {statistics.median(seconds):.1f} s'


def _say(outcome: Outcome) -> None:
    facts = outcome.facts
    readings = [reading for readers in facts.readers.values() for each in readers for reading in each]
    attempts = {(row.task, row.pid, row.attempt) for row in facts.ledger}
    used = {word.value for task in facts.tasks for text in task.artifacts for word in AnswerWord.all(text)}
    lines = {
        'tasks': _counts(Counter(task.state for task in facts.tasks)),
        'faults': _counts(outcome.faults),
        'attempts': len(attempts),
        'dead letters': sum(task.failure == 'attempts' for task in facts.tasks),
        'tools called': f'{len(facts.ledger)}, {sum(row.id not in used for row in facts.ledger)} in vain',
        'recovered after': _spread(outcome.recovered),
        'late results dropped': outcome.dropped,
        'connections of readers': len(readings),
        'events read': sum(len(reading.events) for reading in readings),
        'asked again': _counts(outcome.troubles),
    }
    for name, value in lines.items():
        print(f'  {name}: {value}')


if __name__ == '__main__':
    sys.exit(main())
