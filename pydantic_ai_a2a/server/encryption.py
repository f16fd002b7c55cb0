"""Encryption of stored secrets with the Fernet keys of an option."""

from __future__ import annotations

from collections.abc import Sequence


class Unreadable(Exception):
    """The key of an encrypted value is no longer in the option."""


class Encryption:
    """Encrypts with the first key, decrypts with any key.

    Args:
        keys: Fernet keys: 32 bytes as URL-safe base64.
        option: Name of the option with the keys, such as `Push.keys`, for errors.

    Raises:
        ValueError: A key is malformed.
        ImportError: `cryptography` is not installed.
    """

    def __init__(self, keys: Sequence[str], option: str) -> None:
        try:
            from cryptography.fernet import Fernet, InvalidToken, MultiFernet  # noqa: PLC0415 - an extra
        except ImportError as error:
            install = "pip install 'pydantic-ai-a2a[push]', in a checkout '.[push]'"
            raise ImportError(f'{option} needs the extra `push`: {install}') from error
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError:
            raise ValueError(f'{option} must be keys of cryptography.fernet.Fernet.generate_key().') from None
        self._wrong = InvalidToken

    def encrypt(self, plain: bytes) -> bytes:
        """Encrypt bytes."""
        return self._fernet.encrypt(plain)

    def decrypt(self, body: bytes) -> bytes:
        """Return the bytes that `encrypt` has encrypted.

        Raises:
            Unreadable: No key decrypts the bytes.
        """
        try:
            return self._fernet.decrypt(body)
        except self._wrong:
            raise Unreadable from None
