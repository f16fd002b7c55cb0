"""Assembly of push notifications: the registration of webhooks, and a sender in each event loop of the app."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias

from ..settings import Push
from ..signing.notifications import SignPush
from ..store.ports import Backend
from .registration import Registration
from .secrets import Cipher
from .sender import Sender

__all__ = ('Sending', 'webhooks')

Sending: TypeAlias = Callable[[], AbstractAsyncContextManager[Sender]]
"""Makes a sender for the running event loop, which sends until the context is left."""


def webhooks(
    backend: Backend, settings: Push, now: Callable[[], int], sign: SignPush | None = None
) -> tuple[Registration, Sending]:
    """Return the registration and the sending of webhooks.

    Raises:
        ValueError: The backend has no push notifications, or a key is malformed.
        ImportError: There are keys, and `cryptography` is not installed.
    """
    configs, outbox, cipher = backend.push_configs, backend.outbox, Cipher(settings.keys)
    if configs is None or outbox is None:
        raise ValueError(
            'push= needs a backend with push notifications, and cannot be combined with storage= or broker=.'
        )
    return Registration(configs, settings, cipher), lambda: aclosing(
        Sender(outbox, backend.reader, settings, cipher, now=now, sign=sign)
    )
