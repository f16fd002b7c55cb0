"""The signatures of an app: of its cards, and of its push notifications; and the public keys that the app serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import needs_extra
from ...settings.access import Access
from ...settings.push import Push
from ...types.frozen_values import frozen
from ...types.signing_keys import Key
from ...wire.signing.push_signatures import SignPush
from ..http.app_urls import check_reachable_url
from ..http.cached_answers import CachedAnswer
from ..http.card_and_keys import KEYS_PATH, key_set
from .conflicting_options import refuse_options

if TYPE_CHECKING:
    from ...wire.signing.app_signer import AppSigner


@frozen
class Signatures:
    """The signatures of an app."""

    sign_card: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Signs the JSON of a card; None: cards are not signed."""
    sign_push: SignPush | None = None
    """Signs push notifications; None: push notifications are not signed."""
    key_set: CachedAnswer | None = None
    """The endpoint of the public keys; None without signatures."""


def signatures(access: Access, push: Push | None, url: str | None) -> Signatures:
    """Return the signatures of the settings.

    Raises:
        TypeError: The options of signatures do not go together.
        ValueError: A key cannot be used, or two keys have the same id.
        ImportError: There are keys, and the extra `jwt` is not installed.
    """
    _check_signing(access, push, url)
    pushes = () if push is None else push.signing
    cards, notifications = _signer(access.signing, 'Access.signing', url), _signer(pushes, 'Push.signing', url)
    pairs = [pair for signer in (cards, notifications) if signer is not None for pair in signer.keys]
    keys = {pair.kid: pair.public for pair in pairs}
    if repeated := next((pair.kid for pair in pairs if pair.public != keys[pair.kid]), None):
        raise ValueError(
            f'Access.signing and Push.signing have different keys or algorithms with the id {repeated!r}: give each '
            'key a `kid` of its own.'
        )
    return Signatures(
        sign_card=None if cards is None else cards.sign_card,
        sign_push=None if notifications is None else notifications.sign_push,
        key_set=key_set([*keys.values()]) if keys else None,
    )


def _signer(keys: Sequence[Key], setting: str, url: str | None) -> AppSigner | None:
    if url is None or not keys:
        return None
    check_reachable_url(url)
    try:
        from ...wire.signing.app_signer import AppSigner  # noqa: PLC0415 - of an extra, and cryptography takes long to import
    except ImportError as error:
        raise ImportError(needs_extra(setting, 'jwt')) from error
    return AppSigner(keys, setting, url, url.removesuffix('/') + KEYS_PATH)


def _check_signing(access: Access, push: Push | None, url: str | None) -> None:
    """Check the options of signatures.

    Raises:
        TypeError: The options do not go together.
    """
    signs = bool(access.signing)
    refuse_options(
        (
            signs and url is None,
            'Access.signing needs url=: a signed card has the URL of the agent, and the URL of a request may be of a'
            ' proxy or an attacker.',
        ),
        (
            push is not None and bool(push.signing) and url is None,
            'Push.signing needs url=: receivers find the keys of the agent by its URL.',
        ),
        (signs and '1.0' not in access.versions, "Access.signing needs '1.0' among Access.versions."),
    )
