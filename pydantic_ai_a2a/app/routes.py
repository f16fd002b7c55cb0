"""The routes of an app in the order in which they are tried, and the tenants' names that the paths exclude."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, ExceptionHandler, Scope

from ..auth.tenants import Tenants, is_name
from ..http import http_json
from ..http.card import CARD_PATH, OLDER_CARD_PATH, Discovery
from ..http.exchange import Serving
from ..http.health import LIVE_PATH, READY_PATH, Live, Ready
from ..http.index import Index
from ..http.jsonrpc import JsonRpc
from ..http.paths import AnyPath
from ..settings import TenantRule

__all__ = ('app_routes', 'fallback', 'tenants_of')

logger = logging.getLogger('pydantic_ai_a2a')


def app_routes(
    serving: Serving, card: Discovery, ready: Ready, index: Index, own: Sequence[BaseRoute]
) -> list[BaseRoute]:
    """Return the routes of an app: ours, then the user's own, then ours with wide patterns.

    Args:
        serving: The parts of the app.
        card: Serves the card.
        ready: Serves the readiness of the app.
        index: Names the card in refusals.
        own: The user's routes.
    """
    taken, tenants = http_json.first_taken(own), serving.dispatcher.tenants
    if taken is not None:
        logger.warning('The HTTP+JSON binding is not served: routes= has its path %s.', taken)
    return [
        _Exact('/', JsonRpc(serving), ['POST'], other_methods=Match.NONE),
        _Exact(CARD_PATH, card, ['GET', 'HEAD']),
        _Exact(LIVE_PATH, Live(), ['GET', 'HEAD']),
        _Exact(READY_PATH, ready, ['GET', 'HEAD']),
        *([] if taken else http_json.routes(serving)),
        *own,
        *([] if tenants is None else _tenant_routes(serving, tenants, card, index, http=taken is None)),
        *([] if taken else http_json.last_routes(serving.versions, index.card_url)),
    ]


def fallback(
    serving: Serving,
    card: Discovery,
    index: Index,
    own: Sequence[BaseRoute],
    handlers: Mapping[Any, ExceptionHandler] | None,
) -> Router:
    """Return the router of requests that no route of the app takes, and no route that the user adds later.

    Without tenants, the name of a tenant in a path has no effect. Clients of HTTP+JSON write the tenant into the path,
    and clients of JSON-RPC write the tenant into the params.

    Args:
        serving: The parts of the app.
        card: Serves the card, here at its older path.
        index: Answers at the agent's own URL and at unknown paths.
        own: The user's routes.
        handlers: The user's exception handlers; one for HTTP 404 answers at unknown paths instead of `index`.
    """
    reserved = _reserved(own)

    def takes(params: Mapping[str, str]) -> bool:
        return is_name(params['tenant'], reserved)

    below_any = serving.dispatcher.tenants is None and http_json.first_taken(own) is None
    routes = http_json.routes(serving, below='/{tenant}', takes=takes) if below_any else []
    routes.append(Route(OLDER_CARD_PATH, card, methods=['GET', 'HEAD']))
    handled = {404, HTTPException} & (handlers or {}).keys()
    return Router(routes, redirect_slashes=False, default=None if handled else index)


class _Exact(Route):
    """A route without params in its path. Its match needs fewer calls than a match of Starlette's `Route`.

    Args:
        path: The path.
        endpoint: An ASGI app.
        methods: The methods of the endpoint.
        other_methods: The match of other methods: `Match.PARTIAL` refuses the methods, if no further route takes them;
            `Match.NONE` leaves the methods to further routes.
    """

    def __init__(
        self, path: str, endpoint: ASGIApp, methods: Sequence[str], *, other_methods: Match = Match.PARTIAL
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._taken = frozenset(methods)
        self._other_methods = other_methods

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request has the path and a method of the route."""
        if scope['type'] != 'http':
            return Match.NONE, {}
        path = scope['path']
        if path != self.path and path != scope.get('root_path', '') + self.path:
            return Match.NONE, {}
        params = {**scope['path_params']} if 'path_params' in scope else {}
        match = Match.FULL if scope['method'] in self._taken else self._other_methods
        return match, {'endpoint': self.endpoint, 'path_params': params}


def tenants_of(rule: TenantRule | None, own: Sequence[BaseRoute], docs_url: str | None) -> Tenants | None:
    """Return the tenants that requests may name; None without tenants. No tenant has the name of a path of the app."""
    if rule is None or rule is False:
        return None
    return Tenants(rule, {*_reserved(own), (docs_url or '').removeprefix('/').split('/')[0]})


def _reserved(own: Sequence[BaseRoute]) -> set[str]:
    """Return the first segments of the app's paths, which no tenant may have as a name."""
    paths = [CARD_PATH, LIVE_PATH, READY_PATH, *(str(getattr(route, 'path', '')) for route in own)]
    return {*http_json.FIRST_SEGMENTS, *(path.removeprefix('/').split('/')[0] for path in paths)}


def _tenant_routes(serving: Serving, tenants: Tenants, card: Discovery, index: Index, *, http: bool) -> list[BaseRoute]:
    """Return the routes of the bindings and the card below the path of a tenant."""

    def takes(params: Mapping[str, str]) -> bool:
        return tenants.may_be(params['tenant'])

    return [
        AnyPath('/{tenant}', JsonRpc(serving), methods=['POST'], takes=takes),
        *(http_json.routes(serving, below='/{tenant}', takes=takes) if http else ()),
        AnyPath(f'/{{tenant}}{CARD_PATH}', card, methods=['GET', 'HEAD'], takes=takes),
        AnyPath(f'/{{tenant}}{OLDER_CARD_PATH}', card, methods=['GET', 'HEAD'], takes=takes),
        *(http_json.last_routes(serving.versions, index.card_url, below='/{tenant}', takes=takes) if http else ()),
    ]
