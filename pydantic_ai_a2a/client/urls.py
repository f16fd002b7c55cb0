"""URLs of remote agents and of their issuers: origins, and the form for errors."""

from __future__ import annotations

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


def shown(url: str) -> str:
    """Return a URL for an error: without user, password, query and fragment, which may hold credentials."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return 'The target'
    return str(parsed.copy_with(userinfo=b'', query=None, fragment=None))
