"""The command `hash-key`: makes a key for a caller, and the key's hash for the configuration of the server."""

from __future__ import annotations

import sys
from secrets import token_urlsafe

import click

from ..server.auth.hashed_secrets import hash_key as hash_of
from .terminal import echo

_BYTES = 32


@click.command('hash-key')
@click.option('--stdin', is_flag=True, help='Hash the key from standard input instead of making a key.')
def hash_key(stdin: bool) -> int:
    """Make a key or token for a caller, and its hash.

    BearerAuth and APIKeyAuth take the hash in the place of the key.
    """
    if stdin:
        echo(_hashed(sys.stdin.readline().strip()))
    else:
        key = token_urlsafe(_BYTES)
        echo(f'key:  {key}\nhash: {_hashed(key)}')
    return 0


def _hashed(key: str) -> str:
    try:
        return hash_of(key)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
