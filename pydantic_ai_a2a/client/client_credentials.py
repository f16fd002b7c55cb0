"""Access tokens of an issuer for a client: the client credentials grant of OAuth 2 (RFC 6749 §4.4)."""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, cast
from urllib.parse import quote_plus, urlsplit

import httpx2

from ..arguments import checked
from ..environment_proxies import SocksMissing
from ..errors import CardRefused, RemoteProtocolError, RemoteUnavailable, TokenRefused
from ..issuer_requests import checked_url, connected, fetch, fetch_json, metadata_urls, read_object
from ..tls_problems import tls_problem
from ..types.a2a_objects import AgentCard
from .remote_urls import origin, shown_url

_TOKEN = re.compile(r'[A-Za-z0-9\-._~+/]{1,16000}=*')
"""A bearer token (RFC 6750 §2.1)."""
_CODE = re.compile(r'[a-z_]{1,40}')
"""The code of an error of an issuer (RFC 6749 §5.2). Other texts of the issuer may hold secrets."""
_MARGIN = 30.0
"""Most seconds before the end of a token in which the client fetches the next token."""


@dataclass(frozen=True, slots=True)
class _Token:
    value: str = field(repr=False)
    until: float
    """Time of a steady clock when the client fetches the next token."""


@dataclass(slots=True, eq=False)
class _Fetch:
    task: asyncio.Task[_Token]
    callers: int = 0
    """Number of calls that wait for the task."""


