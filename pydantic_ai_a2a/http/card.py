"""The agent card and the public keys over HTTP (§8.6): URL, caching headers, HEAD and 304."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ..auth.guard import Guard
from ..auth.request_info import RequestInfo
from ..card import CardTemplate
from ..protocol.versions import Versions
from .request_bodies import CachedAnswer, requested_version

CARD_PATH = '/.well-known/agent-card.json'
OLDER_CARD_PATH = '/.well-known/agent.json'
"""The card's path in versions before 0.3, whose clients do not follow redirects."""
KEYS_PATH = '/.well-known/jwks.json'
"""Path of the public keys."""
_MAX_AGE = 3600
_CACHED = ('Cache-Control', f'public, max-age={_MAX_AGE}')
_PUBLIC = (_CACHED, ('Vary', 'Host'))
_PUBLIC_BY_VERSION = (_CACHED, ('Vary', 'Host, A2A-Version'))
_OLDER = '0.3'
_URLS = 32
"""Cached answers and base URLs: one for each URL of the server and each tenant."""


class Discovery:
    """The card's endpoint, as an ASGI app; public, and served without a provider's key.

    Args:
        card: The card without its URL.
        url: The agent's URL; None takes the request's base URL, with the paths that the app is mounted under.
        versions: The served protocol versions.
    """

    def __init__(self, card: CardTemplate, url: str | None, versions: Versions) -> None:
        self._card = card
        self._versions = versions
        self._url = url
        if url is not None:
            check_url(url)
            card.render(url)  # a card that cannot be signed is refused now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD; below a tenant's path, with the card of the tenant."""
        tenant = scope['path_params'].get('tenant', '')
        version = self._version(scope) if self._card.by_version else ''
        card = self._card.render(self._url or base_url(scope), tenant, version)
        await _answer(card, by_version=bool(version))(scope, receive, send)

    def _version(self, scope: Scope) -> str:
        """Return the version of the client. Clients of 0.3 name no version, but know the older path."""
        if scope['path'].endswith(OLDER_CARD_PATH):
            return _OLDER
        return self._versions.before_reading(requested_version(scope)).codec.dialect


@lru_cache(maxsize=_URLS)
def _answer(card: bytes, *, by_version: bool) -> CachedAnswer:
    return CachedAnswer(card, _PUBLIC_BY_VERSION if by_version else _PUBLIC)


def key_set(keys: Sequence[Mapping[str, Any]]) -> CachedAnswer:
    """Return the endpoint of the public keys: a JSON Web Key Set (RFC 7517)."""
    return CachedAnswer(to_json({'keys': keys}), [_CACHED], media_type=b'application/jwk-set+json')


def check_url(url: str) -> None:
    """Refuse a URL that no client could call."""
    scheme, separator, rest = url.partition('://')
    if not separator:
        raise ValueError(
            f'url takes an absolute URL, not {url!r}: its scheme is missing. Write https://{url.lstrip("/")}.'
        )
    if scheme.lower() not in ('http', 'https') or not rest.partition('/')[0]:
        raise ValueError(f'url takes an https or http URL with a host, such as https://example.com/, not {url!r}.')


def base_url(scope: Scope) -> str:
    """Return the URL of the app itself. `Request.base_url` is the URL of the outermost app around the app."""
    host: bytes | None = None
    for name, value in scope['headers']:
        if name == b'host':
            host = value
            break
    return _base_url(scope.get('scheme', 'http'), host, tuple(scope.get('server') or ()), scope.get('root_path', ''))


@lru_cache(maxsize=_URLS)
def _base_url(scheme: str, host: bytes | None, server: tuple[str, int | None] | tuple[()], root_path: str) -> str:
    headers = [] if host is None else [(b'host', host)]
    scope = {'type': 'http', 'scheme': scheme, 'headers': headers, 'server': server or None, 'path': '/'}
    return str(Request({**scope, 'app_root_path': quoted(root_path)}).base_url)


def quoted(path: str) -> str:
    """Return a decoded path as URLs have it (RFC 3986 §3.3)."""
    return quote(path, safe="/:@!$&'()*+,;=")


# --- the values of an HTTP request that admission reads, and the redaction of credentials in its query ----------------

_QUERY = 'pydantic_ai_a2a.query'
"""Key of the scope under which the query is kept as the client sent it."""


class _AsSent:
    """A query with credentials. Its text does not show in a log of the scope."""

    def __init__(self, query: bytes) -> None:
        self.query = query


def redact(scope: Scope, guard: Guard) -> None:
    """Take credentials out of a request's query. `request_info` still finds the query that the client sent."""
    query = scope.get('query_string')
    if query and (redacted := guard.redact(query)) != query:
        scope[_QUERY] = _AsSent(query)
        scope['query_string'] = redacted


def request_info(scope: Scope, correlation_id: str, **more: Any) -> RequestInfo:
    """Return the values of a request for admission."""
    if _QUERY in scope:
        scope = {**scope, 'query_string': scope[_QUERY].query}
    client = scope['client'] if 'client' in scope else None  # noqa: SIM401 - each call of a method counts
    return RequestInfo(
        correlation_id=correlation_id,
        headers=scope['headers'],
        query=scope['query_string'],
        address=client[0] if client else None,
        scope=scope,
        base_url=partial(base_url, scope),
        **more,
    )
