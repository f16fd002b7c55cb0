"""The command `queue`: the queue of a store in numbers, its tasks, the cancel of a task, and the pause of the queue."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, NoReturn

import click

from ..correlation_ids import new_correlation_id
from ..errors import StoreUnavailable
from ..server.service.cancellation import canceled
from ..server.store.ports import Backend
from ..settings.limits import Limits
from ..task_states import INTERRUPTED, LIVE
from ..types.stored_tasks import TaskHeader
from ..types.task_queries import TaskQuery
from .async_commands import awaited
from .audit_facts import audit_facts
from .owner_options import owner_options
from .store_options import Store, opened, store_options
from .tables import cells_of, json_lines, time_text, write_rows
from .terminal import say
from .watch_option import check_watch

_STATES = sorted(LIVE | INTERRUPTED)
_COLUMNS = (
    'namespace',
    'submitted',
    'queued',
    'running',
    'leases',
    'waiting',
    'dead',
    'accepted',
    'ended',
    'oldest',
    'paused',
)
PERIOD = 1.0
"""Seconds between two looks at the numbers."""


class _QueueGroup(click.Group):
    """Shows the queue in numbers if no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and args[0] in {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if named else ['show', *args])


queue = _QueueGroup('queue', help='Show or pause the queue of a store, and cancel tasks.\n\nWithout COMMAND: show.')


@queue.command()
@store_options
@click.option('--watch', is_flag=True, help='Keep the numbers on the screen until Ctrl-C.')
@json_lines
@awaited
async def show(store: Store, as_json: bool, *, watch: bool) -> int:
    """Show the tasks of each namespace in numbers.

    ACCEPTED and ENDED are of the last five minutes. OLDEST is the age of the oldest queued task in seconds.
    """
    if watch:
        check_watch(as_json=as_json)
    every = store.namespace is None
    if every and store.target is None:
        store = store._replace(namespace='every')  # a backend has one; all are shown
    async with opened(store) as backend:
        if watch:
            await _watch(backend, every=every)
        return write_rows(_COLUMNS, await _numbers(backend, every=every), as_json)


async def _watch(backend: Backend, *, every: bool) -> NoReturn:
    """Show the numbers as they change. While the store is unavailable, the table has the last ones and says so."""
    from .live_table import LiveTable  # noqa: PLC0415 - of an extra

    rows: list[dict[str, Any]] = []
    with LiveTable(_COLUMNS) as table:
        while True:
            notes = ['Ctrl-C ends.']
            try:
                rows = await _numbers(backend, every=every)
            except StoreUnavailable as error:
                notes.insert(0, f'These numbers are old: {error} ({error.detail})')
            table.show([cells_of(row) for row in rows], *notes)
            await asyncio.sleep(PERIOD)


async def _numbers(backend: Backend, *, every: bool) -> list[dict[str, Any]]:
    at = backend.now()
    rows = [asdict(counts) for counts in await backend.housekeeping.queues(at=at, every=every)]
    for row in rows:
        oldest, paused_at = row.pop('oldest'), row.pop('paused_at')
        row['oldestSeconds'] = None if oldest is None else max(0, at - oldest) // 1000
        row['pausedAt'] = paused_at and time_text(paused_at)
    return rows


@queue.command('list')
@store_options
@click.option('--state', type=click.Choice(_STATES), help='Only tasks in this state.')
@owner_options
@click.option('--older-than', type=float, default=0, metavar='SECONDS', help='Only tasks whose status is so old.')
@click.option('--limit', type=click.IntRange(1, 10_000), default=100, show_default=True, help='The most tasks.')
@json_lines
@awaited
async def list_(store: Store, as_json: bool, *, state: Any, owner: str | None, older_than: float, limit: int) -> int:
    """List tasks that have not ended, the newest status first."""
    tasks: list[TaskHeader] = []
    async with opened(store) as backend:
        at = backend.now()
        for one in _STATES if state is None else [state]:
            before = at + 1 - round(1000 * older_than), ''
            query = TaskQuery(owner=owner, state=one, page_size=limit, before=before, history_length=0)
            tasks += [task.header for task in (await backend.reader.list(query)).tasks]
    tasks.sort(key=lambda task: task.status_at, reverse=True)
    rows = [
        {
            'taskId': task.id,
            'contextId': task.context_id,
            'owner': task.owner,
            'state': task.state,
            'queued': task.queued,
            'since': time_text(task.status_at),
        }
        for task in tasks[:limit]
    ]
    return write_rows(['task', 'context', 'owner', 'state', 'queued', 'since'], rows, as_json)


@queue.command()
@click.argument('task_id', metavar='ID')
@store_options
@click.option(
    '--grace', default=Limits().cancel_grace, show_default=True, metavar='SECONDS', help='Time for its run to stop.'
)
@awaited
async def cancel(task_id: str, store: Store, grace: float) -> int:
    """Cancel a task of any owner."""
    async with opened(store) as backend:
        await cancel_task(backend, task_id, grace)
    return 0


@queue.command()
@store_options
@awaited
async def pause(store: Store) -> int:
    """Start no further task of a namespace, in any process.

    Running tasks go on, and new tasks are accepted and wait.
    """
    return await _pause(store, paused=True)


@queue.command()
@store_options
@awaited
async def resume(store: Store) -> int:
    """Start the tasks of a paused namespace again."""
    return await _pause(store, paused=False)


async def _pause(store: Store, *, paused: bool) -> int:
    async with opened(store) as backend:
        await backend.housekeeping.pause(backend.now() if paused else None)
    say('the queue is paused' if paused else 'the queue is no longer paused')
    return 0


async def cancel_task(backend: Backend, task_id: str, grace: float) -> None:
    """Cancel a task of any owner: see `server.service.cancellation.canceled`."""
    correlation_id = new_correlation_id()
    await canceled(
        backend, task_id, None, grace=grace, correlation_id=correlation_id, facts=lambda task: audit_facts(task.owner)
    )
