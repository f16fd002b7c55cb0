"""Pages of other origins in browsers: the origins that may call the agent and read its answers."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

_ORIGIN = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#*]+')

_EXPOSED = ('A2A-Extensions', 'ETag', 'Retry-After', 'WWW-Authenticate', 'X-A2A-Extensions', 'X-Correlation-Id')


def cors_middleware(origins: Collection[str]) -> list[Middleware]:
    """Return the middleware that lets pages of some origins call the agent and read its answers.

    Args:
        origins: Origins such as `https://app.example.com`; `*` stands for every page.

    Raises:
        ValueError: A value is not an origin.
    """
    if bad := [origin for origin in origins if origin != '*' and not _ORIGIN.fullmatch(origin)]:
        raise ValueError(f'cors= takes origins such as https://app.example.com, not {bad[0]!r}.')
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=tuple(origins),
            allow_methods=('GET', 'POST', 'DELETE'),
            # Allowed pages may send headers for the version, extensions, credentials and the last event id.
            allow_headers=('*',),
            expose_headers=_EXPOSED,
        )
    ]
