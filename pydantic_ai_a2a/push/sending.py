"""Assembly of push notifications: the registration of webhooks, and a sender in each event loop of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ..ports import Backend
from ..settings import Push
from ..signing.notifications import SignPush
from .registration import Registration
from .secrets import Cipher
from .sender import Sender

__all__ = ('Sending', 'webhooks')


class Sending(AbstractAsyncContextManager[None]):
    """Sends while entered; once in each event loop.

    Args:
        make_sender: Makes the sender of the running loop.
    """

    def __init__(self, make_sender: Callable[[], Sender]) -> None:
        self._make_sender = make_sender
        self._senders: dict[asyncio.AbstractEventLoop, Sender] = {}

    async def __aenter__(self) -> None:
        self._senders[asyncio.get_running_loop()] = self._make_sender()

    async def __aexit__(self, *error: Any) -> None:
        await self._senders.pop(asyncio.get_running_loop()).close()


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

    def make_sender() -> Sender:
        return Sender(outbox, backend.reader, settings, cipher, now=now, sign=sign)

    return Registration(configs, settings, cipher), Sending(make_sender)
