"""The commands `dead-deliveries list` and `dead-deliveries retry`: what webhooks did not take, and once more."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator
from typing import Any

from pydantic_core import to_json

from ..errors import A2AError
from ..ports import Backend, DeadDelivery, Outbox
from ..protocol import stored
from .stores import add_owner, add_store, opened, owner_of
from .tables import write_table
from .target import Refused, say

__all__ = ('add_dead_deliveries',)

_PAGE = 100
_COLUMNS = ('delivery', 'task', 'configuration', 'owner', 'event', 'state', 'died', 'tries', 'error')


def add_dead_deliveries(parser: ArgumentParser) -> None:
    """Add `list` and `retry`."""
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    show = commands.add_parser('list', help='list them', description=_list.__doc__)
    add_store(show)
    add_owner(show)
    show.add_argument('--json', action='store_true', help='write a line of JSON for each')
    show.set_defaults(command=_list)
    retry = commands.add_parser('retry', help='have them delivered', description=_retry.__doc__)
    add_store(retry)
    which = retry.add_mutually_exclusive_group(required=True)
    which.add_argument('--delivery', action='append', metavar='ID', help='this one; may be given several times')
    which.add_argument('--all', action='store_true', help='all that there are')
    add_owner(retry)
    retry.set_defaults(command=_retry)


def _list(options: Namespace) -> int:
    """List the events that webhooks did not take, those that were given up first at the beginning."""
    return asyncio.run(_show(options))


async def _show(options: Namespace) -> int:
    owner = owner_of(options)
    async with opened(options) as backend:
        dead = [each async for each in _dead(_outbox(backend), owner)]
    if options.json:
        sys.stdout.writelines(f'{to_json(_values(each)).decode()}\n' for each in dead)
    elif dead:
        write_table(_COLUMNS, [[str(value or '-') for value in _values(each).values()] for each in dead])
    return 0


def _outbox(backend: Backend) -> Outbox:
    if backend.outbox is None:
        raise Refused('This backend has no push notifications.')
    return backend.outbox


async def _dead(outbox: Outbox, owner: str | None) -> AsyncIterator[DeadDelivery]:
    after = None
    while page := await outbox.dead(owner, limit=_PAGE, after=after):
        for each in page:
            yield each
        after = page[-1].at, page[-1].id


def _values(dead: DeadDelivery) -> dict[str, Any]:
    return {
        'deliveryId': dead.id,
        'taskId': dead.task_id,
        'configId': dead.config_id,
        'owner': dead.owner,
        'event': dead.n,
        'state': dead.state,
        'diedAt': stored.timestamp(dead.at).decode().strip('"'),
        'tries': dead.failures,
        'error': dead.error,
    }


def _retry(options: Namespace) -> int:
    """Have dead deliveries tried again, by the servers and workers of their store, with the ids that they had."""
    if options.delivery is not None and owner_of(options) is not None:
        raise Refused('An owner is for --all; a delivery has one already.')
    return asyncio.run(_retry_each(options))


async def _retry_each(options: Namespace) -> int:
    owner = owner_of(options)
    failed = False
    async with opened(options) as backend:
        outbox = _outbox(backend)
        ids: list[str] = options.delivery or [each.id async for each in _dead(outbox, owner)]
        for each in ids:
            try:
                await outbox.retry(each)
            except A2AError as error:
                say(f'error: {each}: {error.message}')
                failed = True
            else:
                sys.stdout.write(f'{each}\n')
    return int(failed)
