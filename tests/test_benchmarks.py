from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .bounds import LIMIT

ROOT = Path(__file__).parent.parent


def test_the_benchmark_measures_both_servers(tmp_path: Path) -> None:
    table = tmp_path / 'table.md'
    command = [sys.executable, 'benchmarks/run.py', '--quick', '--out', str(table)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.sub(r'[\d.,]+', 'N', table.read_text()) == (
        '|  | CPU per taskN ratio | route: CPU µs | route: tasks/s | to_aNa: CPU µs | to_aNa: tasks/s |\n'
        '|---|---:|---:|---:|---:|---:|\n'
        '| plain send | N | N | N | N | N |\n'
        '| plain sendN model cannot stream | N | N | N | N | N |\n'
        '| stream of N deltas | N | N | N | N | N |\n'
        '\n'
        'Deltas per second: route N to_aNa N\n'
        'Memory: N kB for each of N finished tasks keptN\n'
    )
    assert table.read_text() in ran.stdout


def test_the_benchmark_measures_every_backend(tmp_path: Path) -> None:
    table = tmp_path / 'table.md'
    command = [sys.executable, 'benchmarks/backends.py', '--quick', '--out', str(table)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.sub(r'[\d.,]+', 'N', table.read_text()) == (
        '| Our part of a turn | turn N | turn N |\n'
        '| --- | ---: | ---: |\n'
        '| memory | N msN N kB | N msN N kB |\n'
        '| SQLite file | N msN N kB | N msN N kB |\n'
        '| PostgreSQL | N msN N kB | N msN N kB |\n'
        '\n'
        '|  | tasks/s | CPU µs | event ms | recovery s | kB/task kept |\n'
        '| --- | ---: | ---: | ---: | ---: | ---: |\n'
        '| memory | N | N | N | – | N |\n'
        '| SQLite file | N | N | N | N | N |\n'
        '| PostgreSQL | N | N | N | N | N |\n'
    )


def test_a_backend_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    command = [sys.executable, 'benchmarks/backends.py', '--only', 'MySQL']
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ran.returncode == 2
    assert "choose from 'memory', 'SQLite file', 'PostgreSQL'" in ran.stderr


def test_the_benchmark_measures_what_slow_clients_cost(tmp_path: Path) -> None:
    table = tmp_path / 'table.md'
    command = [sys.executable, 'benchmarks/slow.py', '--quick', '--out', str(table)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.sub(r'[\d.,]+', 'N', table.read_text()) == (
        '| | idle: ms | N slow connectionsN N stalled streams: ms | ratio |\n'
        '|---|---:|---:|---:|\n'
        '| card | N | N | N |\n'
        '| send | N | N | N |\n'
    )
    assert table.read_text() in ran.stdout
