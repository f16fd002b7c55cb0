"""Several agents in one app: each under a path of its own, with one list of all agents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from starlette.applications import Starlette
from starlette.routing import Route

from ...arguments import checked
from ..http.catalogue import CATALOGUE_PATH, Agents
from ..http.health import LIVE_PATH, READY_PATH, Live
from ..http.joined_health import ReadyTogether
from .a2a_app import A2AApp
from .mount import mount

_READ = ['GET', 'HEAD']


@checked
def catalogue(apps: Sequence[A2AApp] | Mapping[str, A2AApp], *, docs_url: str | None = '/docs') -> Starlette:
    """Serve several agents in one app, with one list of all agents.

    ```python
    from pydantic_ai import Agent
    from pydantic_ai_a2a import catalogue, to_a2a

    app = catalogue(
        [
            to_a2a(Agent('test', name='translator')),
            to_a2a(Agent('test', name='summarizer')),
        ]
    )
    ```

    `/.well-known/api-catalog` lists the agents for clients (RFC 9727), and `/` and `docs_url` list the agents for
    people. `/health/ready` is ready only if all agents are. Each agent authenticates its own callers.

    Args:
        apps: The apps of `to_a2a`. Each app is mounted at a path that is made of its agent's name, such as
            `/translator`; or the apps by path.
        docs_url: Path of the list for people, besides `/`. None: only `/`. Default `/docs`.

    Returns:
        A Starlette app for `run`, `serve` or uvicorn, or for `mount` in a larger app.

    Raises:
        ValueError: There is no app, or a path cannot be used, or two apps have the same path.
    """
    by_path = dict(apps) if isinstance(apps, Mapping) else _by_name(apps)
    own = [path for path in (docs_url, CATALOGUE_PATH, LIVE_PATH, READY_PATH) if path is not None]
    for path in by_path:
        _check(path, own)
    if docs_url is not None and not re.fullmatch('/.+', docs_url):
        raise ValueError(f'docs_url takes a path that begins with a slash, such as /docs, not {docs_url!r}.')
    if not by_path:
        raise ValueError('catalogue() needs at least one app.')
    agents = Agents(by_path, {path: app.docs_url for path, app in by_path.items() if app.docs_url is not None})
    parent = Starlette(
        routes=[
            Route(CATALOGUE_PATH, agents.linkset, methods=_READ),
            Route(LIVE_PATH, Live(), methods=_READ),
            Route(READY_PATH, ReadyTogether(agents), methods=_READ),
            *(Route(path, agents.page, methods=_READ) for path in ('/', docs_url) if path is not None),
        ]
    )
    for path in sorted(by_path, key=len, reverse=True):  # the longest first: /team/joker is not below /team
        mount(parent, path, by_path[path])
    return parent


def _by_name(apps: Sequence[A2AApp]) -> dict[str, A2AApp]:
    by_path: dict[str, A2AApp] = {}
    for app in apps:
        slug = re.sub(r'[\W_]+', '-', (app.name or 'agent').lower()).strip('-') or 'agent'
        if f'/{slug}' in by_path:
            raise ValueError(
                f'catalogue(): two agents have the path /{slug}. Give the agents different names, or pass the apps by '
                'path.'
            )
        by_path[f'/{slug}'] = app
    return by_path


def _check(path: str, own: Sequence[str]) -> None:
    if not re.fullmatch(r'(/[^/{}?#\s]+)+', path):
        raise ValueError(f'catalogue() takes paths such as /translator, not {path!r}.')
    if any(path == taken or taken.startswith(f'{path}/') for taken in own):
        raise ValueError(f'catalogue(): the path {path} is used by the list or the health of all agents.')
