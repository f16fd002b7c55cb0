"""The stored form of notification targets: JSON, or encrypted JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic_core import from_json, to_json

from ..types import PushTarget

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

__all__ = ('Cipher', 'Unreadable')

_SEALED = b'fernet:'


class Unreadable(Exception):
    """The key of the encryption is no longer in `Push.keys`."""

    def __init__(self) -> None:
        super().__init__('no key of Push.keys decrypts the webhook')


class Cipher:
    """Encrypts with the first key, decrypts with any key. Without keys, targets are stored in plain text.

    Args:
        keys: Fernet keys: 32 bytes as URL-safe base64.

    Raises:
        ValueError: A key is malformed.
        ImportError: There are keys, and `cryptography` is not installed.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._fernet: MultiFernet | None = None
        if not keys:
            return
        try:
            from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError('Push.keys needs cryptography: pip install "pydantic-ai-a2a[push]"') from error
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError:
            raise ValueError('Push.keys must be keys of cryptography.fernet.Fernet.generate_key().') from None

    def dump(self, target: PushTarget) -> bytes:
        """Write a target."""
        plain = to_json([target.id, target.url, target.token, target.scheme, target.credentials])
        return plain if self._fernet is None else _SEALED + self._fernet.encrypt(plain)

    def load(self, body: bytes) -> PushTarget:
        """Read the output of `dump`, even if it was written before there were keys.

        Raises:
            Unreadable: The key of the encryption is missing.
        """
        id, url, token, scheme, credentials = from_json(self._opened(bytes(body)))
        return PushTarget(id=id, url=url, token=token, scheme=scheme, credentials=credentials)

    def _opened(self, body: bytes) -> bytes:
        if not body.startswith(_SEALED):
            return body
        if self._fernet is None:
            raise Unreadable
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - an extra

        try:
            return self._fernet.decrypt(body.removeprefix(_SEALED))
        except InvalidToken:
            raise Unreadable from None
