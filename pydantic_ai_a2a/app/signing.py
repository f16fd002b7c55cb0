"""The signatures of an app: of its cards, and of its push notifications; and the public keys that the app serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..http.card import KEYS_PATH, KeySet, check_url
from ..settings import Access
from ..signing.algorithms import EXTRA

if TYPE_CHECKING:
    from ..signing.signatures import Signer

__all__ = ('Signatures', 'signatures')


@dataclass(frozen=True, kw_only=True)
class Signatures:
    """The signatures of an app."""

    sign_card: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Signs the JSON of a card; None: cards are not signed."""
    key_set: KeySet | None = None
    """The endpoint of the public keys; None without signatures."""


def signatures(access: Access, url: str | None) -> Signatures:
    """Return the signatures of the settings.

    Raises:
        ValueError: A key cannot be used.
        ImportError: There are keys, and the extra `jwt` is not installed.
    """
    if url is None or not access.signing:
        return Signatures()
    check_url(url)
    try:
        from ..signing.cards import sign_card  # noqa: PLC0415 - of an extra, as the next line
        from ..signing.signatures import Signer  # noqa: PLC0415 - cryptography takes long to import
    except ImportError as error:
        raise ImportError(f'Access.signing needs more packages: {EXTRA}') from error
    signer = Signer(access.signing, 'Access.signing', url.removesuffix('/') + KEYS_PATH)
    return Signatures(sign_card=partial(sign_card, signer=signer), key_set=_key_set(signer))


def _key_set(*signers: Signer) -> KeySet:
    return KeySet([*{pair.kid: pair.public for signer in signers for pair in signer.keys}.values()])
