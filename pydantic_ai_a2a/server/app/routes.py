"""The routes of an app, in the order in which they are tried.

No tenant may have a name that a path of the app begins with.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ExceptionHandler, Scope

from ...settings.access import TenantRule
from ..auth.tenants import Tenants, is_name
from ..http import http_json
from ..http.cached_answers import CachedAnswer
from ..http.card_and_keys import CARD_PATH, KEYS_PATH, OLDER_CARD_PATH, Discovery
from ..http.encoded_paths import AnyPath
from ..http.health import LIVE_PATH, READY_PATH, Live, Ready
from ..http.index import Index
from ..http.jsonrpc import JsonRpc
from ..http.playground.page import Playground
from ..service.request_flow import Serving

logger = logging.getLogger('pydantic_ai_a2a')


def exact_routes(serving: Serving, card: Discovery, ready: Ready, keys: CachedAnswer | None) -> list[Route]:
    """Return the routes whose paths have no params.

    Args:
        serving: The parts of the app.
        card: Serves the card.
        ready: Serves the readiness of the app.
        keys: Serves the public keys of signatures; None without signatures.
    """
    return [
        _PostOnly('/', JsonRpc(serving), methods=['POST']),
        Route(CARD_PATH, card, methods=['GET', 'HEAD']),
        Route(LIVE_PATH, Live(), methods=['GET', 'HEAD']),
        Route(READY_PATH, ready, methods=['GET', 'HEAD']),
        *([] if keys is None else [Route(KEYS_PATH, keys, methods=['GET', 'HEAD'])]),
    ]


def app_routes(
    serving: Serving, exact: Sequence[Route], card: Discovery, index: Index, own: Sequence[BaseRoute]
) -> list[BaseRoute]:
    """Return the routes of an app: ours, then the user's own, then ours with wide patterns.

    Args:
        serving: The parts of the app.
        exact: See `exact_routes`.
        card: Serves the card.
        index: Names the card in refusals.
        own: The user's routes.
    """
    taken, tenants = http_json.first_taken(own), serving.dispatcher.tenants
    if taken is not None:
        logger.warning(
            'The HTTP+JSON binding is not served: routes= already uses its path %s. Change the path of this route.',
            taken,
        )
    return [
        *([] if taken else http_json.routes(serving)),
        *exact,
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
    *,
    page: Playground | None,
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
        page: The playground, if any.
    """
    reserved = _reserved(own)

    def takes(params: Mapping[str, str]) -> bool:
        return is_name(params['tenant'], reserved)

    below_any = serving.dispatcher.tenants is None and http_json.first_taken(own) is None
    routes = http_json.routes(serving, below='/{tenant}', takes=takes) if below_any else []
    routes.append(Route(OLDER_CARD_PATH, card, methods=['GET', 'HEAD']))
    if page is not None:
        routes += page.routes()
        if (tenants := serving.dispatcher.tenants) is not None:
            routes += page.routes(below='/{tenant}', takes=lambda params: tenants.may_be(params['tenant']))
    handled = {404, HTTPException} & (handlers or {}).keys()
    return Router(routes, redirect_slashes=False, default=None if handled else index)


class _PostOnly(Route):
    """A route without params in its path, for POST only. Other routes may take the other methods."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (match, child) if match is Match.FULL else (Match.NONE, {})


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
