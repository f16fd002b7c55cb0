"""Tokens and keys of a server, of which only hashes are kept in memory. Knows neither requests nor schemes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b, sha256
from os import urandom

from ..types import Caller

__all__ = ('MAX_SECRET', 'HashedSecrets', 'hash_key')

MAX_SECRET = 8192
"""Characters of a token or key that are looked at; longer ones are none."""
_MIN_SECRET = 16
_PREFIX = 'sha256:'
_HASH = re.compile(r'sha256:([0-9a-f]{64})')
_PRINTABLE = re.compile(r'[!-~]+')


def hash_key(secret: str) -> str:
    """The hash of a random token or key, `sha256:` and 64 hexadecimal digits, to be configured in its place.

    It protects what nobody can guess. A password, which somebody made up, needs a slow hash instead.

    Args:
        secret: 16 characters of ASCII or more, without spaces.

    Raises:
        ValueError: It is shorter, or has other characters.
    """
    if len(secret) < _MIN_SECRET or _PRINTABLE.fullmatch(secret) is None:
        raise ValueError(
            f'A token or key needs at least {_MIN_SECRET} characters of ASCII without spaces;'
            ' `pydantic-ai-a2a hash-key` makes one.'
        )
    return _PREFIX + sha256(secret.encode()).hexdigest()


class HashedSecrets:
    """Which caller each secret stands for.

    Args:
        callers: By secret, or by its hash as `hash_key` makes it. A string is the id of a caller.

    Raises:
        ValueError: There are none, one is neither a hash nor a secret that nobody can guess, or a caller has no id.
    """

    def __init__(self, callers: Mapping[str, Caller | str]) -> None:
        if not callers:
            raise ValueError('Without tokens or keys nobody could call.')
        self._key = urandom(32)
        self._callers = {self._blinded(_digest(secret)): _caller(caller) for secret, caller in callers.items()}

    def _blinded(self, digest: bytes) -> bytes:
        # What is compared is unknown to the client, who therefore learns nothing from how long a look-up takes; and
        # that does not depend on the number of secrets, as going through all of them would.
        return blake2b(digest, key=self._key, digest_size=32).digest()

    def find(self, secret: str) -> Caller | None:
        """Whom a secret stands for; None if nobody has it."""
        if len(secret) > MAX_SECRET:
            return None
        return self._callers.get(self._blinded(sha256(secret.encode()).digest()))


def _digest(secret: str) -> bytes:
    text = secret if secret.startswith(_PREFIX) else hash_key(secret)
    match = _HASH.fullmatch(text)
    if match is None:
        raise ValueError(f'A hash is {_PREFIX} and 64 hexadecimal digits in lower case.')
    return bytes.fromhex(match[1])


def _caller(given: Caller | str) -> Caller:
    caller = Caller(id=given) if isinstance(given, str) else given
    if caller.anonymous:
        raise ValueError('A token or key stands for a caller with an id.')
    return caller
