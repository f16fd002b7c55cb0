"""The benchmarks measure each of their rows, in the smallest form. `make slow` measures some of the rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import Row, change, markdown

from .bounds import LIMIT
from .sizes import short_or_long

ROOT = Path(__file__).parent.parent
ROWS = {
    'sends': [
        'echo route',
        *(f'plain send, {name}' for name in ('memory', 'SQLite NORMAL', 'SQLite FULL', 'PostgreSQL')),
        *(f'plain send, {name} of the PostgreSQL server' for name in ('CPU time', 'WAL')),
        *(
            f'tasks a second of one process, {name}'
            for name in ('memory', 'SQLite NORMAL', 'SQLite FULL', 'PostgreSQL')
        ),
        'tasks a second of the route',
        'CPU time of the route',
        'plain send, model can stream, memory',
        *(f'tool call, {name}' for name in ('memory', 'SQLite FULL', 'PostgreSQL')),
        *(f'tool call, {name} of the PostgreSQL server' for name in ('CPU time', 'WAL')),
        'structured output, memory',
    ],
    'streams': [
        *(f'stream of 50 deltas, {name}' for name in ('memory', 'SQLite FULL', 'PostgreSQL')),
        *(f'time to the first delta, {name}' for name in ('memory', 'SQLite FULL', 'PostgreSQL')),
    ],
    'cards': ["agent cards a second over an echo route's"],
    'reads': [
        *(f'GetTask of 20 messages and 20 artifacts, {name}' for name in ('memory', 'SQLite NORMAL', 'PostgreSQL')),
        'ListTasks, a page of 50 of 30 tasks, memory',
        *(f'ListTasks, a page of 50 of {count} tasks, SQLite NORMAL' for count in (30, 60)),
        'ListTasks, a page of 50 of 30 tasks, PostgreSQL',
        *(f'ListTasks of an approver, a page of 50 of {count} waiting tasks, SQLite NORMAL' for count in (30, 60)),
    ],
    'memory': ['memory of a finished task'],
    'stalled': [
        f'{row}, {name}'
        for name in ('memory', 'SQLite FULL')
        for row in ('stalled reader of 10 MB', 'task beside a stalled reader')
    ],
    'written': [f'{row} a turn, SQLite' for row in ('pages written', 'commits', 'bytes of the WAL')],
    'turns': [f'our part of turn 20 over turn 1, {name}' for name in ('memory', 'SQLite NORMAL', 'PostgreSQL')],
    'imports': ['import over `pydantic_ai`'],
    'commands': [
        *(f'CPU time of `{name}`' for name in ('--version', '--help', 'card', 'tasks', 'doctor', 'send')),
        '`serve` over an import of its agent',
    ],
    'neighbour': [
        'CPU time of PostgreSQL that an idle neighbour adds to a task',
        'CPU time of an idle neighbour for a task of another process',
        'CPU time of an idle process in a second, PostgreSQL',
        'CPU time of PostgreSQL for an idle process in a second',
    ],
    'notify': [
        f'commits a second of PostgreSQL alone, {case}'
        for case in ('without NOTIFY', 'with NOTIFY', 'with NOTIFY and 50 listeners')
    ],
    'events': [f'age of an event at another process, {name}' for name in ('SQLite NORMAL', 'PostgreSQL')],
    'recovery': [f'recovery from a killed process, {name}' for name in ('SQLite NORMAL', 'PostgreSQL')],
    'slow': [f'latency of a {name} beside 20 slow connections and 3 stalled streams' for name in ('card', 'send')],
    'clients': ['blocking call of A2AClient', 'streamed answer of A2AClient'],
    'bindings': [
        f'{case} over {binding}'
        for case in ('blocking send', 'stream of 50 deltas')
        for binding in ('HTTP+JSON', 'gRPC')
    ],
}
# Each run imports the package, and starts a PostgreSQL server.
RUNS = [
    'sends',
    'streams cards reads',
    'memory stalled written turns imports commands',
    'neighbour notify events',
    'recovery slow',
    'clients bindings',
]


@pytest.mark.long
@pytest.mark.parametrize('names', short_or_long(['cards'], RUNS))
def test_benchmarks_measure_all_rows(names: str, tmp_path: Path) -> None:
    only = [argument for name in names.split() for argument in ('--only', name)]
    command = [sys.executable, '-m', 'benchmarks', '--tiny', '--out', str(tmp_path), *only]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ran.returncode == 0, ran.stderr
    results = json.loads((tmp_path / 'results.json').read_text())
    expected = [row for name in names.split() for row in ROWS[name]]
    assert [row['name'] for row in results['rows']] == expected
    assert results['taken']['form'] == 'tiny'
    table = (tmp_path / 'results.md').read_text()
    assert table.count('\n| ') == len(expected) + 2
    assert table in ran.stdout


@pytest.mark.long
def test_scale_benchmark_measures_postgres_backend(tmp_path: Path) -> None:
    only = short_or_long(['--only', 'statements', '--only', 'sweep'], [])
    command = [sys.executable, '-m', 'benchmarks.scale', '--tiny', '--out', str(tmp_path / 'scale.md'), *only]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ran.returncode == 0, ran.stderr
    text = (tmp_path / 'scale.md').read_text()
    assert text in ran.stdout
    assert text.count('\n| ') == 2 + short_or_long(3, 13)


def test_committed_results_have_all_rows() -> None:
    rows = json.loads((ROOT / 'benchmarks' / 'results.json').read_text())['rows']
    assert len(rows) == sum(map(len, ROWS.values()))


def test_each_row_is_measured_in_make_stress() -> None:
    assert sorted(' '.join(RUNS).split()) == sorted(ROWS)


def test_unknown_benchmark_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.__main__ import parse  # for Linux only

    with pytest.raises(SystemExit, match='2'):
        parse(['--only', 'nonsense'])
    text = capsys.readouterr().err
    assert all(name in text for name in ROWS)


def results(**values: float) -> Any:
    taken = {
        'date': '2026-01-01',
        'commit': 'abc',
        'form': 'quick',
        'machine': 'm',
        'load': 0.25,
        'versions': {'Python': '3.11'},
    }
    rows = [Row.of(name, [value, value * 2, value * 3], 'ms').__dict__ for name, value in values.items()]
    return {'taken': taken, 'rows': rows}


def test_results_show_change_since_last_run() -> None:
    assert markdown(results(one=1.0, new=100.0), results(one=2.0)) == (
        '# Results\n\n'
        '2026-01-01, commit abc, quick form; m, load average 0.2 at the start; Python 3.11.'
        ' Change: since 2026-01-01, commit abc, quick form.\n\n'
        '|  | median | quartiles of the rounds | change |\n'
        '| --- | ---: | ---: | ---: |\n'
        '| one | 2.00 ms | 1.50 to 2.50 | -50% |\n'
        '| new | 200 ms | 150 to 250 | – |\n'
    )
    assert 'Change:' not in markdown(results(one=1.0), None)
    [row] = results(one=1.0)['rows']
    assert change(row, row | {'unit': 's'}) == '–'
