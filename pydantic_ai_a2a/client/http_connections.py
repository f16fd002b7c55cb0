"""HTTP connections to one agent: opened on first use in each event loop, with bounded answers."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import lru_cache
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import httpx2

from ..arguments import HTTP_NAME
from ..base_exceptions import causes
from ..environment_proxies import SocksMissing, http_client, proxy_of
from ..errors import CardRefused, RemoteProtocolError, RemoteUnavailable, needs_extra
from ..telemetry.propagation import trace_headers
from ..tls_problems import tls_problem
from .answer_limits import MAX_ANSWER, PACE
from .client_credentials import ClientCredentials
from .remote_urls import shown_url

Auth: TypeAlias = httpx2.Auth | tuple[str, str] | str | ClientCredentials
"""Authentication of requests: httpx2's, user name and password, a bearer token, or tokens of an issuer."""
_VALUE = re.compile(r'[\t\x20-\x7e]*')
"""The legal value of a header (RFC 9110)."""
CONNECTIONS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Each call may have a connection: calls wait long, and are no reason to refuse others. Idle ones are bounded."""


class NotConnected(RemoteUnavailable):
    """No connection could be opened, so that nothing was sent."""


class HostUnusable(NotConnected):
    """The host has no address, or its TLS is not accepted: another attempt fails, too."""


class Cut(RemoteUnavailable):
    """The connection was cut before the end of the answer."""


class Silent(RemoteUnavailable):
    """The agent has got the request, and has not answered in time."""


class HttpConnections:
    """The HTTP client of each event loop.

    Args:
        headers: Headers of every request. Default: none.
        auth: Authentication of every request. Default: none.
        client: The user's own HTTP client, which is never closed here. Default: a client for each event loop.
        timeout: Limit of a connection attempt, of silence and of short answers, in seconds.
        transport: The way to an app in this process; None: the network.

    Raises:
        ValueError: The name or the value of a header has characters that HTTP does not allow, `headers` and `auth`
            both have a token, or `auth` is more than the token.
    """

    def __init__(
        self,
        *,
        headers: Mapping[str, str] = {},
        auth: Auth | None = None,
        client: httpx2.AsyncClient | None = None,
        timeout: float,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        if isinstance(auth, str | ClientCredentials) and any(name.lower() == 'authorization' for name in headers):
            raise ValueError('`headers` has an Authorization header, and `auth` makes another one. Leave one out.')
        if isinstance(auth, str) and auth.lower().startswith('bearer '):
            raise ValueError('`auth` is the token alone: leave out the word Bearer, which the client adds.')
        bearer = {'authorization': f'Bearer {auth}'} if isinstance(auth, str) else {}
        self._headers = {**headers, **bearer}
        for name, value in self._headers.items():
            if not HTTP_NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ValueError(f'The header {name!r} has characters that HTTP does not allow in a header.')
        self._auth = None if isinstance(auth, str | ClientCredentials) else auth
        self._tokens = auth if isinstance(auth, ClientCredentials) else None
        self._own = client
        self.timeout = timeout
        self._transport = transport
        self._url = lru_cache(maxsize=8)(httpx2.URL)
        """Parses a URL, which takes as long as building the rest of a request."""
        self._clients = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, httpx2.AsyncClient]]()

    def _client(self, url: str) -> httpx2.AsyncClient:
        kind = next((kind for kind in ('grpc', 'http:') if url.startswith(kind)), 'https:')
        if kind == 'grpc' and self._own is not None:
            raise CardRefused('`http_client` cannot call an agent over gRPC. Leave `http_client` out.')
        if self._own is not None:
            return self._own
        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        if kind not in clients:
            transport = _grpc() if kind == 'grpc' else self._transport
            # Without TLS, the client trusts no certificates: to read them takes a twentieth of the time of a command.
            # An `httpx2.Auth` may send requests of its own, such as for a token, to a URL with TLS.
            without_tls = kind == 'http:' and not isinstance(self._auth, httpx2.Auth)
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if without_tls else True
            clients[kind] = http_client(transport=transport, limits=CONNECTIONS, verify=verify)
        return clients[kind]

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.aclose()

    def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None = None,
        *,
        public: bool = False,
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        """Send a request. The body of the answer is read within the context.

        Args:
            method: The verb of HTTP.
            url: The URL.
            headers: Headers of the request.
            content: The body. Default: none.
            public: True to fetch a token of an issuer only if the answer is HTTP 401. Default False.

        Raises:
            NotConnected: Nothing was sent.
            RemoteUnavailable: The agent has not answered, or not to the end.
            RemoteProtocolError: The URL is not one of HTTP, or the answer cannot be read.
            TokenRefused: The issuer has refused a token.
            ValueError: `auth` or `client` makes a request that HTTP does not allow.
        """
        if self._tokens is None:
            return self._open(method, url, headers, content)
        return self._open_with_token(self._tokens, method, url, headers, content, public=public)

    @asynccontextmanager
    async def _open_with_token(
        self,
        tokens: ClientCredentials,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None,
        *,
        public: bool,
    ) -> AsyncGenerator[httpx2.Response]:
        token = None if public else await self._token(tokens)
        async with self._open(method, url, _with_token(headers, token), content) as response:
            if response.status_code != 401:
                yield response
                return
        if token is None:
            again = self.open(method, url, headers, content)
        else:
            # The issuer may have revoked the token, or the agent may have another key of the issuer by now.
            again = self._open(method, url, _with_token(headers, await self._token(tokens, token)), content)
        async with again as response:
            yield response

    async def _token(self, tokens: ClientCredentials, refused: str | None = None) -> str:
        try:
            return await tokens.token(refused)
        except RemoteUnavailable as error:
            raise NotConnected(str(error)) from error

    @asynccontextmanager
    async def _open(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> AsyncGenerator[httpx2.Response]:
        sent = {**self._headers, **headers, **trace_headers()}
        options: dict[str, Any] = {} if self._auth is None else {'auth': self._auth}
        try:
            client = self._client(url)
            request = client.build_request(method, self._url(url), headers=sent, content=content, timeout=self.timeout)
            async with asyncio.timeout(2 * self.timeout + len(content or b'') / PACE):
                response = await client.send(request, stream=True, follow_redirects=False, **options)
            async with aclosing(response):
                yield response
        except SocksMissing as error:
            raise HostUnusable(f'{shown_url(url)} cannot be reached: {error}') from error
        except httpx2.PoolTimeout as error:
            raise NotConnected(
                f'Nothing was sent to {shown_url(url)}: all connections of `http_client` were in use for'
                f' {self.timeout:g} seconds. Give it more, with `httpx2.Limits(max_connections=...)`.'
            ) from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise _not_connected(url, error, '' if self._own or self._transport else proxy_of(url)) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise RemoteProtocolError(
                f'{shown_url(url)} is not a URL of HTTP. It has to begin with http:// or https://.'
            ) from error
        except (httpx2.DecodingError, httpx2.SSEError) as error:
            raise RemoteProtocolError(f'{shown_url(url)} has sent an answer that cannot be read.') from error
        except httpx2.TimeoutException as error:
            raise Silent(f'{shown_url(url)} was silent for {self.timeout:g} seconds, the `timeout`.') from error
        except TimeoutError as error:
            limit = f'a `timeout` of {self.timeout:g} seconds'
            raise Silent(f'{shown_url(url)} sends its answer too slowly for {limit}.') from error
        except httpx2.LocalProtocolError:
            reason = 'HTTP does not allow a header that `auth` or `http_client` adds'
            raise ValueError(f'The request to {shown_url(url)} cannot be sent: {reason}.') from None
        except httpx2.TransportError as error:
            raise Cut(f'{shown_url(url)} has cut the connection. Try again later.') from error

    async def read(self, response: httpx2.Response, limit: int = MAX_ANSWER) -> bytes:
        """Return the body of an answer.

        Raises:
            TimeoutError: The body takes too long. The context of `open` makes it a `RemoteUnavailable`.
            RemoteProtocolError: The body is longer than the limit.
        """
        pieces: list[bytes] = []
        size = 0
        end = asyncio.get_running_loop().time() + self.timeout
        async with asyncio.timeout_at(end) as deadline:
            async for piece in pieces_of(response):
                size += len(piece)
                if size > limit:
                    url = shown_url(str(response.url))
                    raise RemoteProtocolError(f'{url} has sent an answer of more than {limit} bytes.')
                pieces.append(piece)
                deadline.reschedule(end + size / PACE)
        return b''.join(pieces)


def pieces_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Return the body of an answer in pieces, as they arrive."""
    # Hooks of the user's HTTP client may have read the answer already.
    raw = 'content-encoding' not in response.headers and not response.is_stream_consumed
    return response.aiter_raw() if raw else response.aiter_bytes()


