"""The command `hash-key`: makes a key for a caller, and the hash that the server is configured with. Stores nothing."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from secrets import token_urlsafe

from ..auth import hashes
from .target import Refused

__all__ = ('add_hash_key', 'hash_key')

_BYTES = 32


def add_hash_key(parser: ArgumentParser) -> None:
    """Add the arguments of `hash-key`."""
    parser.add_argument('--stdin', action='store_true', help='hash the key that standard input has, and make none')


def hash_key(options: Namespace) -> int:
    """Make a new key or token for a caller, and its hash for BearerAuth or APIKeyAuth."""
    if options.stdin:
        sys.stdout.write(f'{_hashed(sys.stdin.readline().strip())}\n')
    else:
        key = token_urlsafe(_BYTES)
        sys.stdout.write(f'key:  {key}\nhash: {_hashed(key)}\n')
    return 0


def _hashed(key: str) -> str:
    try:
        return hashes.hash_key(key)
    except ValueError as error:
        raise Refused(str(error)) from None
