"""The values of an ASGI request for admission and for the choice of the version, without credentials in its query."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Scope

from ..auth.guard import Guard
from ..auth.request_info import RequestInfo, header
from .app_urls import base_url

_QUERY = 'pydantic_ai_a2a.query'
"""Key of the scope under which the query is kept as the client sent it."""


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


class _AsSent:
    """A query with credentials. Its text does not show in a log of the scope."""

    def __init__(self, query: bytes) -> None:
        self.query = query


def requested_version(scope: Scope) -> str | None:
    """Return the protocol version that a request names, in a header or in the query (§3.6.1); None without a version.

    Several values are joined by commas.
    """
    version = header(scope['headers'], b'a2a-version')
    if version is None and (query := scope['query_string']):
        named = parse_qs(query.decode('latin-1')).get('A2A-Version')
        return ','.join(named) if named else None
    return version
