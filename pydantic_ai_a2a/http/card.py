"""The agent card over HTTP (§8.6): URL, caching headers, HEAD and 304."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ..auth.request import header
from ..card import CardTemplate, etag
from .base import NO_SNIFF

__all__ = ('CARD_PATH', 'OLDER_CARD_PATH', 'Discovery', 'base_url', 'send_card')

CARD_PATH = '/.well-known/agent-card.json'
OLDER_CARD_PATH = '/.well-known/agent.json'
"""The card's path in versions before 0.3, whose clients do not follow redirects."""
_MAX_AGE = 3600
_PUBLIC = (('Cache-Control', f'public, max-age={_MAX_AGE}'), ('Vary', 'Host'))


class Discovery:
    """The card's endpoint, as an ASGI app; public, and served without a provider's key.

    Args:
        card: The card without its URL.
        url: The agent's URL; None takes the request's base URL, with the paths that the app is mounted under.
    """

    def __init__(self, card: CardTemplate, url: str | None) -> None:
        self._card = card
        self._url = url
        if url is not None:
            _check_url(url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD; below a tenant's path, with the card of the tenant."""
        tenant = scope['path_params'].get('tenant', '')
        body = self._card.render(self._url or base_url(scope), tenant)
        await send_card(scope, send, body, _PUBLIC)


def _check_url(url: str) -> None:
    """Refuse a URL that no client could call."""
    scheme, separator, rest = url.partition('://')
    if not separator:
        raise ValueError(
            f'url takes an absolute URL, not {url!r}: its scheme is missing. Write https://{url.lstrip("/")}.'
        )
    if scheme.lower() not in ('http', 'https') or not rest.partition('/')[0]:
        raise ValueError(f'url takes an https or http URL with a host, such as https://example.com/, not {url!r}.')


async def send_card(
    scope: Scope,
    send: Send,
    body: bytes,
    headers: Iterable[tuple[str, str]],
    *,
    media_type: bytes = b'application/json',
) -> None:
    """Answer with a card, or with HTTP 304 if the client has the card already."""
    tag = etag(body)
    raw = [(name.lower().encode(), value.encode()) for name, value in (('ETag', tag), *headers)]
    if _matches(header(scope['headers'], b'if-none-match'), tag):
        await send({'type': 'http.response.start', 'status': 304, 'headers': raw})
        await send({'type': 'http.response.body', 'body': b''})
        return
    raw += [(b'content-type', media_type), (b'content-length', b'%d' % len(body)), NO_SNIFF]
    await send({'type': 'http.response.start', 'status': 200, 'headers': raw})
    await send({'type': 'http.response.body', 'body': b'' if scope['method'] == 'HEAD' else body})


def base_url(scope: Scope) -> str:
    """Return the URL of the app itself. `Request.base_url` is the URL of the outermost app around the app."""
    return str(Request({**scope, 'app_root_path': scope.get('root_path', '')}).base_url)


def _matches(if_none_match: str | None, tag: str) -> bool:
    if if_none_match is None:
        return False
    tags = [value.strip().removeprefix('W/') for value in if_none_match.split(',')]
    return tag in tags or '*' in tags
