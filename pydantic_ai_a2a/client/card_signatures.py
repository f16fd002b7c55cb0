"""The check of the signatures of agent cards (§8.4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ..errors import CardUnverified, RemoteUnavailable
from ..signing.cards import NotSignable, canonical, signed_content
from ..signing.keys import Unverified
from .key_finder import KeyFinder
from .trust import TrustedKeys

__all__ = ('CardVerifier',)

_MOST_SIGNATURES = 20


class CardVerifier:
    """Verifies cards.

    Args:
        trusted: Keys of which one must have signed a card.

    Raises:
        ValueError: A key or an origin cannot be used.
    """

    def __init__(self, trusted: TrustedKeys) -> None:
        self._keys = KeyFinder(trusted)

    async def content(self, wire: object, place: str) -> dict[str, Any]:
        """Return the content of a card that a trusted key has signed, without everything else in the card.

        Args:
            wire: The JSON of the card.
            place: URL of the card, for errors.

        Raises:
            CardUnverified: No signature is of a trusted key.
            RemoteUnavailable: A key set cannot be fetched now, and no other signature is of a trusted key.
        """
        card = cast('dict[str, Any]', wire) if isinstance(wire, dict) else {}
        signatures: Any = card.get('signatures')
        if not isinstance(signatures, list) or not signatures:
            raise CardUnverified(
                f'{place} has a card without signatures, and a signature of a trusted key is required.'
            )
        try:
            content = signed_content(card)
            payload = canonical(content)
        except NotSignable as error:
            raise CardUnverified(f'{place} has a card that cannot be verified: {error}.') from None
        await self._verify(payload, cast('list[object]', signatures)[:_MOST_SIGNATURES], place)
        return content

    async def _verify(self, payload: bytes, signatures: Sequence[object], place: str) -> None:
        reason, unavailable = '', None
        for entry in signatures:
            signature = cast('dict[str, Any]', entry) if isinstance(entry, dict) else {}
            protected = str(signature.get('protected'))
            try:
                await self._keys.verify(protected, payload, signature.get('signature'))
            except Unverified as error:
                reason = str(error)
            except RemoteUnavailable as error:
                unavailable = error
            else:
                return
        if unavailable is not None:
            raise unavailable
        raise CardUnverified(f'{place} has a card without a signature of a trusted key: the last signature {reason}.')
