"""Measures `to_a2a` beside a hand-written route; see README.md. Prints a Markdown table."""

from __future__ import annotations

import argparse
import asyncio
import statistics
from contextlib import ExitStack
from pathlib import Path

from load import LIMIT, Round, Served, load, rate, server

TARGETS = ('route', 'to_a2a')
DELTAS = 50
CASES = {
    'plain send': ('SendMessage', 'streams'),
    'plain send, model cannot stream': ('SendMessage', 'cannot stream'),
    f'stream of {DELTAS} deltas': ('SendStreamingMessage', 'streams'),
}
"""The method that is called and the model that answers, by the row of the table."""


async def measure(method: str, servers: dict[str, Served], options: argparse.Namespace) -> dict[str, list[Round]]:
    """Rounds of all servers in turn, after a warm-up."""
    rounds: dict[str, list[Round]] = {name: [] for name in servers}
    for served in servers.values():
        await load(served, method, connections=options.connections, seconds=options.seconds / 2)
    for _ in range(options.rounds):
        for name, served in servers.items():
            rounds[name].append(await load(served, method, connections=options.connections, seconds=options.seconds))
    return rounds


def row(label: str, rounds: dict[str, list[Round]]) -> str:
    pairs = zip(rounds['to_a2a'], rounds['route'], strict=True)
    ratio = statistics.median(ours.cpu_per_task / theirs.cpu_per_task for ours, theirs in pairs)
    cells = [label, f'{ratio:.2f}']
    for name in TARGETS:
        cpu = statistics.median(each.cpu_per_task for each in rounds[name])
        cells += [f'{cpu * 1e6:,.0f}', f'{rate(rounds[name]):,.0f}']
    return '| ' + ' | '.join(cells) + ' |'


async def memory(served: Served, tasks: int) -> str:
    """How much the server grows with finished tasks that it keeps."""
    await load(served, 'SendMessage', connections=16, seconds=LIMIT, tasks=100)
    before = served.memory()
    done = await load(served, 'SendMessage', connections=16, seconds=LIMIT, tasks=tasks)
    return f'{(served.memory() - before) / done.tasks / 1000:,.1f} kB for each of {done.tasks:,} finished tasks kept'


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rounds', type=int, default=10, help='turns of each server (default: %(default)s)')
    parser.add_argument('--seconds', type=float, default=1.0, help='length of a turn (default: %(default)s)')
    parser.add_argument('--connections', type=int, default=16, help='connections kept busy (default: %(default)s)')
    parser.add_argument('--tasks', type=int, default=2000, help='tasks for the memory figure (default: %(default)s)')
    parser.add_argument('--quick', action='store_true', help='a few seconds, only to see that it works')
    parser.add_argument('--out', type=Path, help='write the table to this file, too')
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.connections, options.tasks = 1, 0.2, 4, 50
    return options


def main() -> None:
    options = parse()
    rows: list[str] = []
    notes: list[str] = []
    with ExitStack() as stack:
        servers = {
            model: {name: stack.enter_context(server('targets.py', name, model)) for name in TARGETS}
            for model in dict.fromkeys(model for _, model in CASES.values())
        }
        for label, (method, model) in CASES.items():
            rounds = asyncio.run(measure(method, servers[model], options))
            rows.append(row(label, rounds))
            if method == 'SendStreamingMessage':
                deltas = ', '.join(f'{name} {rate(rounds[name]) * DELTAS:,.0f}' for name in TARGETS)
                notes.append(f'Deltas per second: {deltas}.')
        kept = asyncio.run(memory(servers['cannot stream']['to_a2a'], options.tasks))
        notes.append(f'Memory: {kept}.')
    columns = ['', 'CPU per task, ratio']
    for name in TARGETS:
        columns += [f'{name}: CPU µs', f'{name}: tasks/s']
    table = ['| ' + ' | '.join(columns) + ' |', '|---|' + '---:|' * (len(columns) - 1), *rows]
    text = '\n'.join([*table, '', *notes, ''])
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == '__main__':
    main()