@checked
class ClientCredentials:
    """Authenticates a program by access tokens of an OAuth 2 or OpenID Connect issuer. Pass the object as `auth`.

    The client finds the token endpoint in the metadata of the issuer, by OpenID Connect Discovery or by RFC 8414. The
    client keeps the token until shortly before its end, and fetches another token if an agent refuses the token with
    HTTP 401. An agent gets only tokens, never the secret. A card cannot name another issuer.

    Args:
        issuer: The exact URL of the issuer.
        client_id: The program's id at the issuer.
        client_secret: The secret of the program. The secret goes only to the token endpoint of the issuer.
        scopes: Scopes of the tokens. Default: the issuer decides.
        parameters: More parameters of the request for a token, such as `audience` or `resource` (RFC 8707).

    Raises:
        ValueError: The issuer is no URL, has a query, or needs `https`; or the id or the secret is empty.
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str,
        *,
        scopes: Sequence[str] = (),
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        parts = urlsplit(checked_url(issuer))
        if parts.query or parts.fragment or '@' in parts.netloc:
            raise ValueError('The issuer of ClientCredentials must be a URL without user, query and fragment.')
        if not client_id or not client_secret:
            raise ValueError('ClientCredentials needs a client_id and a client_secret.')
        self.issuer = issuer
        self._id, self._secret = client_id, client_secret
        scope = {'scope': ' '.join(scopes)} if scopes else {}
        self._form = {**(parameters or {}), **scope, 'grant_type': 'client_credentials'}
        self._token: _Token | None = None
        self._fetches: dict[asyncio.AbstractEventLoop, _Fetch] = {}

    def __repr__(self) -> str:
        """Return the issuer and the id, without the secret."""
        return f'ClientCredentials({self.issuer!r}, {self._id!r})'

    def check(self, card: AgentCard, place: str) -> None:
        """Check that an agent may take tokens of the issuer, before the agent gets a token.

        Args:
            card: The card of the agent.
            place: The place of the card, for errors.

        Raises:
            CardRefused: All schemes for tokens on the card have metadata of other origins than the issuer.
        """
        schemes = cast('Mapping[str, Mapping[str, Any]]', card.get('security_schemes', {}))
        urls = [url for scheme in schemes.values() for url in _metadata_of(scheme)]
        takes_others = any('http_auth_security_scheme' in scheme for scheme in schemes.values())
        if urls and not takes_others and origin(self.issuer) not in map(origin, urls):
            raise CardRefused(
                f'{place} asks for tokens of another issuer than {self.issuer}, with metadata at '
                f'{shown_url(urls[0])[:200]}. If you trust the issuer of the card, make ClientCredentials for that'
                ' issuer.'
            )

    async def token(self, refused: str | None = None) -> str:
        """Return a valid token.

        Args:
            refused: A token that an agent has refused. The client fetches another token. Default: none.

        Raises:
            TokenRefused: The issuer refuses a token.
            RemoteUnavailable: The issuer does not answer.
            RemoteProtocolError: The answer of the issuer is no metadata of the issuer, or no bearer token.
        """
        token = self._token
        if token is None or token.value == refused or token.until <= time.monotonic():
            token = await self._fetched()
        return token.value

    async def _fetched(self) -> _Token:
        """Return the next token. Calls at the same time in one event loop share one request, and its error."""
        loop = asyncio.get_running_loop()
        fetch = self._fetches.get(loop)
        if fetch is None or fetch.task.done():
            # In an empty context: the request does not belong to the trace of one call.
            fetch = self._fetches[loop] = _Fetch(loop.create_task(self._ask(), context=Context()))
        fetch.callers += 1
        try:
            return await asyncio.shield(fetch.task)
        finally:
            fetch.callers -= 1
            if not fetch.callers:  # nobody waits for the token any longer
                fetch.task.cancel()
                if self._fetches.get(loop) is fetch:
                    del self._fetches[loop]

    async def _ask(self) -> _Token:
        try:
            async with connected() as client:
                self._token = await self._fetch(client)
            return self._token
        except SocksMissing as error:
            raise RemoteUnavailable(f'The issuer {self.issuer} cannot be reached: {error}') from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            reason = f': {problem}' if (problem := tls_problem(error)) else f' ({type(error).__name__}).'
            raise RemoteUnavailable(f'The issuer {self.issuer} cannot be reached{reason}') from error
        except ValueError as error:
            raise RemoteProtocolError(f'The issuer {self.issuer} has sent no usable answer: {error}.') from None

    async def _fetch(self, client: httpx2.AsyncClient) -> _Token:
        metadata = await self._metadata(client)
        url = checked_url(str(metadata.get('token_endpoint')))
        now = time.monotonic()
        form, headers = self._signed(metadata.get('token_endpoint_auth_methods_supported'))
        status, body = await fetch(client, url, form=form, headers={'Accept': 'application/json', **headers})
        if status == 200:
            return _read(read_object(body), now)
        self._check_available(status)
        raise TokenRefused(
            f'The issuer {self.issuer} has refused a token to the client {self._id} with HTTP {status}{_code(body)}. '
            'Check the id, the secret, the scopes and the parameters of ClientCredentials.'
        )

    async def _metadata(self, client: httpx2.AsyncClient) -> dict[str, Any]:
        first, second = metadata_urls(self.issuer)
        status, body = await fetch(client, first)
        self._check_available(status)
        metadata = read_object(body) if status == 200 else await fetch_json(client, second)
        if metadata.get('issuer') != self.issuer:
            raise ValueError(f'its metadata names another issuer, {str(metadata.get("issuer"))[:200]!r}')
        return metadata

    def _check_available(self, status: int) -> None:
        if status == 429 or status >= 500:
            raise RemoteUnavailable(f'The issuer {self.issuer} has answered with HTTP {status}. Try again later.')

    def _signed(self, methods: object) -> tuple[dict[str, str], dict[str, str]]:
        """Return the form and the headers of a request for a token (RFC 6749 §2.3.1).

        Args:
            methods: The ways of authentication that the issuer supports. Default: HTTP Basic (RFC 8414 §2).
        """
        if isinstance(methods, list) and 'client_secret_basic' not in methods and 'client_secret_post' in methods:
            return {**self._form, 'client_id': self._id, 'client_secret': self._secret}, {}
        pair = f'{quote_plus(self._id)}:{quote_plus(self._secret)}'
        return self._form, {'Authorization': f'Basic {b64encode(pair.encode()).decode()}'}


def _read(answer: Mapping[str, Any], now: float) -> _Token:
    """Read the answer of a token endpoint (RFC 6749 §5.1).

    Args:
        answer: The answer.
        now: Time of the request.
    """
    value, kind = answer.get('access_token'), answer.get('token_type')
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise ValueError('the answer has no access token')
    if not isinstance(kind, str) or kind.lower() != 'bearer':
        raise ValueError('the access token is no bearer token')
    return _Token(value, now + _seconds(answer.get('expires_in')))


def _seconds(lifetime: Any) -> float:
    """Return the seconds for which a token is used. Without a lifetime, a token is used until an agent refuses it."""
    if lifetime is None:
        return float('inf')
    try:
        seconds = float(lifetime)
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if not isfinite(seconds) or seconds < 0:
        raise ValueError('the lifetime of the access token is no number of seconds')
    return seconds - min(_MARGIN, seconds / 10)


def _code(body: bytes) -> str:
    """Return the code of an error for the text of an exception; empty without a code."""
    try:
        code = read_object(body).get('error')
    except ValueError:
        return ''
    return f' ({code})' if isinstance(code, str) and _CODE.fullmatch(code) else ''


def _metadata_of(scheme: Mapping[str, Any]) -> list[str]:
    """Return the URLs of an issuer's metadata in a scheme of a card."""
    urls: list[Any] = [
        scheme.get('open_id_connect_security_scheme', {}).get('open_id_connect_url'),
        scheme.get('oauth2_security_scheme', {}).get('oauth2_metadata_url'),
    ]
    return [url for url in urls if url]
