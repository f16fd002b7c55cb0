"""The webhooks of an app: their registration, and the sending of its deliveries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias

from ...settings.push import Push
from ...wire.signing.push_signatures import SignPush
from ..store.ports import Backend
from .registration import Registration
from .stored_targets import TargetCipher
from .webhook_sender import WebhookSender

Sending: TypeAlias = Callable[[], AbstractAsyncContextManager[WebhookSender]]
"""Makes a sender for the running event loop, which sends until the context is left."""


def webhooks(
    backend: Backend, settings: Push, now: Callable[[], int], sign: SignPush | None = None
) -> tuple[Registration, Sending]:
    """Return the registration and the sending of webhooks.

    Raises:
        ValueError: The backend has no push notifications, or a key is malformed.
        ImportError: There are keys, and `cryptography` is not installed.
    """
    configs, outbox, cipher = backend.push_configs, backend.outbox, TargetCipher(settings.keys)
    if configs is None or outbox is None:
        raise ValueError(
            'push= needs a backend with push notifications, and cannot be combined with storage= or broker=.'
        )
    return Registration(configs, settings, cipher), lambda: aclosing(
        WebhookSender(outbox, backend.reader, settings, cipher, now=now, sign=sign)
    )
