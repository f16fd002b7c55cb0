"""The options that name an owner, or one of its contexts."""

from __future__ import annotations

from functools import wraps
from typing import Any

from click import UsageError, option

from ..types.callers import ANONYMOUS, Caller
from .async_commands import Command


def owner_options(command: Command) -> Command:
    """Add the options that name an owner. The command gets its key, or None, as `owner`."""

    @option('--owner', metavar='TENANT/CALLER', help='Owner of the tasks, / for anonymous callers.')
    @option('--caller', metavar='ID', help='Id of the caller who owns the tasks.')
    @option('--tenant', metavar='ID', help='Tenant of that caller. Combine with --caller.')
    @wraps(command)
    def with_owner(owner: str | None, caller: str | None, tenant: str | None, **options: Any) -> int:
        return command(owner=owner_option(owner, caller, tenant), **options)

    return with_owner


def owner_option(owner: str | None, caller: str | None, tenant: str | None) -> str | None:
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
