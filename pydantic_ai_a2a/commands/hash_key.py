"""The command `hash-key`: makes a key for a caller, and the key's hash for the configuration of the server."""

from __future__ import annotations

import sys
from secrets import token_urlsafe

import click

from ..auth import keys

__all__ = ('hash_key',)

_BYTES = 32


@click.command('hash-key')
@click.option('--stdin', is_flag=True, help='Hash the key from standard input instead of making a key.')
def hash_key(stdin: bool) -> int:
    """Make a key or token for a caller, and its hash.

    BearerAuth and APIKeyAuth take the hash in the place of the key.
    """
    if stdin:
        click.echo(_hashed(sys.stdin.readline().strip()))
    else:
        key = token_urlsafe(_BYTES)
        click.echo(f'key:  {key}\nhash: {_hashed(key)}')
    return 0


def _hashed(key: str) -> str:
    try:
        return keys.hash_key(key)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
