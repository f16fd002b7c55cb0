"""The command `erase`: deletes all stored data of an owner, or of one of its contexts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict

import click
from pydantic_core import to_json

from ..correlation_ids import new_correlation_id
from ..errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from ..server.audit import Fact, audit
from ..server.store.ports import Backend, Erased
from ..settings.limits import Limits
from ..task_states import LIVE
from ..types.task_queries import TaskQuery
from .async_commands import awaited
from .audit_facts import audit_facts
from .owner_options import whose_options
from .queue import cancel_task
from .store_options import Store, opened, store_options
from .terminal import echo, echo_json, say

_AT_ONCE = 100


@click.command()
@store_options
@whose_options
@click.option('--yes', is_flag=True, help='Erase. Without --yes, only print how much would be erased.')
@click.option('--cancel', is_flag=True, help='Cancel queued and running tasks first.')
@click.option(
    '--grace',
    default=Limits().cancel_grace,
    show_default=True,
    metavar='SECONDS',
    help='Time for a cancelled run to stop.',
)
@click.option('--compact', is_flag=True, help='Rewrite the SQLite file, so that no erased data stays in the file.')
@click.option('--json', 'as_json', is_flag=True, help='Write the counts as JSON.')
@awaited
async def erase(
    *,
    store: Store,
    owner: str,
    context_id: str | None,
    yes: bool,
    cancel: bool,
    grace: float,
    compact: bool,
    as_json: bool,
) -> int:
    """Erase the tasks and conversations of an owner.

    With --context, the command erases one context of the owner.
    """
    what = f'the owner {owner}' + ('' if context_id is None else f' in the context {context_id}')
    async with opened(store) as backend:
        if not yes:
            say(await _would_erase(backend, owner, context_id, what))
            return 1
        erased = await erase_all(backend, owner, context_id, grace=grace if cancel else None)
        if as_json:
            echo_json(to_json({'owner': owner, 'contextId': context_id, **asdict(erased)}).decode())
        elif erased:
            echo(f'erased for {what}: {_told(erased)}')
        if not erased:
            say(f'no data is stored for {what}')
        if compact:
            await backend.compact()
    return 0 if erased else 1


async def erase_all(backend: Backend, owner: str, context_id: str | None, *, grace: float | None) -> Erased:
    """Erase in batches, while new messages are refused.

    Args:
        backend: The store.
        owner: Owner of the erased data.
        context_id: Erase only this context; None: all contexts of the owner.
        grace: Seconds for running tasks to stop after their cancel; None: cancel no task.

    Raises:
        UnsupportedOperationError: A task is queued or running, and `grace` is None.
    """
    erased, ended = Erased(), 'broken off'
    try:
        while True:
            try:
                batch = await backend.erase(owner, context_id, grace=2 * (grace or 0))
            except UnsupportedOperationError as refused:
                if grace is None:
                    ended = 'refused'
                    raise UnsupportedOperationError(f'{refused.message} Or add --cancel.') from None
                await _cancel_all(backend, owner, context_id, grace)
                continue
            if not batch:
                ended = None
                return erased
            erased += batch
    finally:
        if erased or ended == 'broken off':  # a broken-off erasure may also have deleted its last batch
            counts = {name: str(count) for name, count in asdict(erased).items()}
            facts: dict[str, Fact] = {**audit_facts(owner), 'context': context_id, 'counts': counts, 'ended': ended}
            audit('erased', correlation_id=new_correlation_id(), **facts)
        await backend.housekeeping.set_erasing(owner, context_id, until=None)


async def _would_erase(backend: Backend, owner: str, context_id: str | None, what: str) -> str:
    query = TaskQuery(owner=owner, context_id=context_id, page_size=1, history_length=0)
    tasks = (await backend.reader.list(query)).total
    store = backend.conversations(owner)
    records = await store.read_records() if context_id is None else [await store.read_record(context_id)]
    conversations = sum(record is not None for record in records)
    if not tasks and not conversations:
        return f'no data is stored for {what}'
    counted = f'{_counted(tasks, "task")} and {_counted(conversations, "conversation")}'
    return f'{counted} of {what} would be erased: add --yes to erase'


def _counted(number: int, what: str) -> str:
    return f'{number} {what}' if number == 1 else f'{number} {what}s'


def _told(erased: Erased) -> str:
    of_tasks = f'{erased.items} messages and artifacts, {_counted(erased.events, "event")}'
    of_conversations = _counted(erased.entries, 'model message')
    return (
        f'{_counted(erased.tasks, "task")} ({of_tasks}),'
        f' {_counted(erased.conversations, "conversation")} ({of_conversations})'
    )


async def _cancel_all(backend: Backend, owner: str, context_id: str | None, grace: float) -> None:
    async def cancel(task_id: str) -> None:
        with suppress(TaskNotCancelableError, TaskNotFoundError):  # the task has ended meanwhile
            await cancel_task(backend, task_id, grace)

    for state in sorted(LIVE):
        query = TaskQuery(owner=owner, context_id=context_id, state=state, page_size=_AT_ONCE, history_length=0)
        page = await backend.reader.list(query)
        await asyncio.gather(*(cancel(task.header.id) for task in page.tasks))
