"""Sends the deliveries of the outbox, from one event loop: in order for each webhook, with retries of failed ones.

A delivery never changes its task, and waits only for its webhook. Several processes share one outbox. When a process is
killed, its deliveries go to another process after their lease, with the same ids.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing
from contextvars import Context
from functools import cache
from typing import TypeAlias

import httpx2

from ..protocol import stored
from ..protocol.versions import codec_of
from ..public_hosts import literal
from ..settings import Push
from ..signing.algorithms import SIGNATURE_HEADER, SignPush
from ..store.ports import Backend, Delivery, Outbox, TaskReader
from ..telemetry import metrics, push_span, trace_headers
from ..types import PushTarget
from .addresses import AddressPolicy, AddressRefused, host_of
from .registration import Cipher, Registration, Unreadable

logger = logging.getLogger('pydantic_ai_a2a')

_POLL = 1.0
"""Seconds between polls for deliveries of other processes, without a hint."""
_BRIEFLY = 0.02
"""Seconds until the next poll for due deliveries that others hold up."""
_LONGEST_PAUSE = 3600.0
_FLUSH_TIME = 4.0
"""Seconds in which a closing sender still sends due deliveries."""


def pause_after(failures: int, backoff: float, chance: float) -> float:
    """Return the seconds before the next try; `chance` from 0 to 1 varies the pause by up to a half."""
    return min(backoff * 4.0 ** (failures - 1), _LONGEST_PAUSE) * (0.5 + chance)


class Sender:
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
        cipher: Cipher,
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
        self._webhooks = Webhooks(settings)
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
            except Exception:  # the store may work at the next attempt
                logger.exception('The outbox of webhooks could not be read; the sender tries again in a moment.')
                seconds = _POLL
            if self._closing and not self._active and seconds > 0:
                return
            try:
                async with asyncio.timeout(max(seconds, _BRIEFLY)):
                    await self._wake.wait()
            except TimeoutError:
                pass  # the pause is over: poll the outbox

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
        try:
            try:
                await self._try(delivery)
            except asyncio.CancelledError:
                await self._outbox.release(delivery)
                raise
        except Exception:  # another attempt follows once the lease expires
            logger.exception(
                'A webhook delivery of task %s failed inside the server; the sender tries again once the lease'
                ' of the delivery expires.',
                delivery.task_id,
            )

    async def _try(self, delivery: Delivery) -> None:
        try:
            target = self._cipher.load(delivery.config.body)
            codec = codec_of(delivery.config.version)
            body = await self._body(delivery)
            with push_span(delivery.task_id, delivery.id, delivery.traceparent):
                signature = None if self._sign is None else self._sign(target.url, delivery.id, body, self._now())
                # The caller chose the webhook, and baggage may be of others: the webhook gets the trace only.
                trace = trace_headers().get('traceparent')
                await self._webhooks.post(
                    target, delivery.id, body, codec.push_media_type, trace=trace, signature=signature
                )
        except (Undelivered, Unreadable) as error:
            await self._failed(delivery, str(error))
        else:
            if metrics.instruments is not None:
                metrics.instruments.deliver('accepted')
            await self._outbox.done(delivery)

    async def _failed(self, delivery: Delivery, error: str) -> None:
        failures, pause = delivery.failures + 1, None
        if failures < self._settings.tries:
            pause = int(pause_after(failures, self._settings.backoff, self._chance()) * 1000)
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

    async def _body(self, delivery: Delivery) -> bytes:
        """Return the body: the event, or the task after the event."""
        codec = codec_of(delivery.config.version)
        if not codec.pushes_tasks:
            return codec.encode_event(delivery.event, False)
        task = await self._reader.load(delivery.task_id, delivery.owner)
        return codec.encode_task(stored.task_at(delivery.event.payload, task, delivery.owner))


# --- one call of a webhook --------------------------------------------------------------------------------------------
# To a checked address, without redirects and proxies, and without reading the answer's body.

ID_HEADER = 'Webhook-Id'
KNOWN_BY_HEADER = 'X-A2A-Notification-Token'


class Undelivered(Exception):
    """The webhook was not reached, or did not accept the notification; the text has the reason, without the URL."""


def _resolve(host: str, port: int) -> Sequence[str]:
    """Return the system's addresses of a host."""
    results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


@cache
def _authorities() -> ssl.SSLContext:
    """Return a TLS context with the certificate authorities of the system, which take long to read."""
    return httpx2.create_ssl_context(trust_env=False)


