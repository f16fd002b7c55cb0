"""Finds the apps of `to_a2a` that a server is about to serve, and checks who can call the apps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp

from ..auth.callers import is_loopback
from ..http.browser import AllowedHosts
from .app import A2AApp
from .build import to_a2a

__all__ = ('app_of', 'check_callers', 'served')


def app_of(app: ASGIApp | AbstractAgent[Any, Any]) -> ASGIApp:
    """Return the app of an agent; an app stays as it is."""
    return to_a2a(cast('AbstractAgent[Any, Any]', app)) if isinstance(app, AbstractAgent) else app


def served(app: ASGIApp) -> Iterator[A2AApp]:
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


def check_callers(
    app: ASGIApp,
    host: str,
    hosts: AllowedHosts | None,
    anonymous: bool,
    *,
    name: str = 'The app',
    say: str = 'anonymous=True',
) -> None:
    """Refuse to serve an app without authentication at a public address, unless the user asks for anonymous callers.

    Args:
        app: The app.
        host: The host to listen on.
        hosts: More names that the app answers for, such as the names of a proxy on this machine.
        anonymous: True if the user asks for anonymous callers.
        name: The name of the app in an error.
        say: The option for anonymous callers, in an error.

    Raises:
        ValueError: Everybody could call the app, and the user has not asked for anonymous callers.
    """
    apps = list(served(app))
    for agent in apps:
        agent.guard.expected |= anonymous
    open_to_all = [agent for agent in apps if agent.guard.anonymous]
    allowed = (hosts, *(agent.allowed_hosts for agent in open_to_all))
    names = [host, *(hostname for group in allowed if group is not None for hostname in group.names)]
    public = next((hostname for hostname in names if not is_loopback(hostname)), None)
    if anonymous or public is None:
        return
    if open_to_all:
        raise ValueError(
            f'{name} does not authenticate callers, and other machines can reach {public}: give to_a2a() an auth=,'
            f' or say {say}.'
        )
    if not apps:
        raise ValueError(
            f'{name} has no app of to_a2a() that can be found, so nothing shows whether {public} authenticates callers:'
            f' set the attribute app of each middleware to the app that the middleware wraps. To let everybody call,'
            f' say {say}.'
        )
