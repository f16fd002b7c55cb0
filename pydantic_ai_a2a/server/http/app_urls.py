"""The URL of an app as clients reach it, and paths as URLs have them."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from starlette.requests import Request
from starlette.types import Scope

URLS = 32
"""Cached answers and base URLs: one for each URL of the server and each tenant."""


def check_reachable_url(url: str) -> None:
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


@lru_cache(maxsize=URLS)
def _base_url(scheme: str, host: bytes | None, server: tuple[str, int | None] | tuple[()], root_path: str) -> str:
    headers = [] if host is None else [(b'host', host)]
    scope = {'type': 'http', 'scheme': scheme, 'headers': headers, 'server': server or None, 'path': '/'}
    return str(Request({**scope, 'app_root_path': quoted(root_path)}).base_url)


def quoted(path: str) -> str:
    """Return a decoded path as URLs have it (RFC 3986 §3.3)."""
    return quote(path, safe="/:@!$&'()*+,;=")
