"""The playground of an app at `docs_url`: whether the app has the page, and the addresses of the pages of a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain
from urllib.parse import quote

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Scope

from ..auth.tenants import Tenants
from ..http.app_urls import quoted
from ..runs.pause_hook import TaskLink
from .a2a_app import A2AApp
from .process_count import is_first_process

logger = logging.getLogger('pydantic_ai_a2a')
server_logger = logging.getLogger('uvicorn.error')  # beside the lines of uvicorn, which shows no other information


def check_docs_url(path: str | None) -> None:
    """Refuse a path that no request can have.

    Raises:
        ValueError: The path does not begin with a slash.
    """
    if path is not None and not path.startswith('/'):
        raise ValueError(f'docs_url takes a path that begins with a slash, such as /docs, not {path!r}.')


def playground_path(path: str | None, versions: Sequence[str], *, http_json: bool) -> str | None:
    """Return the path of the playground; None without a path, or if the app does not serve what the page calls."""
    if path is not None and ('1.0' not in versions or not http_json):
        logger.info('There is no playground at %s: the agent does not serve A2A 1.0 over HTTP+JSON.', path)
        return None
    return path


def playground_link(url: str | None, path: str | None, tenants: Tenants | None) -> TaskLink:
    """Return the function that makes the links of tasks.

    Args:
        url: URL of the app; None if only requests tell.
        path: Path of the playground; None without one.
        tenants: The tenants with a page of their own; None without tenants.
    """

    def link(task_id: str, tenant: str) -> str | None:
        if url is None or path is None:
            return None
        below = f'/{quote(tenant, safe="")}' if tenants is not None and tenants.may_be(tenant) else ''
        return f'{url.rstrip("/")}{below}{quoted(path)}?task={quote(task_id, safe="")}'

    return link


def playground_paths(app: ASGIApp) -> Iterator[str]:
    """Return the paths of the playgrounds of an app and of the mounted apps, as URLs have them."""
    return (quoted(path) for path, _ in _pages(app, set()))


def log_playgrounds(app: ASGIApp) -> None:
    """Log the paths of the playgrounds of an app whose lifespan begins: a lifespan is told no host and no port.

    The lifespan of a mounted app begins after that of its parent, which knows the whole path.
    """
    for path, agent in _pages(app, set()):
        if not agent.playground_logged and is_first_process():
            server_logger.info('The playground is at %s', quoted(path))
        agent.playground_logged = True


def _pages(app: object, seen: set[int]) -> Iterator[tuple[str, A2AApp]]:
    """Return the paths below an app with the apps that have them, without those that a route of the app answers."""
    if id(app) in seen:
        return
    seen.add(id(app))
    inner = (getattr(app, 'app', None), *_routes(app))
    below = chain.from_iterable(_pages(part, seen) for part in inner if part is not None)
    own = [(app.docs_url, app)] if isinstance(app, A2AApp) and app.docs_url is not None else []
    prefix = app.path if isinstance(app, Mount) else ''
    yield from ((prefix + path, agent) for path, agent in chain(own, below) if not _taken(app, path))


def _taken(app: object, path: str) -> bool:
    """Return whether a route of the app itself answers at a path, such as FastAPI's own page."""
    scope: Scope = {'type': 'http', 'method': 'GET', 'path': path, 'headers': ()}
    return any(not isinstance(route, Mount) and route.matches(scope)[0] is Match.FULL for route in _routes(app))


def _routes(app: object) -> Sequence[BaseRoute]:
    return getattr(app, 'routes', None) or ()