def _grpc() -> httpx2.AsyncBaseTransport:
    try:
        from .grpc_transport import GrpcTransport  # noqa: PLC0415 - of an extra, and gRPC takes long to import
    except ImportError as error:
        raise CardRefused(needs_extra('The agent is called over gRPC, which', 'grpc')) from error
    return GrpcTransport()


def _with_token(headers: Mapping[str, str], token: str | None) -> Mapping[str, str]:
    return headers if token is None else {**headers, 'authorization': f'Bearer {token}'}


def _not_connected(url: str, error: Exception, proxy: str) -> NotConnected:
    if problem := tls_problem(error):
        return HostUnusable(f'{shown_url(url)} cannot be reached: {problem}')
    for cause in causes(error, contexts=True):
        if isinstance(cause, socket.gaierror):
            kind = NotConnected if cause.errno == socket.EAI_AGAIN else HostUnusable
            return kind(f'{shown_url(url)} cannot be reached: the name of its host does not resolve.')
    way = f' through {proxy}' if proxy else ''
    tls = ', or its TLS is not accepted' if url.startswith('grpcs:') else ''  # the library of gRPC does not tell which
    is_up = '' if proxy or tls else ' Is the server running?'
    return NotConnected(f'{shown_url(url)} cannot be reached{way}: no connection could be opened{tls}.{is_up}')
