"""The check of the signatures of push notifications."""

from __future__ import annotations

from typing import Any, cast

from pydantic_core import from_json

from ..errors import NotificationRefused
from ..signing.keys import Unverified, split_token
from .key_finder import KeyFinder
from .trust import TrustedKeys

__all__ = ('TokenVerifier',)


class TokenVerifier:
    """Verifies JSON Web Tokens with trusted keys.

    Args:
        trusted: The trusted keys.

    Raises:
        ValueError: A key or an origin cannot be used.
    """

    def __init__(self, trusted: TrustedKeys) -> None:
        self._keys = KeyFinder(trusted)

    async def claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token. The meaning of the claims is not checked.

        Raises:
            NotificationRefused: No trusted key has made the signature.
            RemoteUnavailable: The key set cannot be fetched now.
        """
        try:
            protected, payload, signature = split_token(token)
            await self._keys.verify(protected, payload, signature)
        except Unverified as error:
            raise NotificationRefused(f'The signature of the notification {error}.') from None
        try:
            claims: object = from_json(payload)
        except ValueError:
            claims = None
        return cast('dict[str, Any]', claims) if isinstance(claims, dict) else {}
