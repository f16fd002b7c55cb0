"""The commands `list` and `retry`, once for dead letters and dead deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click
from pydantic_core import to_json

from ..errors import A2AError
from ..store.ports import Backend, DeadDelivery, DeadLetter
from .stores import Store, opened, owner_options, store_options
from .table import write_table
from .target import say

__all__ = ('Dead', 'commands_for')

_PAGE = 100
Item = TypeVar('Item', DeadLetter, DeadDelivery)


@dataclass(frozen=True, kw_only=True)
class Dead(Generic[Item]):
    """Dead letters or dead deliveries: how to read, show and retry them."""

    noun: str
    columns: Sequence[str]
    pages: Callable[[Backend], Callable[..., Awaitable[Sequence[Item]]]]
    """Returns the method of a backend that reads a page of the list."""
    values: Callable[[Item], dict[str, Any]]
    """The members of an item's JSON, its id first."""
    retry: Callable[[Backend, str, bool], Awaitable[dict[str, str]]]
    """Retries the item with the given id, also for a second time if the flag is set. Returns what to write."""


def commands_for(
    dead: Dead[Item],
    *,
    name: str,
    summary: str,
    list_help: str,
    retry_help: str,
    retry_options: Sequence[click.Option] = (),
) -> click.Group:
    """Make the group of commands for one kind of dead items."""
    as_json = click.option('--json', 'as_json', is_flag=True, help='Write one JSON object a line.')

    @click.command('list', help=list_help)
    @store_options
    @owner_options
    @as_json
    def show(store: Store, owner: str | None, as_json: bool) -> int:
        return asyncio.run(_list(dead, store, owner, as_json))

    @click.command('retry', help=retry_help)
    @store_options
    @click.option(
        f'--{dead.noun}', 'ids', multiple=True, metavar='ID', help='Retry the item with this id. Can be repeated.'
    )
    @click.option('--all', 'everything', is_flag=True, help='Retry all items that were not retried before.')
    @owner_options
    @as_json
    def retry(*, store: Store, ids: Sequence[str], everything: bool, owner: str | None, **options: bool) -> int:
        if bool(ids) == everything:
            raise click.UsageError(f'Choose the items to retry: give --{dead.noun} or --all, not both.')
        if ids and owner is not None:
            raise click.UsageError(f'An owner can only be combined with --all: --{dead.noun} already names one item.')
        return asyncio.run(_retry_all(dead, store, owner, ids, **options))

    retry.params += retry_options
    return click.Group(name, help=summary, commands=[show, retry])


async def _list(dead: Dead[Item], store: Store, owner: str | None, as_json: bool) -> int:
    async with opened(store) as backend:
        rows = [values async for values in _items(dead, backend, owner)]
    if as_json:
        for row in rows:
            click.echo(to_json(row))
    elif rows:
        write_table(dead.columns, [[str(value or '-') for value in row.values()] for row in rows])
    return 0


async def _items(dead: Dead[Item], backend: Backend, owner: str | None) -> AsyncIterator[dict[str, Any]]:
    read, after = dead.pages(backend), None
    while page := await read(owner, limit=_PAGE, after=after):
        for item in page:
            values = dead.values(item)
            yield values
            after = item.at, _id(values)


def _id(values: dict[str, Any]) -> str:
    return next(iter(values.values()))


async def _retry_all(
    dead: Dead[Item], store: Store, owner: str | None, ids: Sequence[str], *, as_json: bool, again: bool = False
) -> int:
    failed = False
    async with opened(store) as backend:
        rows = () if ids else [row async for row in _items(dead, backend, owner)]
        for item_id in ids or [_id(row) for row in rows if again or not row.get('retriedAs')]:
            try:
                retried = await dead.retry(backend, item_id, again)
            except A2AError as error:
                say(f'error: {item_id}: {error.message}')
                failed = True
            else:
                click.echo(to_json(retried) if as_json else ' -> '.join(retried.values()))
    return int(failed)
