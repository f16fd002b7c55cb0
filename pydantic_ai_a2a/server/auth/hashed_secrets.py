"""The tokens and keys of a server. Only their hashes are kept in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b, sha256
from os import urandom

from ...types.callers import Caller
from .invalid_credentials import InvalidCredentials

MAX_SECRET = 8192
"""Maximum characters of a token or key. Longer tokens and keys are invalid."""
_MIN_SECRET = 16
_PREFIX = 'sha256:'
_HASH = re.compile(r'sha256:([0-9a-f]{64})')
_PRINTABLE = re.compile(r'[!-~]+')


def hash_key(secret: str) -> str:
    """Return the hash of a random token or key for the configuration: `sha256:` and 64 hexadecimal digits.

    The hash protects secrets that nobody can guess. Passwords of people need a slow hash instead.

    Args:
        secret: 16 characters of ASCII or more, without spaces.

    Raises:
        ValueError: The secret is shorter, or has other characters.
    """
    if not _is_secret(secret):
        raise ValueError(
            f'A token or key needs at least {_MIN_SECRET} characters of ASCII without spaces;'
            ' `pydantic-ai-a2a hash-key` makes one.'
        )
    return _PREFIX + sha256(secret.encode()).hexdigest()


def is_hash(text: str) -> bool:
    """Return True for a hash from `hash_key`, in the place of a secret."""
    return _HASH.fullmatch(text) is not None


class HashedSecrets:
    """The callers of secrets.

    Args:
        callers: Callers by secret, or by hash from `hash_key`. A string is the id of a caller.

    Raises:
        ValueError: The mapping is empty or has its callers as keys, a secret is too short, a hash is malformed, or a
            caller has no id.
    """

    def __init__(self, callers: Mapping[str, Caller | str]) -> None:
        if not callers:
            raise ValueError('The mapping of tokens or keys is empty: add at least one.')
        if any(map(_are_swapped, callers, callers.values())):
            raise ValueError(
                'The mapping of tokens or keys has a secret as its value: write {SECRET: CALLER}. A secret has at least'
                f' {_MIN_SECRET} characters.'
            )
        self._key = urandom(32)
        self._callers = {self._blinded(_digest(secret)): _caller(caller) for secret, caller in callers.items()}

    def caller(self, secret: str | None) -> Caller | None:
        """Return the caller of the secret of a request; None for a request without a secret.

        Raises:
            InvalidCredentials: No caller has the secret.
        """
        if secret is None:
            return None
        caller = self.find(secret)
        if caller is None:
            raise InvalidCredentials('unknown')
        return caller

    def _blinded(self, digest: bytes) -> bytes:
        # The client does not know the compared bytes and learns nothing from the time of a look-up. The time does not
        # depend on the number of secrets.
        return blake2b(digest, key=self._key, digest_size=32).digest()

    def find(self, secret: str) -> Caller | None:
        """Return the caller of a secret; None for an unknown secret."""
        if len(secret) > MAX_SECRET:
            return None
        return self._callers.get(self._blinded(sha256(secret.encode()).digest()))


def _digest(secret: str) -> bytes:
    text = secret if secret.startswith(_PREFIX) else hash_key(secret)
    match = _HASH.fullmatch(text)
    if match is None:
        raise ValueError(f'A hash must be {_PREFIX} and 64 hexadecimal digits in lower case.')
    return bytes.fromhex(match[1])


def _are_swapped(secret: str, caller: Caller | str) -> bool:
    """Return True for a caller that can only be a hash, or that can be a secret beside a secret that cannot be one."""
    return isinstance(caller, str) and (is_hash(caller) or _is_secret(caller) > _is_secret(secret))


def _is_secret(text: str) -> bool:
    return len(text) >= _MIN_SECRET and _PRINTABLE.fullmatch(text) is not None


def _caller(value: Caller | str) -> Caller:
    caller = Caller(id=value) if isinstance(value, str) else value
    if caller.anonymous:
        raise ValueError('Each token or key needs a Caller whose id is not empty.')
    return caller
