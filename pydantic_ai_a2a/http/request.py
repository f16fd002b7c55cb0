"""The values of an HTTP request that admission reads, and the redaction of credentials in its query."""

from __future__ import annotations

from functools import partial

from starlette.types import Scope

from ..auth.callers import RequestInfo
from ..auth.guard import Guard
from .card import base_url

__all__ = ('redact', 'request_info')

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


def request_info(scope: Scope, correlation_id: str) -> RequestInfo:
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
    )
