"""The stored form of notification targets: JSON, or encrypted JSON."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import from_json, to_json

from ...types.webhook_targets import PushTarget
from .. import encryption

_SEALED = b'fernet:'


class TargetUnreadable(Exception):
    """The key of the encryption is no longer in `Push.keys`."""

    def __init__(self) -> None:
        super().__init__('no key of Push.keys decrypts the webhook')


class TargetCipher:
    """Encrypts with the first key, decrypts with any key. Without keys, targets are stored in plain text.

    Args:
        keys: Fernet keys: 32 bytes as URL-safe base64.

    Raises:
        ValueError: A key is malformed.
        ImportError: There are keys, and `cryptography` is not installed.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._encryption = encryption.Encryption(keys, 'Push.keys') if keys else None

    def dump(self, target: PushTarget) -> bytes:
        """Write a target."""
        plain = to_json([target.id, target.url, target.token, target.scheme, target.credentials])
        return plain if self._encryption is None else _SEALED + self._encryption.encrypt(plain)

    def load(self, body: bytes) -> PushTarget:
        """Read the output of `dump`, even if it was written before there were keys.

        Raises:
            TargetUnreadable: The key of the encryption is missing.
        """
        id, url, token, scheme, credentials = from_json(self._opened(bytes(body)))
        return PushTarget(id=id, url=url, token=token, scheme=scheme, credentials=credentials)

    def _opened(self, body: bytes) -> bytes:
        if not body.startswith(_SEALED):
            return body
        if self._encryption is None:
            raise TargetUnreadable
        try:
            return self._encryption.decrypt(body.removeprefix(_SEALED))
        except encryption.Unreadable:
            raise TargetUnreadable from None
