"""Calls of webhooks.

A call goes to a checked address, without redirects and proxies, and without reading the answer's body.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import httpx2

from ...public_hosts import literal
from ...settings.push import Push
from ...tls_problems import tls_problem
from ...types.webhook_targets import PushTarget
from ...wire.signing.push_signatures import SIGNATURE_HEADER
from .address_policy import AddressPolicy, AddressRefused, host_of

ID_HEADER = 'Webhook-Id'
KNOWN_BY_HEADER = 'X-A2A-Notification-Token'


class Undelivered(Exception):
    """The webhook was not reached, or did not accept the notification; the text has the reason, without the URL."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        """Seconds for which the webhook wants to be left alone."""


class WebhookClient:
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
                answer = await self._post(target, body, headers)
        except TimeoutError:
            raise Undelivered('no answer in time') from None
        except AddressRefused as refused:
            raise Undelivered(f'refused: {refused}') from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:  # their texts may hold the URL
            reason = tls_problem(error).rstrip('.') or f'no connection ({type(error).__name__})'
            raise Undelivered(reason) from None
        if not 200 <= answer.status_code < 300:
            pause = answer.headers.get('Retry-After', '') if answer.status_code in (429, 503) else ''
            raise Undelivered(f'HTTP {answer.status_code}', float(pause) if pause.isdecimal() else 0.0)

    async def _post(self, target: PushTarget, body: bytes, headers: dict[str, str]) -> httpx2.Response:
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
        return answer

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


def _resolve(host: str, port: int) -> Sequence[str]:
    """Return the system's addresses of a host."""
    results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


@cache
def _authorities() -> ssl.SSLContext:
    """Return a TLS context with the system's authorities, or those of `SSL_CERT_FILE`, which take long to read.

    Raises:
        RuntimeError: The authorities cannot be read.
    """
    try:
        return httpx2.create_ssl_context()
    except OSError as error:
        text = 'The certificate authorities cannot be read. Check the variables SSL_CERT_FILE and SSL_CERT_DIR.'
        raise RuntimeError(text) from error


def _credentials(target: PushTarget) -> dict[str, str]:
    """Return the headers by which the receiver recognises the sender."""
    headers: dict[str, str] = {}
    if target.token is not None:
        headers[KNOWN_BY_HEADER] = target.token
    if target.scheme is not None and target.credentials is not None:
        headers['Authorization'] = f'{target.scheme} {target.credentials}'
    return headers
