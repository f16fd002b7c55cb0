"""The commands `list` and `retry`, once for dead letters and dead deliveries."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click
from click import UsageError
from pydantic_core import to_json

from ..errors import A2AError
from ..server.store.ports import Backend, DeadDelivery, DeadLetter
from .async_commands import awaited
from .owner_options import owner_options
from .store_options import Store, opened, store_options
from .tables import json_lines, write_rows
from .terminal import echo, echo_json, say

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
    retry: Callable[..., Awaitable[dict[str, str]]]
    """Retries the item with the given id, with the flags of the command. Returns what to write."""


def commands_for(
    dead: Dead[Item],
    *,
    name: str,
    summary: str,
    list_help: str,
    retry_help: str,
    both_options: Sequence[click.Option] = (),
    retry_options: Sequence[click.Option] = (),
) -> click.Group:
    """Make the group of commands for one kind of dead items."""

    @click.command('list', help=list_help)
    @store_options
    @owner_options
    @json_lines
    @awaited
    async def show(store: Store, owner: str | None, as_json: bool, **options: bool) -> int:
        async with opened(store) as backend:
            rows = [values async for values in _items(dead, backend, owner, **options)]
        return write_rows(dead.columns, rows, as_json)

    @click.command('retry', help=retry_help)
    @store_options
    @click.option(
        f'--{dead.noun}', 'ids', multiple=True, metavar='ID', help='Retry the item with this id. Can be repeated.'
    )
    @click.option('--all', 'everything', is_flag=True, help='Retry all items that were not retried before.')
    @owner_options
    @json_lines
    def retry(*, store: Store, ids: Sequence[str], everything: bool, owner: str | None, **options: bool) -> int:
        if bool(ids) == everything:
            raise click.UsageError(f'Choose the items to retry: give --{dead.noun} or --all, not both.')
        if ids and owner is not None:
            raise click.UsageError(f'An owner can only be combined with --all: --{dead.noun} already names one item.')
        if not options.pop('yes', True) and options['failed']:
            _confirm()
        return asyncio.run(_retry_all(dead, store, owner, ids, **options))

    show.params += both_options
    retry.params += [*both_options, *retry_options]
    return click.Group(name, help=summary, commands=[show, retry])


def _confirm() -> None:
    """Ask whether the tools of failed tasks may run again."""
    text = 'A failed task runs again from the beginning, with the tools that have finished before.'
    if not sys.stdin.isatty():
        raise UsageError(f'{text} To retry failed tasks, add --yes.')
    click.confirm(f'{text} Retry?', abort=True, err=True)


async def _items(
    dead: Dead[Item], backend: Backend, owner: str | None, **options: bool
) -> AsyncIterator[dict[str, Any]]:
    read, after = dead.pages(backend), None
    while page := await read(owner, limit=_PAGE, after=after, **options):
        for item in page:
            values = dead.values(item)
            yield values
            after = item.at, _id(values)


def _id(values: dict[str, Any]) -> str:
    return next(iter(values.values()))


async def _retry_all(
    dead: Dead[Item],
    store: Store,
    owner: str | None,
    ids: Sequence[str],
    *,
    as_json: bool,
    again: bool = False,
    **options: bool,
) -> int:
    failed = False
    async with opened(store) as backend:
        rows = () if ids else [row async for row in _items(dead, backend, owner, **options)]
        for item_id in ids or [_id(row) for row in rows if again or not row.get('retriedAs')]:
            try:
                retried = await dead.retry(backend, item_id, again=again, **options)
            except A2AError as error:
                say(f'error: {item_id}: {error.message}')
                failed = True
            else:
                if as_json:
                    echo_json(to_json(retried).decode())
                else:
                    echo(' -> '.join(retried.values()))
    return int(failed)
