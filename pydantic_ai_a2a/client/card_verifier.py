"""The check of the signatures of agent cards (§8.4.3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import product
from typing import Any, cast

from ..errors import CardUnverified, RemoteUnavailable
from ..json_values import as_object
from ..wire.signing.canonical_cards import NotSignable, canonical, everything, known_fields, signed_content
from ..wire.signing.card_signatures import CARD_DIGEST, card_digest, lost
from ..wire.signing.jws import Unverified
from .signature_verifier import SignatureVerifier
from .trusted_keys import TrustedKeys

logger = logging.getLogger('pydantic_ai_a2a')

_MOST_SIGNATURES = 20


class CardVerifier:
    """Verifies cards.

    Args:
        trusted: Keys of which one must have signed a card.

    Raises:
        ValueError: A key or an origin cannot be used.
    """

    def __init__(self, trusted: TrustedKeys) -> None:
        self._keys = SignatureVerifier(trusted)

    async def content(self, wire: object, place: str) -> dict[str, Any]:
        """Return the content of a card that a trusted key has signed, without everything else in the card.

        A signature may cover each form of a card (§8.4.1), and only what the form has is returned. So nothing that
        somebody adds to a card has an effect. The form of the official SDK does not have security requirements without
        scopes. If the signer has put the digest of the whole card into the header of the signature, as this package
        does, a card with other requirements is refused. Otherwise the signer has not protected its requirements, and
        nobody can tell a removed requirement from one that never was: they are left out, with a warning.

        Args:
            wire: The JSON of the card.
            place: URL of the card, for errors.

        Raises:
            CardUnverified: No signature is of a trusted key.
            RemoteUnavailable: A key set cannot be fetched now, and no other signature is of a trusted key.
        """
        card = as_object(wire)
        signatures = card.get('signatures')
        if not isinstance(signatures, list) or not signatures:
            raise CardUnverified(
                f'{place} has a card without signatures, and a signature of a trusted key is required.'
            )
        try:
            whole, dropped = known_fields(card), signed_content(card)
            forms = {canonical(content): content for content in (dropped, whole, everything(card))}
            digest = card_digest(whole)
        except NotSignable as error:
            raise CardUnverified(f'{place} has a card that cannot be verified: {error}.') from None
        payload, named = await self._verify(
            [*reversed(forms)], digest, cast('list[object]', signatures)[:_MOST_SIGNATURES], place
        )
        if named:
            return whole
        if forms[payload] is dropped:
            logger.warning(
                'The signature of the agent card at %s does not cover %s, which is left out.',
                place,
                lost(whole, dropped, ''),
            )
        return forms[payload]

    async def _verify(
        self, payloads: Sequence[bytes], digest: str, signatures: Sequence[object], place: str
    ) -> tuple[bytes, bool]:
        """Return the first payload with a signature of a trusted key, and whether the signature has the digest."""
        reason, unavailable = '', None
        for payload, entry in product(payloads, signatures):
            signature = as_object(entry)
            protected = str(signature.get('protected'))
            try:
                header = await self._keys.verify(protected, payload, signature.get('signature'))
                if header.get(CARD_DIGEST, digest) != digest:
                    raise Unverified('is of a card with other security requirements or empty values')
            except Unverified as error:
                reason = str(error)
            except RemoteUnavailable as error:
                unavailable = error
            else:
                return payload, CARD_DIGEST in header
        if unavailable is not None:
            raise unavailable
        raise CardUnverified(f'{place} has a card without a signature of a trusted key: the last signature {reason}.')
