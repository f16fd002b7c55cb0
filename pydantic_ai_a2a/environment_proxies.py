"""The proxies that environment variables such as `HTTPS_PROXY` name, in the errors of requests."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2


class SocksMissing(httpx2.ProxyError):
    """An environment variable names a SOCKS proxy, and the package for it is not installed; see the text."""


def http_client(**options: Any) -> httpx2.AsyncClient:
    """Return an HTTP client with the proxies of the environment.

    Raises:
        SocksMissing: httpx2 cannot use such a proxy, whatever the host.
    """
    try:
        return httpx2.AsyncClient(**options)
    except ImportError as error:
        variable = next((_variable(kind) for kind, proxy in getproxies().items() if proxy.startswith('socks')), '')
        text = f'{variable} names a SOCKS proxy, which needs the package socksio: `pip install "httpx2[socks]"`.'
        raise SocksMissing(text) from error


def proxy_of(url: str) -> str:
    """Return the proxy of a URL and its variable in words, without a password; empty without a proxy."""
    parts, proxies = urlsplit(url), getproxies()
    kind = next((kind for kind in (parts.scheme, 'all') if kind in proxies), None)
    if kind is None or proxy_bypass(parts.netloc.rpartition('@')[2]):
        return ''
    proxy = urlsplit(proxies[kind])
    return f'the proxy {proxy.scheme}://{proxy.netloc.rpartition("@")[2]} of {_variable(kind)}'


def _variable(kind: str) -> str:
    name = f'{kind}_proxy'
    return name if os.environ.get(name) else name.upper()
