"""Mounts an A2A app in a larger Starlette or FastAPI app."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from ..arguments import checked

__all__ = ('mount',)


@checked
def mount(parent: Starlette, path: str, app: Starlette) -> None:
    """Mount an app under a path, run its lifespan with the parent's, and answer the path without its final slash too.

    A plain `parent.mount(path, app)` works as well: the app then starts with its first request, and the parent answers
    the bare path with a redirect, which not every client follows.

    Args:
        parent: A Starlette or FastAPI app that has not started yet.
        path: Begins with a slash, such as `/agent`.
        app: The app that `to_a2a` returned.

    Raises:
        TypeError: An argument has another type.
        ValueError: The path does not begin with a slash.
    """
    if not path.startswith('/'):
        raise ValueError(f'mount(): path takes a path that begins with a slash, such as /agent, not {path!r}.')
    mounted = Mount(path, app)
    parent.router.routes.append(Route(mounted.path, _Bare(mounted), include_in_schema=False))
    parent.router.routes.append(mounted)
    before = parent.router.lifespan_context

    @asynccontextmanager
    async def lifespan(scope_app: Any) -> AsyncGenerator[Any]:
        async with before(scope_app) as state, app.router.lifespan_context(app):
            yield state

    parent.router.lifespan_context = lifespan


class _Bare:
    """Answers a mount's path as if the final slash had been there."""

    def __init__(self, mounted: Mount) -> None:
        self._mounted = mounted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the mounted app."""
        scope['path'] += '/'  # not in a copy: the server's access log reads the scope that the app redacts
        _, child = self._mounted.matches(scope)
        scope.update(child)
        await self._mounted.handle(scope, receive, send)
