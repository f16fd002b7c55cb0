"""The webhooks of clients, or the refusal of a server without push notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import PushNotificationNotSupportedError

if TYPE_CHECKING:
    from ..push.registration import Registration


def registration_of(push: Registration | None) -> Registration:
    """Return the webhooks of clients.

    Raises:
        PushNotificationNotSupportedError: The server has no push notifications.
    """
    if push is None:
        raise PushNotificationNotSupportedError
    return push