class Webhooks:
    """Calls webhooks, from one event loop.

    Args:
        settings: The app's settings for webhooks.
    """

    def __init__(self, settings: Push) -> None:
        self._timeout = settings.timeout
        self._guard = AddressPolicy(settings.private_hosts)
        self._resolve = settings.resolve or self._ask_system
        # Clients choose the host names, and a slow name server can hold a thread for long. In a pool of their own, such
        # look-ups delay only other webhooks. A look-up may run on after its delivery has failed, so the pool has more
        # threads than there are deliveries at once.
        self._threads = ThreadPoolExecutor(4 * settings.at_once, thread_name_prefix='pydantic_ai_a2a-push')
        # A transport, not a client: a client would log the URLs, which may hold secrets. The transport follows no
        # redirect and uses no proxy. It keeps no connection open: the next request to an address may be for another
        # host, which has to show its own certificate.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = httpx2.AsyncHTTPTransport(verify=_authorities(), trust_env=False, limits=limits)

    async def close(self) -> None:
        """Release threads and connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._transport.aclose()

    async def post(
        self,
        target: PushTarget,
        delivery_id: str,
        body: bytes,
        media_type: str,
        *,
        trace: str | None = None,
        signature: str | None = None,
    ) -> None:
        """Send a notification, and return once the webhook has accepted it.

        Args:
            target: The webhook.
            delivery_id: Id of the delivery, the same for every try.
            body: The body of the notification.
            media_type: Media type of the body.
            trace: Trace of the notification, as W3C trace context.
            signature: Signature of this try, as a JSON Web Token.

        Raises:
            Undelivered: The webhook did not accept the notification.
        """
        try:
            async with asyncio.timeout(self._timeout):
                headers = {'Content-Type': media_type, ID_HEADER: delivery_id}
                optional = {'traceparent': trace, SIGNATURE_HEADER: signature}
                headers |= {name: value for name, value in optional.items() if value is not None}
                status = await self._post(target, body, headers)
        except TimeoutError:
            raise Undelivered('no answer in time') from None
        except AddressRefused as refused:
            raise Undelivered(f'refused: {refused}') from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:  # their texts may hold the URL
            raise Undelivered(f'no connection ({type(error).__name__})') from None
        if not 200 <= status < 300:
            raise Undelivered(f'HTTP {status}')

    async def _post(self, target: PushTarget, body: bytes, headers: dict[str, str]) -> int:
        url = self._guard.check_url(target.url)
        host = host_of(url)
        headers = {
            'Host': url.netloc.decode('ascii'),
            'Accept-Encoding': 'identity',
            **headers,
            **_credentials(target),
        }
        address = await self._address(url, host)
        pinned = url.copy_with(host=address)
        # The request goes to an address, so TLS needs the name of the host to check the certificate.
        extensions = {'sni_hostname': host} if url.scheme == 'https' and literal(host) is None else {}
        request = httpx2.Request('POST', pinned, content=body, headers=headers, extensions=extensions)
        answer = await self._transport.handle_async_request(request)
        await answer.aclose()  # without reading the body, which may be of any length
        return answer.status_code

    async def _address(self, url: httpx2.URL, host: str) -> str:
        """Return one of the host's addresses, all of them checked: the name may resolve to another address later."""
        address = literal(host)
        port = url.port or (443 if url.scheme == 'https' else 80)
        addresses = [address] if address is not None else await self._look_up(host, port)
        if not addresses:
            raise AddressRefused('the host has no address')
        self._guard.check_addresses(url, addresses)
        return addresses[0]

    async def _ask_system(self, host: str, port: int) -> Sequence[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _resolve, host, port)

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        try:
            return await self._resolve(host, port)
        except Exception as error:  # the user's function may raise any error
            raise Undelivered(f'no address ({type(error).__name__})') from None


def _credentials(target: PushTarget) -> dict[str, str]:
    """Return the headers by which the receiver recognises the sender."""
    headers: dict[str, str] = {}
    if target.token is not None:
        headers[KNOWN_BY_HEADER] = target.token
    if target.scheme is not None and target.credentials is not None:
        headers['Authorization'] = f'{target.scheme} {target.credentials}'
    return headers


# --- assembly of push notifications -----------------------------------------------------------------------------------
# The registration of webhooks, and a sender in each event loop of the app.

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
