"""The agent card over HTTP (§8.6): URL, caching headers, HEAD and 304."""

from __future__ import annotations

from functools import lru_cache

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ..card import CardTemplate
from .cached import CachedAnswer, cached_answer, send_cached

__all__ = ('CARD_PATH', 'OLDER_CARD_PATH', 'Discovery', 'base_url')

CARD_PATH = '/.well-known/agent-card.json'
OLDER_CARD_PATH = '/.well-known/agent.json'
"""The card's path in versions before 0.3, whose clients do not follow redirects."""
_MAX_AGE = 3600
_PUBLIC = (('Cache-Control', f'public, max-age={_MAX_AGE}'), ('Vary', 'Host'))
_URLS = 32
"""Cached answers and base URLs: one for each URL of the server and each tenant."""


class Discovery:
    """The card's endpoint, as an ASGI app; public, and served without a provider's key.

    Args:
        card: The card without its URL.
        url: The agent's URL; None takes the request's base URL, with the paths that the app is mounted under.
    """

    def __init__(self, card: CardTemplate, url: str | None) -> None:
        self._card = card
        self._url = url
        if url is not None:
            _check_url(url)
        self._answer = lru_cache(maxsize=_URLS)(self._make_answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD; below a tenant's path, with the card of the tenant."""
        tenant = scope['path_params'].get('tenant', '')
        await send_cached(scope, send, self._answer(self._url or base_url(scope), tenant))

    def _make_answer(self, url: str, tenant: str) -> CachedAnswer:
        return cached_answer(self._card.render(url, tenant), _PUBLIC)


def _check_url(url: str) -> None:
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
    return str(Request({**scope, 'app_root_path': root_path}).base_url)
