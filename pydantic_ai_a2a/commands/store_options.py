"""The store of a command: options, and opening the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import wraps
from typing import Any, NamedTuple

from click import UsageError, argument, option

from ..server.app.backend_choice import open_store
from ..server.store.ports import Backend
from ..server.store.sqlite.connect import SqliteFile
from .async_commands import Command
from .named_app import find, place_options
from .shared_apps import apart


class Store(NamedTuple):
    """A store on the command line: that of an app or agent, or a URL and a namespace."""

    target: str | None
    app_dir: str
    backend: str | None
    namespace: str | None


def store_options(command: Command) -> Command:
    """Add the arguments that name a store. The command gets them as `store`."""

    @argument('target', required=False, metavar='[MODULE:NAME]')
    @place_options
    @option('--namespace', metavar='NAME', help='Namespace of the tasks. Default: the name of the agent.')
    @wraps(command)
    def with_store(target: str | None, app_dir: str, backend: str | None, namespace: str | None, **options: Any) -> int:
        return command(store=Store(target, app_dir, backend, namespace), **options)

    return with_store


@asynccontextmanager
async def opened(store: Store) -> AsyncGenerator[Backend]:
    """Open the backend of the named app, or a backend over the named store."""
    backend = _backend_of_url(store) if store.target is None else _backend_of_app(store.target, store)
    async with AsyncExitStack() as stack:
        stack.callback(backend.close)
        if isinstance(backend, AbstractAsyncContextManager):
            await stack.enter_async_context(backend)
        await backend.queued()  # the first answer tells the wall clock of a database, for `Backend.now`
        yield backend


def _backend_of_app(target: str, store: Store) -> Backend:
    if store.namespace is not None:
        raise UsageError('--namespace cannot be combined with an app, which has its own namespace.')
    apps = apart(find(target, store.app_dir, store.backend), target)
    if len(apps) > 1:
        raise UsageError(f'{target} holds {len(apps)} apps: name one of them, or its --backend and --namespace.')
    return apps[0].backend


def _backend_of_url(store: Store) -> Backend:
    if store.backend is None or store.namespace is None:
        raise UsageError('Name the agent: give an app, such as joker:app, or both --backend and --namespace.')
    _check_there(store.backend)
    try:
        return open_store(store.backend, store.namespace)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _check_there(url: str) -> None:
    """Refuse a missing file: SQLite would make an empty file for a misspelt name."""
    if url.startswith('sqlite:'):
        try:
            path = SqliteFile.of(url).path
        except ValueError as error:
            raise UsageError(str(error)) from None
        if not path.exists():
            raise UsageError(f'There is no file {path}.')
