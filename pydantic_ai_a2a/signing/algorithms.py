"""The accepted algorithms of signatures, the form of keys, and the form of signed push notifications.

This module needs no package of an extra.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeAlias

Key: TypeAlias = str | bytes | Mapping[str, Any]
"""A key pair or a public key: the text of a PEM file, or a JSON Web Key (RFC 7517)."""

KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    'RS256': ('RSA', None),
    'RS384': ('RSA', None),
    'RS512': ('RSA', None),
    'PS256': ('RSA', None),
    'PS384': ('RSA', None),
    'PS512': ('RSA', None),
    'ES256': ('EC', 'P-256'),
    'ES384': ('EC', 'P-384'),
    'ES512': ('EC', 'P-521'),
    'EdDSA': ('OKP', 'Ed25519'),
}
"""Algorithms with a key pair, with the type and the curve of the key (RFC 7518, RFC 8037)."""

ALGORITHMS: tuple[str, ...] = tuple(KEY_TYPES)
"""Names of the algorithms. Shared secrets and `none` are not among them."""


def check_algorithms(names: Collection[str], known: Collection[str], setting: str) -> None:
    """Check the accepted algorithms of a setting.

    Raises:
        ValueError: An algorithm is not known, or there is none.
    """
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise ValueError(f'{setting} must be of {", ".join(known)}, not {", ".join(wrong) or "empty"}.')


# --- signed push notifications ----------------------------------------------------------------------------------------

SIGNATURE_HEADER = 'X-A2A-Notification-Signature'
"""The header with the JSON Web Token of a notification."""
NOTIFICATION_ID = 'webhook_id'
"""The claim with the id of the notification, which is the same for each try."""
BODY_DIGEST = 'request_body_sha256'
"""The claim with the SHA-256 of the body, in hexadecimal digits, as in the samples of A2A."""
LIFETIME = 300
"""Seconds from the signature of a notification to its expiry."""


class SignPush(Protocol):
    """Signs one try of a push notification."""

    def __call__(self, url: str, notification_id: str, body: bytes, now: int) -> str:
        """Return a JSON Web Token with an id of its own.

        Args:
            url: The URL of the webhook.
            notification_id: The id of the notification.
            body: The body of the request.
            now: The time (ms).
        """
        ...
