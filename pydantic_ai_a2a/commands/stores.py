"""The store and the owner of a command: options, and opening the store."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial, wraps
from getpass import getuser
from typing import Any, Generic, NamedTuple, TypeVar

import click
from click import Option, UsageError, argument, command, option
from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_core import to_json
from starlette.types import ASGIApp

from ..app.stores import open_store
from ..audit import Fact, audit
from ..errors import A2AError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError, needs_extra
from ..protocol import stored
from ..protocol.v1_0 import V1_0
from ..service.tasks import canceled
from ..settings import Limits
from ..store.ports import Backend, DeadDelivery, DeadLetter, Erased, ExportedConversation, ExportedTask, Outbox
from ..store.postgres.settings import Postgres
from ..store.postgres.statements import script_of
from ..store.shared_database import SharedBackend
from ..store.sql.migrations import MIGRATIONS, newest, script, steps
from ..store.sqlite.connect import connect, stored_version
from ..store.sqlite.settings import SqliteFile
from ..types import ANONYMOUS, LIVE, Caller, TaskQuery, new_correlation_id
from .targets import apart, find, place_options
from .terminal import Command, awaited, echo, echo_json, say, write_table


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


def owner_options(command: Command) -> Command:
    """Add the options that name an owner. The command gets its key, or None, as `owner`."""

    @option('--owner', metavar='TENANT/CALLER', help='Owner of the tasks, / for anonymous callers.')
    @option('--caller', metavar='ID', help='Id of the caller who owns the tasks.')
    @option('--tenant', metavar='ID', help='Tenant of that caller. Combine with --caller.')
    @wraps(command)
    def with_owner(owner: str | None, caller: str | None, tenant: str | None, **options: Any) -> int:
        return command(owner=owner_of(owner, caller, tenant), **options)

    return with_owner


def owner_of(owner: str | None, caller: str | None, tenant: str | None) -> str | None:
    """Return the key of the owner from the options, or None without these options.

    Raises:
        UsageError: The options contradict each other, or `owner` is not an owner.
    """
    if owner is None:
        named = caller is not None or tenant is not None
        return Caller(id=caller or '', tenant=tenant or '').owner if named else None
    if caller is not None or tenant is not None:
        raise UsageError('Name the owner with --owner, or with --caller and --tenant, not with both.')
    if owner.count('/') != 1:
        raise UsageError(f'{owner!r} is not an owner: write TENANT/CALLER, such as /ann, or --caller ann.')
    return owner


def whose_options(command: Command) -> Command:
    """Add the options that name an owner or one of its contexts: `owner` and `context_id` of the command."""

    @owner_options
    @option('--context', 'context_id', metavar='ID', help='Only this context. With it, --owner is / by default.')
    @wraps(command)
    def with_whose(owner: str | None, context_id: str | None, **options: Any) -> int:
        return command(owner=owner_or_anonymous(owner, context_id), context_id=context_id, **options)

    return with_whose


def owner_or_anonymous(owner: str | None, context_id: str | None) -> str:
    """Return the owner. A context without an owner belongs to the anonymous callers.

    Raises:
        UsageError: Neither an owner nor a context is given.
    """
    if owner is None and context_id is None:
        raise UsageError(
            'Name an owner with --owner or --caller, or a --context. The owner / stands for anonymous callers.'
        )
    return ANONYMOUS.owner if owner is None else owner


# --- the commands `list` and `retry`, once for dead letters and dead deliveries ---------------------------------------

_PAGE = 100
json_lines = click.option('--json', 'as_json', is_flag=True, help='Write one JSON object a line.')
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


def write_rows(columns: Sequence[str], rows: Sequence[dict[str, Any]], as_json: bool) -> int:
    """Write rows as JSON Lines or as a table, and return the exit code."""
    if as_json:
        for row in rows:
            echo_json(to_json(row).decode())
    elif rows:
        write_table(columns, [['-' if value in (None, '') else str(value) for value in row.values()] for row in rows])
    return 0


def time_of(at: int) -> str:
    """Return a time (ms) as text."""
    return stored.timestamp(at).decode().strip('"')


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


# --- the commands `dead-letters list` and `dead-letters retry` --------------------------------------------------------


def _letter_values(letter: DeadLetter) -> dict[str, Any]:
    return {
        'taskId': letter.task_id,
        'contextId': letter.context_id,
        'owner': letter.owner,
        'failedAt': time_of(letter.at),
        'attempts': letter.attempts,
        'failure': letter.failure,
        'correlationId': letter.correlation_id,
        'retriedAs': letter.retried_as,
    }


async def _retry_task(backend: Backend, task_id: str, *, again: bool, failed: bool) -> dict[str, str]:
    new_id = stored.new_id()
    await backend.housekeeping.retry(task_id, new_id=new_id, at=backend.now(), again=again, failed=failed)
    return {'taskId': task_id, 'retriedAs': new_id}


dead_letters = commands_for(
    Dead[DeadLetter](
        noun='task',
        columns=('task', 'context', 'owner', 'failed', 'attempts', 'failure', 'correlation id', 'retried as'),
        pages=lambda backend: backend.housekeeping.dead_letters,
        values=_letter_values,
        retry=_retry_task,
    ),
    name='dead-letters',
    summary='List or retry failed tasks (dead letters).',
    list_help='List the dead letters, oldest failure first.',
    retry_help='Retry each dead letter as a new task.\n\nThe new task has the same message, owner and context.',
    both_options=[Option(['--failed'], is_flag=True, help='Include all failed tasks. A retry begins anew.')],
    retry_options=[
        Option(['--yes'], is_flag=True, help='With --failed: do not ask whether to begin anew.'),
        Option(['--again'], is_flag=True, help='Also retry tasks that were retried before.'),
    ],
)


# --- the commands `dead-deliveries list` and `dead-deliveries retry` --------------------------------------------------


def _outbox(backend: Backend) -> Outbox:
    if backend.outbox is None:
        raise UsageError('This backend stores no push notifications, so it has no dead deliveries.')
    return backend.outbox


def _delivery_values(delivery: DeadDelivery) -> dict[str, Any]:
    return {
        'deliveryId': delivery.id,
        'taskId': delivery.task_id,
        'configId': delivery.config_id,
        'owner': delivery.owner,
        'event': delivery.n,
        'state': delivery.state,
        'diedAt': time_of(delivery.at),
        'tries': delivery.failures,
        'error': delivery.error,
    }


async def _retry_delivery(backend: Backend, delivery_id: str, *, again: bool) -> dict[str, str]:
    await _outbox(backend).retry(delivery_id)
    return {'deliveryId': delivery_id}


dead_deliveries = commands_for(
    Dead[DeadDelivery](
        noun='delivery',
        columns=('delivery', 'task', 'configuration', 'owner', 'event', 'state', 'died', 'tries', 'error'),
        pages=lambda backend: _outbox(backend).dead,
        values=_delivery_values,
        retry=_retry_delivery,
    ),
    name='dead-deliveries',
    summary='List or retry failed push notifications.',
    list_help='List the dead deliveries, oldest failure first.',
    retry_help='Retry dead deliveries, with the same ids.\n\nServers and workers of the store send them.',
)


# --- the command `erase` ----------------------------------------------------------------------------------------------
# Deletes all stored data of an owner, or of one of its contexts.

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


def _who(owner: str) -> dict[str, Fact]:
    """Return the user of the command and the owner of the data, for the audit log."""
    try:
        user = getuser()
    except (KeyError, OSError):  # for example, users of a container have no names
        user = str(os.getuid())
    return {'via': 'command', 'user': user, 'owner': owner}


async def _would_erase(backend: Backend, owner: str, context_id: str | None, what: str) -> str:
    tasks, conversations = await _count(backend, owner, context_id)
    if not tasks and not conversations:
        return f'no data is stored for {what}'
    counted = f'{_counted(tasks, "task")} and {_counted(conversations, "conversation")}'
    return f'{counted} of {what} would be erased: add --yes to erase'


async def _count(backend: Backend, owner: str, context_id: str | None) -> tuple[int, int]:
    query = TaskQuery(owner=owner, context_id=context_id, page_size=1, history_length=0)
    tasks = (await backend.reader.list(query)).total
    store = backend.conversations(owner)
    records = await store.read_records() if context_id is None else [await store.read_record(context_id)]
    return tasks, sum(record is not None for record in records)


def _counted(number: int, what: str) -> str:
    return f'{number} {what}' if number == 1 else f'{number} {what}s'


def _told(erased: Erased) -> str:
    of_tasks = f'{erased.items} messages and artifacts, {_counted(erased.events, "event")}'
    of_conversations = _counted(erased.entries, 'model message')
    return (
        f'{_counted(erased.tasks, "task")} ({of_tasks}),'
        f' {_counted(erased.conversations, "conversation")} ({of_conversations})'
    )


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
            facts: dict[str, Fact] = {**_who(owner), 'context': context_id, 'counts': counts, 'ended': ended}
            audit('erased', correlation_id=new_correlation_id(), **facts)
        await backend.housekeeping.set_erasing(owner, context_id, until=None)


async def _cancel_all(backend: Backend, owner: str, context_id: str | None, grace: float) -> None:
    async def cancel(task_id: str) -> None:
        with suppress(TaskNotCancelableError, TaskNotFoundError):  # the task has ended meanwhile
            await cancel_task(backend, task_id, grace)

    for state in sorted(LIVE):
        query = TaskQuery(owner=owner, context_id=context_id, state=state, page_size=_AT_ONCE, history_length=0)
        page = await backend.reader.list(query)
        await asyncio.gather(*(cancel(task.header.id) for task in page.tasks))


async def cancel_task(backend: Backend, task_id: str, grace: float) -> None:
    """Cancel a task of any owner: see `service.tasks.cancel`."""
    correlation_id = new_correlation_id()
    await canceled(
        backend, task_id, None, grace=grace, correlation_id=correlation_id, facts=lambda task: _who(task.owner)
    )


# --- the command `export` ---------------------------------------------------------------------------------------------
# All stored data of an owner, or of one of its contexts, as JSON Lines.


@command()
@store_options
@whose_options
@awaited
async def export(store: Store, owner: str, context_id: str | None) -> int:
    """Write the tasks and conversations of an owner.

    The output is JSON Lines. With --context, it holds one context of the owner.
    """
    lines = 0
    async with opened(store) as backend:
        async for item in backend.housekeeping.export(owner, context_id):
            body = _task(item) if isinstance(item, ExportedTask) else _conversation(item)
            echo_json(f'{{"owner":{to_json(owner).decode()},{body.decode()}}}')
            lines += 1
    if not lines:
        say(
            f'no data is stored for the owner {owner}' + ('' if context_id is None else f' in the context {context_id}')
        )
    return 0 if lines else 1


def _task(exported: ExportedTask) -> bytes:
    requests = b',"requests":[%s]' % b','.join(exported.requests) if exported.requests else b''
    return b'"task":%s%s' % (V1_0().encode_task(exported.task), requests)


def _conversation(conversation: ExportedConversation) -> bytes:
    record = TypeAdapter(ConversationRecord).dump_json(conversation.record)
    messages, *branches = [
        ModelMessagesTypeAdapter.dump_json([*branch]) for branch in (conversation.messages, *conversation.branches)
    ]
    return b'"conversation":%s,"messages":%s,"branches":[%s]' % (record, messages, b','.join(branches))


# --- the command `migrate` --------------------------------------------------------------------------------------------
# Updates a store for a new version of the package, or prints the SQL of the update.


class _Schema(NamedTuple):
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
    last = max(version, newest(MIGRATIONS))
    if check:
        say(f'the store has the schema {version}, and {last} is the newest')
        return int(version < last)
    store.migrate()
    say(f'the store has the schema {last}' + (f', and had {version} before' if version < last else ' already'))
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


def _of_file(file: SqliteFile) -> _Schema:
    def script_of_file(taken: int) -> str:
        return script(steps(MIGRATIONS, taken))

    return _Schema(script_of_file, partial(stored_version, file), lambda: connect(file).close())


def _of_postgres(settings: Postgres) -> _Schema:
    try:
        from ..store.postgres import connect as postgres  # noqa: PLC0415 - its driver is not always installed
    except ModuleNotFoundError as error:
        if error.name != 'asyncpg':
            raise
        raise UsageError(needs_extra('PostgreSQL', 'postgres')) from error
    return _Schema(
        partial(script_of, settings, MIGRATIONS),
        lambda: asyncio.run(postgres.once(settings, postgres.stored_version)),
        lambda: asyncio.run(postgres.once(settings, postgres.migrate)),
    )
