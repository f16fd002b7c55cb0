"""Requests to an issuer of tokens: over https, with bounded answers, and without redirects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from pydantic_core import from_json

from .environment_proxies import http_client
from .public_hosts import is_loopback

_MAX_BYTES = 256 * 1024
TIME = 10.0
"""Maximum seconds of all requests of one connection."""
SILENCE = 5.0
"""Maximum seconds without a byte of the answer."""


def openid_url(issuer: str) -> str:
    """Return the URL of the issuer's metadata by OpenID Connect Discovery (§4)."""
    return f'{issuer.rstrip("/")}/.well-known/openid-configuration'


def metadata_urls(issuer: str) -> tuple[str, str]:
    """Return the URLs of the issuer's metadata: by OpenID Connect, and by OAuth 2 (RFC 8414 §3)."""
    parts = urlsplit(issuer)
    path = f'/.well-known/oauth-authorization-server{parts.path.rstrip("/")}'
    return openid_url(issuer), parts._replace(path=path).geturl()


def checked_url(url: str) -> str:
    """Return a URL whose answers cannot be forged on the way.

    Raises:
        ValueError: The URL is neither `https` nor of this machine.
    """
    parts = urlsplit(url)
    host = parts.hostname or ''
    if parts.scheme == 'https' and host:
        return url
    if parts.scheme == 'http' and is_loopback(host):
        return url
    raise ValueError(f'{url!r} is not an https URL: the answers of an issuer must come over https.')


@asynccontextmanager
async def connected() -> AsyncGenerator[httpx2.AsyncClient]:
    """Open a connection for a few requests, which must end within the time limit.

    Raises:
        TimeoutError: The requests have taken too long.
    """
    async with asyncio.timeout(TIME), http_client(timeout=SILENCE, follow_redirects=False) as client:
        yield client


async def fetch(
    client: httpx2.AsyncClient, url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] = {}
) -> tuple[int, bytes]:
    """Return the status and the body of an answer. With a form, the request is a POST.

    Raises:
        ValueError: The answer is too long.
        httpx2.HTTPError: The server does not answer.
    """
    verb = 'GET' if form is None else 'POST'
    headers = {'Accept-Encoding': 'identity', **headers}
    async with client.stream(verb, url, data=form, headers=headers) as response:
        body = b''
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise ValueError(f'more than {_MAX_BYTES} bytes')
        return response.status_code, body


async def fetch_json(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    """Return the JSON object at a URL.

    Raises:
        ValueError: The answer is no JSON object, is too long, or has another status than 200.
        httpx2.HTTPError: The server does not answer.
    """
    status, body = await fetch(client, url)
    if status != 200:
        raise ValueError(f'HTTP {status}')
    return read_object(body)


def read_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: The body is no JSON object.
    """
    document = from_json(body)
    if not isinstance(document, dict):
        raise ValueError('the document is not a JSON object')
    return cast('dict[str, Any]', document)
