"""Sends the deliveries of the outbox, from one event loop: in order for each webhook, with retries of failed ones.

A delivery never changes its task, and waits only for its webhook. Several processes share one outbox. When a process is
killed, its deliveries go to another process after their lease, with the same ids.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from contextvars import Context

from ...backoff import backoff_after, spread
from ...base_exceptions import ends_task
from ...bounded_wait import bounded_wait
from ...settings.push import Push
from ...telemetry.metrics import metrics
from ...telemetry.propagation import trace_headers
from ...telemetry.spans import push_span
from ...wire.protocol import stored_values
from ...wire.protocol.versions import codec_of
from ...wire.signing.push_signatures import SignPush
from ..store.ports import Delivery, Outbox, TaskReader
from .stored_targets import TargetCipher, TargetUnreadable
from .webhook_client import Undelivered, WebhookClient

logger = logging.getLogger('pydantic_ai_a2a')

_POLL = 1.0
"""Seconds between polls for deliveries of other processes, without a hint."""
_BRIEFLY = 0.02
"""Seconds until the next poll for due deliveries that others hold up."""
_LONGEST_PAUSE = 3600.0
_FLUSH_TIME = 4.0
"""Seconds in which a closing sender still sends due deliveries."""


def pause_after(failures: int, first: float, chance: float) -> float:
    """Return the seconds before the next try; `chance` from 0 to 1 varies the pause by up to a half."""
    return spread(backoff_after(failures, first, _LONGEST_PAUSE, factor=4.0), 0.5, 1.5, chance=chance)


class WebhookSender:
    """Sends deliveries from construction to `aclose`.

    Args:
        outbox: The deliveries.
        reader: Reads the tasks, for versions that send whole tasks.
        settings: The app's settings for webhooks.
        cipher: Decrypts the registered targets.
        now: The wall clock (ms), for the time of a dead delivery.
        sign: Signs a notification for each try; None: notifications have no signatures.
        chance: Returns a random number from 0 to 1.
    """

    def __init__(
        self,
        outbox: Outbox,
        reader: TaskReader,
        settings: Push,
        cipher: TargetCipher,
        *,
        now: Callable[[], int],
        sign: SignPush | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._outbox = outbox
        self._reader = reader
        self._settings = settings
        self._cipher = cipher
        self._now = now
        self._sign = sign
        self._chance = chance
        self._lease = int(settings.timeout * 2000) + 1000
        self._webhooks = WebhookClient(settings)
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._active: dict[asyncio.Task[None], str] = {}
        """The owner of each delivery in progress."""
        self._closing = False
        self._stop_listening = outbox.listen(self._on_due)
        # In an empty context: spans and variables of a request must not outlive the request.
        self._sending = self._loop.create_task(self._send(), context=Context())

    async def aclose(self) -> None:
        """Send due deliveries for a few seconds; leave the others to other processes, or to the next start."""
        self._closing = True
        self._wake.set()
        self._stop_listening()
        try:
            await asyncio.wait([self._sending], timeout=_FLUSH_TIME)
        finally:
            rest = [self._sending, *self._active]
            for task in rest:
                task.cancel()
            await asyncio.wait(rest, timeout=_FLUSH_TIME)
            await self._webhooks.close()

    def _on_due(self) -> None:
        """Called in any thread."""
        if asyncio._get_running_loop() is self._loop:
            self._wake.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:  # the loop was closed before the sender was
            self._stop_listening()

    async def _send(self) -> None:
        while True:
            self._wake.clear()
            try:
                seconds = await self._start_due()
            except BaseException as error:  # a user's store may raise anything, and may work at the next attempt
                if ends_task(error, self._sending):
                    raise
                logger.exception('The outbox of webhooks could not be read; the sender tries again in a moment.')
                seconds = _POLL
            if self._closing and not self._active and seconds > 0:
                return
            await bounded_wait(max(seconds, _BRIEFLY), self._wake.wait())

    async def _start_due(self) -> float:
        """Start due deliveries while slots are free. Return the seconds until the next poll."""
        free = self._settings.at_once - len(self._active)
        if free <= 0:
            return _POLL  # the end of a delivery wakes the loop
        held = Counter(self._active.values())
        leased = await self._outbox.lease(lease=self._lease, limit=free, held=held)
        for delivery in leased.deliveries:
            task = self._loop.create_task(self._deliver(delivery), context=Context())
            self._active[task] = delivery.owner
            task.add_done_callback(self._ended)
        return _POLL if leased.wait is None else min(leased.wait / 1000, _POLL)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._active[task]
        self._wake.set()

    async def _deliver(self, delivery: Delivery) -> None:
        current = asyncio.current_task()
        try:
            try:
                await self._try(delivery)
            except asyncio.CancelledError:
                await self._outbox.release(delivery)
                raise
        except BaseException as error:  # of a user's store; another attempt follows once the lease expires
            if ends_task(error, current):
                raise
            logger.exception(
                'A webhook delivery of task %s failed inside the server; the sender tries again once the lease'
                ' of the delivery expires.',
                delivery.task_id,
            )

    async def _try(self, delivery: Delivery) -> None:
        try:
            target = self._cipher.load(delivery.config.body)
            codec = codec_of(delivery.config.version)
            if codec.pushes_tasks:
                task = await self._reader.load(delivery.task_id, delivery.owner)
                body = codec.encode_task(stored_values.task_at(delivery.event.payload, task, delivery.owner))
            else:
                body = codec.encode_event(delivery.event, False)
            with push_span(delivery.task_id, delivery.id, delivery.traceparent):
                signature = None if self._sign is None else self._sign(target.url, delivery.id, body, self._now())
                # The caller chose the webhook, and baggage may be of others: the webhook gets the trace only.
                trace = trace_headers().get('traceparent')
                await self._webhooks.post(
                    target, delivery.id, body, codec.push_media_type, trace=trace, signature=signature
                )
        except (Undelivered, TargetUnreadable) as error:
            await self._failed(delivery, str(error), error.retry_after if isinstance(error, Undelivered) else 0.0)
        else:
            if metrics.instruments is not None:
                metrics.instruments.deliver('accepted')
            await self._outbox.done(delivery)

    async def _failed(self, delivery: Delivery, error: str, retry_after: float) -> None:
        failures, pause = delivery.failures + 1, None
        if failures < self._settings.tries:
            growing = pause_after(failures, self._settings.backoff, self._chance())
            pause = int(max(growing, min(retry_after, _LONGEST_PAUSE)) * 1000)
        logger.warning(
            'Webhook delivery %s of task %s failed (%s), attempt %d of %d.',
            delivery.id,
            delivery.task_id,
            error,
            failures,
            self._settings.tries,
        )
        if metrics.instruments is not None:
            metrics.instruments.deliver('dead' if pause is None else 'failed')
        await self._outbox.failed(delivery, at=self._now(), pause=pause, error=error)
