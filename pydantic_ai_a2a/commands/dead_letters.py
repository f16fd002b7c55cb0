"""The commands `dead-letters list` and `dead-letters retry`."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator
from typing import Any

from pydantic_core import to_json

from ..errors import A2AError
from ..ports import Backend, DeadLetter
from ..protocol import stored
from .stores import add_owner, add_store, opened, owner_of
from .tables import write_table
from .target import Refused, say

__all__ = ('add_dead_letters',)

_PAGE = 100
_COLUMNS = ('task', 'context', 'owner', 'failed', 'attempts', 'failure', 'correlation id', 'retried as')


def add_dead_letters(parser: ArgumentParser) -> None:
    """Add `list` and `retry`."""
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    show = commands.add_parser('list', help='list them', description=_list.__doc__)
    add_store(show)
    add_owner(show)
    show.add_argument('--json', action='store_true', help='write a line of JSON for each')
    show.set_defaults(command=_list)
    retry = commands.add_parser('retry', help='make new tasks of them', description=_retry.__doc__)
    add_store(retry)
    which = retry.add_mutually_exclusive_group(required=True)
    which.add_argument('--task', action='append', metavar='ID', help='this one; may be given several times')
    which.add_argument('--all', action='store_true', help='all that were not retried yet')
    add_owner(retry)
    retry.add_argument('--again', action='store_true', help='those that were retried already, too')
    retry.add_argument('--json', action='store_true', help='write a line of JSON for each')
    retry.set_defaults(command=_retry)


def _list(options: Namespace) -> int:
    """List the dead letters, those that failed first at the beginning."""
    return asyncio.run(_show(options))


async def _show(options: Namespace) -> int:
    owner = owner_of(options)
    async with opened(options) as backend:
        letters = [letter async for letter in _letters(backend, owner)]
    if options.json:
        sys.stdout.writelines(f'{to_json(_values(letter)).decode()}\n' for letter in letters)
    elif letters:
        write_table(_COLUMNS, [[str(value or '-') for value in _values(letter).values()] for letter in letters])
    return 0


async def _letters(backend: Backend, owner: str | None) -> AsyncIterator[DeadLetter]:
    after = None
    while page := await backend.housekeeping.dead_letters(owner, limit=_PAGE, after=after):
        for letter in page:
            yield letter
        after = page[-1].at, page[-1].task_id


def _values(letter: DeadLetter) -> dict[str, Any]:
    return {
        'taskId': letter.task_id,
        'contextId': letter.context_id,
        'owner': letter.owner,
        'failedAt': stored.timestamp(letter.at).decode().strip('"'),
        'attempts': letter.attempts,
        'failure': letter.failure,
        'correlationId': letter.correlation_id,
        'retriedAs': letter.retried_as,
    }


def _retry(options: Namespace) -> int:
    """Make a new, queued task of each dead letter, with its message, for its owner and in its context."""
    if options.task is not None and owner_of(options) is not None:
        raise Refused('An owner is for --all; a task has one already.')
    return asyncio.run(_retry_each(options))


async def _retry_each(options: Namespace) -> int:
    owner = owner_of(options)
    failed = False
    async with opened(options) as backend:
        tasks: list[str] = options.task or [
            letter.task_id async for letter in _letters(backend, owner) if options.again or letter.retried_as is None
        ]
        for task_id in tasks:
            new_id = stored.new_id()
            try:
                await backend.housekeeping.retry(task_id, new_id=new_id, at=backend.now(), again=options.again)
            except A2AError as error:
                say(f'error: {task_id}: {error.message}')
                failed = True
            else:
                _write_retried(task_id, new_id, as_json=options.json)
    return int(failed)


def _write_retried(task_id: str, new_id: str, *, as_json: bool) -> None:
    line = to_json({'taskId': task_id, 'retriedAs': new_id}).decode() if as_json else f'{task_id} -> {new_id}'
    sys.stdout.write(f'{line}\n')
