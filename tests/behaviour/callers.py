"""Callers that name themselves in headers."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp

from pydantic_ai_a2a import Caller

from ..app_client import Client


def caller_from_header(request: Request) -> Caller | None:
    """Authenticate the caller of a client of `caller`."""
    name, scopes = request.headers.get('x-caller'), request.headers.get('x-scopes', '').split()
    return Caller(id=name, tenant=request.headers.get('x-tenant', ''), scopes=frozenset(scopes)) if name else None


def authenticate_as(caller: Caller) -> Callable[[Request], Caller]:
    """Authenticate all requests as the caller."""
    return lambda _: caller


def client_of_caller(app: ASGIApp, name: str, *, tenant: str = '', scopes: str = '') -> Client:
    """A client of a caller."""
    return Client(app, headers={'X-Caller': name, 'X-Tenant': tenant, 'X-Scopes': scopes})
