"""The command `migrate`: brings a store up to date before a new version of the package is started, or prints how."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ..backends.migrations import MIGRATIONS, script
from ..backends.postgres_settings import Postgres
from ..backends.postgres_sql import script_of
from ..backends.shared import SharedBackend
from ..backends.sqlite_connect import SqliteFile, connect, stored_version
from .target import Refused, apart, find, say

__all__ = ('add_migrate', 'migrate')


class _Store(NamedTuple):
    """What the schema of a store is, and should be."""

    script: Callable[[int], str]
    """The steps after one, as SQL."""
    version: Callable[[], int]
    migrate: Callable[[], object]


def add_migrate(parser: ArgumentParser) -> None:
    """Add the arguments of `migrate`."""
    parser.add_argument(
        'target', nargs='?', metavar='MODULE:NAME', help='where the app is whose store this is, such as joker:app'
    )
    parser.add_argument('--app-dir', default='', metavar='DIR', help='where the module is (default: here)')
    parser.add_argument('--backend', metavar='URL', help='where the tasks are kept, such as sqlite:///agent.db')
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument('--sql', action='store_true', help='print the steps that it lacks, as SQL, and take none')
    instead.add_argument(
        '--all-sql', action='store_true', help='print all steps, without a look at what is there, and take none'
    )
    instead.add_argument('--check', action='store_true', help='take no step, and end with 1 if it lacks any')


def migrate(options: Namespace) -> int:
    """Take the numbered steps to the newest schema that a store lacks. Servers and workers do that when they start."""
    store = _store(options)
    if options.all_sql:
        sys.stdout.write(store.script(0))
        return 0
    version = store.version()
    if options.sql:
        sys.stdout.write(store.script(version))
        return 0
    newest = len(MIGRATIONS)
    if options.check:
        say(f'the store has the schema {version}, and {newest} is the newest')
        return int(version < newest)
    store.migrate()
    say(f'the store has the schema {newest}' + (f', and had {version} before' if version < newest else ' already'))
    return 0


def _store(options: Namespace) -> _Store:
    settings = _of_app(options) if options.target is not None else _of_url(options.backend)
    return _of_file(settings) if isinstance(settings, SqliteFile) else _of_postgres(settings)


def _of_app(options: Namespace) -> SqliteFile | Postgres:
    backends = [app.backend for app in apart(find(options), options.target)]
    stores = {each.settings if isinstance(each, SharedBackend) else None for each in backends}
    store = stores.pop()
    if stores:
        raise Refused(f'{options.target} holds apps with several stores: name one of the apps, or its --backend.')
    if store is None:
        raise Refused(f'{options.target} has a backend of its own, which has no schema that is known here.')
    return store


def _of_url(url: str | None) -> SqliteFile | Postgres:
    if url is None:
        raise Refused('Which store? Name an app, such as joker:app, or its --backend.')
    try:
        if url.startswith('sqlite:'):
            return SqliteFile.of(url)
        if url.startswith('postgres'):
            return Postgres(url)
    except ValueError as error:
        raise Refused(str(error)) from None
    raise Refused(f'{url!r} is no store that has a schema, such as sqlite:///agent.db.')


def _of_file(file: SqliteFile) -> _Store:
    return _Store(partial(script, MIGRATIONS), partial(stored_version, file), lambda: connect(file).close())


def _of_postgres(settings: Postgres) -> _Store:
    try:
        from ..backends import postgres_connect as postgres  # noqa: PLC0415 - its driver is not always installed
    except ModuleNotFoundError as error:
        if error.name != 'asyncpg':
            raise
        raise Refused('PostgreSQL needs asyncpg: pip install "pydantic-ai-a2a[postgres]"') from error
    return _Store(
        partial(script_of, settings, MIGRATIONS),
        lambda: asyncio.run(postgres.once(settings, postgres.stored_version)),
        lambda: asyncio.run(postgres.once(settings, postgres.migrate)),
    )
