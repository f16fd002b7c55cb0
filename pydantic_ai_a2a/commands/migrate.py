"""The command `migrate`: updates a store for a new version of the package, or prints the SQL of the update."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from click import UsageError, argument, command, echo, option
from starlette.types import ASGIApp

from ..store.postgres.connect import script_of
from ..store.postgres.settings import Postgres
from ..store.shared import SharedBackend
from ..store.sql.schema import MIGRATIONS, script
from ..store.sqlite.connect import SqliteFile, connect, stored_version
from .target import apart, find, place_options, say

__all__ = ('migrate',)


class _Store(NamedTuple):
    """The schema of a store."""

    script: Callable[[int], str]
    """Returns the steps after a version, as SQL."""
    version: Callable[[], int]
    migrate: Callable[[], object]


@command()
@argument('target', required=False, metavar='[MODULE:NAME]')
@place_options
@option('--sql', is_flag=True, help='Print the missing steps as SQL without taking them.')
@option('--all-sql', is_flag=True, help='Print all steps as SQL without reading the store.')
@option('--check', is_flag=True, help='Only check the schema: the exit code is 1 if a step is missing.')
def migrate(*, target: str | None, app_dir: str, backend: str | None, sql: bool, all_sql: bool, check: bool) -> int:
    """Upgrade the schema of a store.

    Servers and workers also upgrade the schema, when they start.
    """
    if sql + all_sql + check > 1:
        raise UsageError('--sql, --all-sql and --check cannot be combined: give one of them.')
    settings = _settings_of_url(backend) if target is None else _settings_of_app(target, find(target, app_dir, backend))
    store = _of_file(settings) if isinstance(settings, SqliteFile) else _of_postgres(settings)
    if all_sql:
        echo(store.script(0), nl=False)
        return 0
    version = store.version()
    if sql:
        echo(store.script(version), nl=False)
        return 0
    newest = len(MIGRATIONS)
    if check:
        say(f'the store has the schema {version}, and {newest} is the newest')
        return int(version < newest)
    store.migrate()
    say(f'the store has the schema {newest}' + (f', and had {version} before' if version < newest else ' already'))
    return 0


def _settings_of_app(target: str, app: ASGIApp) -> SqliteFile | Postgres:
    backends = [served.backend for served in apart(app, target)]
    stores = {backend.settings if isinstance(backend, SharedBackend) else None for backend in backends}
    store = stores.pop()
    if stores:
        raise UsageError(f'{target} holds apps with several stores: name one of the apps, or its --backend.')
    if not isinstance(store, SqliteFile | Postgres):
        raise UsageError(f'{target} has a custom backend: the command upgrades only SQLite and PostgreSQL stores.')
    return store


def _settings_of_url(url: str | None) -> SqliteFile | Postgres:
    if url is None:
        raise UsageError('Name the store: give an app, such as joker:app, or --backend.')
    try:
        if url.startswith('sqlite:'):
            return SqliteFile.of(url)
        if url.startswith('postgres'):
            return Postgres(url)
    except ValueError as error:
        raise UsageError(str(error)) from None
    raise UsageError(
        f'{url!r} is not a store with a schema: give a SQLite or PostgreSQL URL, such as sqlite:///agent.db.'
    )


def _of_file(file: SqliteFile) -> _Store:
    return _Store(partial(script, MIGRATIONS), partial(stored_version, file), lambda: connect(file).close())


def _of_postgres(settings: Postgres) -> _Store:
    try:
        from ..store.postgres import connect as postgres  # noqa: PLC0415 - its driver is not always installed
    except ModuleNotFoundError as error:
        if error.name != 'asyncpg':
            raise
        raise UsageError('PostgreSQL needs asyncpg: pip install "pydantic-ai-a2a[postgres]"') from error
    return _Store(
        partial(script_of, settings, MIGRATIONS),
        lambda: asyncio.run(postgres.once(settings, postgres.stored_version)),
        lambda: asyncio.run(postgres.once(settings, postgres.migrate)),
    )
