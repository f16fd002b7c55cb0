"""Opens the store that an operator's command works on, and says whose of what is in it. Knows no command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from ..backends.sqlite_connect import SqliteFile
from ..ports import Backend
from ..stores import open_store
from ..types import ANONYMOUS, Caller
from .target import Refused, apart, find

__all__ = ('add_owner', 'add_store', 'add_whose', 'check_there', 'opened', 'owner_of', 'whose')


def add_store(parser: ArgumentParser) -> None:
    """Add the arguments that name a store: that of an app, or a URL and a namespace."""
    parser.add_argument(
        'target', nargs='?', metavar='MODULE:NAME', help='where the app is whose tasks these are, such as joker:app'
    )
    parser.add_argument('--app-dir', default='', metavar='DIR', help='where the module is (default: here)')
    parser.add_argument('--backend', metavar='URL', help='where the tasks are kept, such as sqlite:///agent.db')
    parser.add_argument(
        '--namespace', metavar='NAME', help='whose they are there, without an app: the name of the agent'
    )


@asynccontextmanager
async def opened(options: Namespace) -> AsyncGenerator[Backend]:
    """The backend of the app that the command line names, or the one over the store that it names."""
    backend = _of_app(options) if options.target is not None else _of_url(options)
    async with AsyncExitStack() as stack:
        stack.callback(backend.close)
        if isinstance(backend, AbstractAsyncContextManager):
            await stack.enter_async_context(backend)
        await backend.queued()  # the first answer tells the wall clock of a database, for `Backend.now`
        yield backend


def _of_app(options: Namespace) -> Backend:
    if options.namespace is not None:
        raise Refused('--namespace is for --backend without an app; an app has its namespace already.')
    apps = apart(find(options), options.target)
    if len(apps) > 1:
        raise Refused(f'{options.target} holds {len(apps)} apps: name one of them, or its --backend and --namespace.')
    return apps[0].backend


def _of_url(options: Namespace) -> Backend:
    if options.backend is None or options.namespace is None:
        raise Refused('Whose tasks? Name an app, such as joker:app, or both --backend and --namespace.')
    check_there(options.backend)
    try:
        return open_store(options.backend, options.namespace)
    except ValueError as error:
        raise Refused(str(error)) from None


def check_there(url: str) -> None:
    """Refuse a file that is not there: with a name that is mistyped, an empty one would be made and looked into."""
    if url.startswith('sqlite:'):
        try:
            path = SqliteFile.of(url).path
        except ValueError as error:
            raise Refused(str(error)) from None
        if not path.exists():
            raise Refused(f'There is no file {path}.')


def add_owner(parser: ArgumentParser) -> None:
    """Add the arguments that name an owner."""
    parser.add_argument('--owner', metavar='TENANT/CALLER', help='whose, as the store has it; / is who is anonymous')
    parser.add_argument('--caller', metavar='ID', help='whose, by the id that authentication gives')
    parser.add_argument('--tenant', metavar='ID', help='and the tenant of that caller')


def owner_of(options: Namespace) -> str | None:
    """The owner that the command line names, if it does."""
    if options.owner is None:
        named = options.caller is not None or options.tenant is not None
        return Caller(id=options.caller or '', tenant=options.tenant or '').owner if named else None
    if options.caller is not None or options.tenant is not None:
        raise Refused('An owner is named with --owner, or with --caller and --tenant.')
    if options.owner.count('/') != 1:
        raise Refused(f'{options.owner!r} is no owner: write TENANT/CALLER, such as /ann, or --caller ann.')
    return options.owner


def add_whose(parser: ArgumentParser) -> None:
    """Add the arguments that name an owner, or one of its contexts."""
    add_owner(parser)
    parser.add_argument('--context', metavar='ID', help='only this context; of who is anonymous, if no owner is named')


def whose(options: Namespace) -> tuple[str, str | None]:
    """The owner and the context, if one is named."""
    owner = owner_of(options)
    if owner is None and options.context is None:
        raise Refused('Whose? Name an owner with --owner or --caller, or a --context. The owner / is who is anonymous.')
    return ANONYMOUS.owner if owner is None else owner, options.context
