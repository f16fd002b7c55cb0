"""URLs of remote agents and of their issuers: origins, and the form for errors."""

from __future__ import annotations

import re
from collections.abc import Collection

import httpx2

_PORTS = {'http': 80, 'https': 443, 'grpc': 80, 'grpcs': 443}


def origin(url: str) -> str:
    """Return scheme, host and port of a URL; empty for text that is no URL of HTTP or gRPC."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return ''
    if parsed.scheme not in _PORTS or not parsed.host:
        return ''
    host = f'[{parsed.host}]' if ':' in parsed.host else parsed.host
    return f'{parsed.scheme}://{host}:{parsed.port or _PORTS[parsed.scheme]}'


def check_agent_url(url: str, schemes: Collection[str] = ('http', 'https')) -> None:
    """Check a URL before the first request.

    Raises:
        ValueError: The URL has another scheme, or no host.
    """
    if origin(url).partition(':')[0] in schemes:
        return
    # Text that is no URL may hold credentials anywhere.
    is_secret = re.search('[@?#]', url) is not None
    meant = f'http://{url}'
    remedy = 'It has to begin with http:// or https://, and name a host.'
    if not is_secret and '://' not in url and origin(meant):
        remedy = f'Write {meant[:200]}.'
    raise ValueError(f'{"The target" if is_secret else repr(url[:200])} is not a URL of HTTP. {remedy}')


def shown_url(url: str) -> str:
    """Return a URL for an error: without user, password, query and fragment, which may hold credentials."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return 'The target'
    return str(parsed.copy_with(userinfo=b'', query=None, fragment=None))
