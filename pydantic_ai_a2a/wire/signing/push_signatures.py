"""The form of signed push notifications.

This module needs no package of an extra.
"""

from __future__ import annotations

from typing import Protocol

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
