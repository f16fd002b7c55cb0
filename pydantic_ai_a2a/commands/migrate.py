"""The command `migrate`: updates a store for a new version of the package, or prints the SQL of the update."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from click import UsageError, argument, command, option
from starlette.types import ASGIApp

from ..errors import needs_extra
from ..server.store.database_backend import DatabaseBackend
from ..server.store.postgres.migration_steps import script_of
from ..server.store.postgres.settings import Postgres
from ..server.store.sql.migrations import MIGRATIONS, newest, script, steps
from ..server.store.sqlite.connect import SqliteFile, connect, stored_version
from .named_app import find, place_options
from .shared_apps import apart
from .terminal import echo, say


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
    last = max(version, newest(MIGRATIONS))
    if check:
        say(f'the store has the schema {version}, and {last} is the newest')
        return int(version < last)
    store.migrate()
    say(f'the store has the schema {last}' + (f', and had {version} before' if version < last else ' already'))
    return 0


class _Schema(NamedTuple):
    """The schema of a store."""

    script: Callable[[int], str]
    """Returns the steps after a version, as SQL."""
    version: Callable[[], int]
    migrate: Callable[[], object]


def _settings_of_app(target: str, app: ASGIApp) -> SqliteFile | Postgres:
    backends = [served.backend for served in apart(app, target)]
    stores = {backend.settings if isinstance(backend, DatabaseBackend) else None for backend in backends}
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


def _of_file(file: SqliteFile) -> _Schema:
    def script_of_file(taken: int) -> str:
        return script(steps(MIGRATIONS, taken))

    return _Schema(script_of_file, partial(stored_version, file), lambda: connect(file).close())


def _of_postgres(settings: Postgres) -> _Schema:
    try:
        from ..server.store.postgres import migration  # noqa: PLC0415 - its driver is not always installed
        from ..server.store.postgres.connect import once  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name != 'asyncpg':
            raise
        raise UsageError(needs_extra('PostgreSQL', 'postgres')) from error
    return _Schema(
        partial(script_of, settings, MIGRATIONS),
        lambda: asyncio.run(once(settings, migration.stored_version)),
        lambda: asyncio.run(once(settings, migration.migrate)),
    )
