"""The paths of an app: which there are, in which order they are tried, and what they keep from being tenants' names.

Knows the bindings' routes; nothing of what they serve.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from starlette.routing import BaseRoute, Route

from .auth.tenants import TenantRule, Tenants, is_name
from .bindings import http_json
from .bindings.discovery import CARD_PATH, OLDER_CARD_PATH, Discovery
from .bindings.exchange import Serving
from .bindings.health import LIVE_PATH, READY_PATH, Live, Ready
from .bindings.index import Index
from .bindings.jsonrpc import JsonRpc
from .bindings.paths import AnyPath

__all__ = ('app_routes', 'tenants_of')

logger = logging.getLogger('pydantic_ai_a2a')


def app_routes(
    serving: Serving, card: Discovery, ready: Ready, own: Sequence[BaseRoute], root: Index | None
) -> list[BaseRoute]:
    """Return all routes: ours before the user's own, and after them those that only answer where nothing else does.

    Args:
        serving: What serves the bindings.
        card: Serves the card.
        ready: Says how the app is.
        own: The user's.
        root: Serves the agent's own URL to other methods than POST; None if something else does.
    """
    taken = http_json.first_taken(own)
    if taken is not None:
        logger.warning('The HTTP+JSON binding is not served: routes= has its path %s.', taken)
    return [
        Route('/', JsonRpc(serving), methods=['POST']),
        *([] if taken else http_json.routes(serving)),
        Route(CARD_PATH, card, methods=['GET', 'HEAD']),
        Route(LIVE_PATH, Live(), methods=['GET', 'HEAD']),
        Route(READY_PATH, ready, methods=['GET', 'HEAD']),
        *own,
        *_tenant_routes(serving, card, own, http=taken is None),
        *([] if taken else http_json.last_routes(serving.versions)),
        Route(OLDER_CARD_PATH, card, methods=['GET', 'HEAD']),
        *([] if root is None else [Route('/', root)]),
    ]


def tenants_of(rule: TenantRule | None, own: Sequence[BaseRoute], docs_url: str | None) -> Tenants | None:
    """The tenants that requests may name, none of which is called like a path of the app; None if there are none."""
    if rule is None or rule is False:
        return None
    return Tenants(rule, {*_reserved(own), (docs_url or '').removeprefix('/').split('/')[0]})


def _reserved(own: Sequence[BaseRoute]) -> set[str]:
    """First segments of the app's paths, which are not tenants' names."""
    paths = [CARD_PATH, LIVE_PATH, READY_PATH, *(str(getattr(route, 'path', '')) for route in own)]
    return {*http_json.FIRST_SEGMENTS, *(path.removeprefix('/').split('/')[0] for path in paths)}


def _tenant_routes(serving: Serving, card: Discovery, own: Sequence[BaseRoute], *, http: bool) -> list[BaseRoute]:
    """Return the paths that begin with a tenant's name.

    Without tenants, these are the paths of HTTP+JSON only, and the name means nothing. A client of HTTP+JSON writes the
    `tenant` of its request into the path, where a client of JSON-RPC writes it into the params.
    """
    tenants, reserved = serving.tenants, _reserved(own)

    def takes(params: Mapping[str, str]) -> bool:
        return is_name(params['tenant'], reserved) if tenants is None else tenants.may_be(params['tenant'])

    if tenants is None:
        return http_json.routes(serving, below='/{tenant}', takes=takes) if http else []
    return [
        AnyPath('/{tenant}', JsonRpc(serving), methods=['POST'], takes=takes),
        *(http_json.routes(serving, below='/{tenant}', takes=takes) if http else ()),
        AnyPath(f'/{{tenant}}{CARD_PATH}', card, methods=['GET', 'HEAD'], takes=takes),
        AnyPath(f'/{{tenant}}{OLDER_CARD_PATH}', card, methods=['GET', 'HEAD'], takes=takes),
        *(http_json.last_routes(serving.versions, below='/{tenant}', takes=takes) if http else ()),
    ]
