"""An app in a larger app: mounts an A2A app in a larger Starlette or FastAPI app."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import dropwhile
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Receive, Scope, Send

from ...arguments import checked
from .playground import log_playgrounds

logger = logging.getLogger('pydantic_ai_a2a')


@checked
def mount(parent: Starlette, path: str, app: Starlette | AbstractAgent[Any, Any]) -> None:
    """Mount an app or an agent under a path, and run its lifespan with the parent's.

    The path without its final slash is answered too. A mount answers all paths below it, so routes and mounts that the
    parent gets later for such a path are never reached: the log names them at the start.

    A plain `parent.mount(path, app)` works as well: the app then starts with its first request, and the parent answers
    the bare path with a redirect, which not every client follows.

    Args:
        parent: A Starlette or FastAPI app that has not started yet.
        path: Begins with a slash, such as `/agent`; `/` for the parent's own URL.
        app: The app that `to_a2a` returned, or an agent for the defaults of `to_a2a`.

    Raises:
        TypeError: An argument has another type.
        ValueError: The path does not begin with a slash, or an earlier mount of the parent answers it.
    """
    if not path.startswith('/'):
        raise ValueError(f'mount(): path takes a path that begins with a slash, such as /agent, not {path!r}.')
    served: Starlette = cast('Any', app).to_a2a() if isinstance(app, AbstractAgent) else app
    mounted = Mount(path, served)
    earlier = [route.path or '/' for route in parent.routes if isinstance(route, Mount) and _hides(route, mounted)]
    if earlier:
        raise ValueError(
            f'mount(): no request would reach an app at {path}, because the app that is mounted at {earlier[0]} answers'
            ' there. Choose another path, or mount the longer path first.'
        )
    if mounted.path:
        parent.router.routes.append(Route(mounted.path, _Bare(mounted), include_in_schema=False))
    parent.router.routes.append(mounted)
    before = parent.router.lifespan_context

    @asynccontextmanager
    async def lifespan(scope_app: Any) -> AsyncGenerator[Any]:
        later = [*dropwhile(lambda route: route is not mounted, parent.routes)][1:]
        if hidden := [str(getattr(route, 'path', '')) or '/' for route in later if _hides(mounted, route)]:
            logger.warning(
                'No request reaches %s, because the app that is mounted at %s answers there: call mount() after adding'
                ' the other routes.',
                ', '.join(hidden),
                mounted.path or '/',
            )
        log_playgrounds(scope_app)
        async with before(scope_app) as state, served.router.lifespan_context(served):
            yield state

    parent.router.lifespan_context = lifespan


def _hides(earlier: Mount, route: BaseRoute) -> bool:
    """Return whether an earlier mount answers all requests for a route."""
    path: str | None = getattr(route, 'path', None)  # a `Host` has none
    scope: Scope = {'type': 'http', 'path': f'{path}/', 'headers': ()}
    return path is not None and earlier.matches(scope)[0] is Match.FULL


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
