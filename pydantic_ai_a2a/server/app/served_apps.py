"""The apps of `to_a2a` that a server is about to serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp

from .a2a_app import A2AApp
from .to_a2a import to_a2a


def app_of(app: ASGIApp | AbstractAgent[Any, Any]) -> ASGIApp:
    """Return the app of an agent; an app stays as it is."""
    return to_a2a(cast('AbstractAgent[Any, Any]', app)) if isinstance(app, AbstractAgent) else app


def served_apps(app: ASGIApp) -> Iterator[A2AApp]:
    """Return the apps of `to_a2a` in an app, which end their streams at a shutdown: uvicorn waits for the streams.

    The apps are mounted or wrapped. Middleware and Starlette's routes keep the wrapped app as `app`.
    """
    return _served(app, set())


def _served(app: object, seen: set[int]) -> Iterator[A2AApp]:
    if id(app) in seen:
        return
    seen.add(id(app))
    if isinstance(app, A2AApp):
        yield app
    for inner in (getattr(app, 'app', None), *(getattr(app, 'routes', None) or ())):
        if inner is not None:
            yield from _served(inner, seen)
