"""The agent card and the public keys over HTTP (§8.6): caching headers, HEAD and 304."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from ...wire.protocol.versions import Versions
from ..card.template import CardTemplate
from .app_urls import URLS, base_url, check_reachable_url
from .asgi_requests import requested_version
from .cached_answers import CachedAnswer

CARD_PATH = '/.well-known/agent-card.json'
OLDER_CARD_PATH = '/.well-known/agent.json'
"""The card's path in versions before 0.3, whose clients do not follow redirects."""
KEYS_PATH = '/.well-known/jwks.json'
"""Path of the public keys."""
_MAX_AGE = 3600
_CACHED = ('Cache-Control', f'public, max-age={_MAX_AGE}')
_PUBLIC = (_CACHED, ('Vary', 'Host'))
_PUBLIC_BY_VERSION = (_CACHED, ('Vary', 'Host, A2A-Version'))
_OLDER = '0.3'


class Discovery:
    """The card's endpoint, as an ASGI app; public, and served without a provider's key.

    Args:
        card: The card without its URL.
        url: The agent's URL; None takes the request's base URL, with the paths that the app is mounted under.
        versions: The served protocol versions.
    """

    def __init__(self, card: CardTemplate, url: str | None, versions: Versions) -> None:
        self._card = card
        self._versions = versions
        self._url = url
        if url is not None:
            check_reachable_url(url)
            card.render(url)  # a card that cannot be signed is refused now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD; below a tenant's path, with the card of the tenant."""
        tenant = scope['path_params'].get('tenant', '')
        version = self._version(scope) if self._card.by_version else ''
        card = self._card.render(self._url or base_url(scope), tenant, version)
        await _answer(card, by_version=bool(version))(scope, receive, send)

    def _version(self, scope: Scope) -> str:
        """Return the version of the client. Clients of 0.3 name no version, but know the older path."""
        if scope['path'].endswith(OLDER_CARD_PATH):
            return _OLDER
        return self._versions.before_reading(requested_version(scope)).codec.dialect


@lru_cache(maxsize=URLS)
def _answer(card: bytes, *, by_version: bool) -> CachedAnswer:
    return CachedAnswer(card, _PUBLIC_BY_VERSION if by_version else _PUBLIC)


def key_set(keys: Sequence[Mapping[str, Any]]) -> CachedAnswer:
    """Return the endpoint of the public keys: a JSON Web Key Set (RFC 7517)."""
    return CachedAnswer(to_json({'keys': keys}), [_CACHED], media_type=b'application/jwk-set+json')
