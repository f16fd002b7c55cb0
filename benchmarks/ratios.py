"""CPU time beside a hand-written route that awaits `agent.run`, as ratios of rounds in which the servers take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from .load import Round, Turn, get_card, post, ratios, stream, take_turns
from .report import Row
from .servers import Databases, Served, server
from .sizes import Size

NAMES = {'memory': 'memory', 'normal': 'SQLite NORMAL', 'full': 'SQLite FULL', 'postgres': 'PostgreSQL'}
CASES: dict[str, tuple[str, Sequence[str]]] = {
    'plain send': ('plain', ('memory', 'normal', 'full', 'postgres')),
    'plain send, model can stream': ('streams', ('memory',)),
    'tool call': ('tool', ('memory', 'full', 'postgres')),
    'structured output': ('structured', ('memory',)),
}
"""Agent and backends, by case."""


async def sends(size: Size, databases: Databases) -> list[Row]:
    """SendMessage until the task has ended."""
    rows: list[Row] = []
    for case, (agent, backends) in CASES.items():
        rounds = await _rounds(size, databases, agent, backends, echo=case == 'plain send')
        if 'echo' in rounds:
            rows.append(Row.of('echo route', ratios(rounds['echo'], rounds['route'])))
        rows += [Row.of(f'{case}, {NAMES[each]}', ratios(rounds[each], rounds['route'])) for each in backends]
        if 'postgres' in backends:
            rows += [*_of_postgres(case, rounds['postgres'])]
        if case == 'plain send':
            rows += [*_rates(rounds)]
    return rows


async def _rounds(
    size: Size, databases: Databases, agent: str, backends: Sequence[str], *, echo: bool
) -> dict[str, list[Round]]:
    with ExitStack() as stack:
        turns = {'route': Turn(stack.enter_context(server(kind='route', agent=agent)))}
        if echo:
            turns['echo'] = Turn(stack.enter_context(server(kind='echo')))
        for backend in backends:
            turns[backend] = _turn(ours(stack, databases, agent, backend), backend, databases)
        return await take_turns(turns, rounds=size.rounds, seconds=size.seconds, connections=size.connections)


def ours(stack: ExitStack, databases: Databases, agent: str, backend: str) -> Served:
    """Start our server over a new database."""
    return stack.enter_context(server(kind='ours', agent=agent, backend=databases.make(backend)))


def _turn(served: Served, backend: str, databases: Databases) -> Turn:
    meters = {'cpu': databases.postgres_cpu, 'wal': lambda: float(databases.wal_bytes())}
    return Turn(served, meters=meters if backend == 'postgres' else None)


def _of_postgres(case: str, rounds: Sequence[Round]) -> Iterator[Row]:
    cpu = [each.others['cpu'] / each.tasks * 1e3 for each in rounds]
    wal = [each.others['wal'] / each.tasks / 1e3 for each in rounds]
    yield Row.of(f'{case}, CPU time of the PostgreSQL server', cpu, 'ms')
    yield Row.of(f'{case}, WAL of the PostgreSQL server', wal, 'kB')


def _rates(rounds: dict[str, list[Round]]) -> Iterator[Row]:
    for backend, name in NAMES.items():
        yield Row.of(
            f'tasks a second of one process, {name}', [each.tasks / each.seconds for each in rounds[backend]], '/s'
        )
    yield Row.of('tasks a second of the route', [each.tasks / each.seconds for each in rounds['route']], '/s')
    yield Row.of('CPU time of the route', [each.cpu_per_task * 1e3 for each in rounds['route']], 'ms')


async def streams(size: Size, databases: Databases) -> list[Row]:
    """SendStreamingMessage, one stream at a time."""
    backends = ('memory', 'full', 'postgres')
    with ExitStack() as stack:
        turns = {'route': Turn(stack.enter_context(server(kind='route', agent='streams')), stream)}
        for backend in backends:
            turns[backend] = Turn(ours(stack, databases, 'streams', backend), stream)
        rounds = await take_turns(turns, rounds=size.rounds, seconds=size.seconds, connections=1)
    rows = [Row.of(f'stream of 50 deltas, {NAMES[each]}', ratios(rounds[each], rounds['route'])) for each in backends]
    for backend in backends:
        pairs = zip(rounds[backend], rounds['route'], strict=True)
        rows.append(
            Row.of(f'time to the first delta, {NAMES[backend]}', [one.first / base.first for one, base in pairs])
        )
    return rows


async def cards(size: Size, databases: Databases) -> list[Row]:
    """GET requests of the agent card, beside the small card of an echo route."""
    with ExitStack() as stack:
        turns = {
            'echo': Turn(stack.enter_context(server(kind='echo')), get_card, shows=b'benchmark'),
            'ours': Turn(ours(stack, databases, 'plain', 'memory'), get_card, shows=b'benchmark'),
        }
        rounds = await take_turns(turns, rounds=size.rounds, seconds=size.seconds, connections=size.connections)
    # More cards a second are better: the echo's CPU time over ours.
    return [Row.of("agent cards a second over an echo route's", ratios(rounds['echo'], rounds['ours']))]


async def reads(size: Size, databases: Databases) -> list[Row]:
    """GetTask of a large task, and a page of ListTasks with few and with many stored tasks, also of an approver."""
    backends = ('memory', 'normal', 'postgres')
    rows: list[Row] = []
    few = min(1000, size.stored // 2)
    with ExitStack() as stack:
        served = {
            (backend, tasks): stack.enter_context(
                server(kind='ours', agent='plain', backend=databases.make(backend), tasks=tasks, items=size.items)
            )
            for backend in backends
            for tasks in ((few, size.stored) if backend == 'normal' else (few,))
        }
        get = post('GetTask', {'id': 'large'})
        turns = {f'get {each}': Turn(served[each, few], lambda: get) for each in backends}
        page = post('ListTasks', {'pageSize': 50})
        turns |= {f'list {each} {tasks}': Turn(one, lambda: page) for (each, tasks), one in served.items()}
        approving = post('ListTasks', {'pageSize': 50, 'status': 'TASK_STATE_INPUT_REQUIRED'})
        for tasks in (few, size.stored):
            one = stack.enter_context(
                server(kind='ours', agent='plain', backend=databases.make('normal'), waiting=tasks)
            )
            turns[f'approver {tasks}'] = Turn(one, lambda: approving, shows=b'"decidedBy":"caller"')
        rounds = await take_turns(turns, rounds=size.rounds, seconds=size.seconds, connections=1)

    def milliseconds(turn: str) -> list[float]:
        return [each.cpu_per_task * 1e3 for each in rounds[turn]]

    for each in backends:
        name = f'GetTask of {size.items:,} messages and {size.items:,} artifacts, {NAMES[each]}'
        rows.append(Row.of(name, milliseconds(f'get {each}'), 'ms'))
    for each, tasks in served:
        name = f'ListTasks, a page of 50 of {tasks:,} tasks, {NAMES[each]}'
        rows.append(Row.of(name, milliseconds(f'list {each} {tasks}'), 'ms'))
    for tasks in (few, size.stored):
        name = f'ListTasks of an approver, a page of 50 of {tasks:,} waiting tasks, SQLite NORMAL'
        rows.append(Row.of(name, milliseconds(f'approver {tasks}'), 'ms'))
    return rows
