"""Answers at the agent's own URL and at unknown paths: JSON that says where the agent card and the agent are."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send

from ...correlation_ids import new_correlation_id
from ...errors import A2AError, MethodNotAllowedError, NotFoundError
from ...wire.protocol.nearest_names import nearest_path
from ...wire.protocol.versions import HTTP
from ..card.template import CardTemplate
from .app_urls import base_url, quoted
from .card_and_keys import CARD_PATH
from .replies import reply

_SHOWN = ('name', 'description', 'version')
"""Fields of the public card in an answer, besides the fields with URLs."""
_WHERE = ('supportedInterfaces',)
_WHERE_OLDER = ('url', 'preferredTransport', 'protocolVersion')
"""The members of a card of 0.3 alone."""


class Index:
    """The endpoint, as an ASGI app: for the path `/`, and for paths that no route takes.

    Args:
        card: The public card. An answer shows only fields of the public card, because it needs no authentication.
        url: The agent's URL; None takes the request's base URL.
        docs_url: Path of the playground, to which a browser is sent from `/`; None for an app without the playground.
    """

    def __init__(self, card: CardTemplate, url: str | None, docs_url: str | None = None) -> None:
        self._card = card
        self._url = url
        self._docs_url = docs_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with HTTP 200 to GET and HEAD of `/`, or send a browser to the playground; 405 or 404 elsewhere."""
        if scope['type'] == 'websocket':
            await send({'type': 'websocket.close', 'code': 1000})
            return
        body = self._description(scope)
        bindings = {interface['protocolBinding'] for interface in body.get('supportedInterfaces', ())}
        error = _error(scope, over_http='HTTP+JSON' in bindings)
        if error is None and self._docs_url is not None and 'text/html' in Headers(scope=scope).get('accept', ''):
            await RedirectResponse(quoted(scope.get('root_path', '') + self._docs_url))(scope, receive, send)
            return
        correlation_id = new_correlation_id()
        if error is not None:
            body = {**from_json(HTTP.encode_status(error, correlation_id)), **body}
        status, headers = (200, {}) if error is None else (error.http_status, error.headers)
        answer = b'' if scope['method'] == 'HEAD' else to_json(body)
        await reply(send, status, answer, correlation_id, headers.items())

    def card_url(self, scope: Scope) -> str:
        """Return the URL of the agent card."""
        return (self._url or base_url(scope)).removesuffix('/') + CARD_PATH

    def _description(self, scope: Scope) -> dict[str, Any]:
        card: dict[str, Any] = from_json(self._card.render(self._url or base_url(scope)))
        where = _WHERE if 'supportedInterfaces' in card else _WHERE_OLDER
        return {**{name: card[name] for name in (*_SHOWN, *where)}, 'agentCard': self.card_url(scope)}


def not_found(scope: Scope) -> NotFoundError:
    """Return the error of an unknown path, which names the path of HTTP+JSON that resembles the path."""
    nearest = nearest_path(scope['path'].removeprefix(scope.get('root_path', '')))
    if not nearest:
        return NotFoundError()
    return NotFoundError(
        f'The path does not exist. Did you mean {nearest}? The agent card lists the URLs of the agent.'
    )


def _error(scope: Scope, *, over_http: bool) -> A2AError | None:
    if scope['path'].removeprefix(scope.get('root_path', '')) not in ('', '/'):
        return not_found(scope) if over_http else NotFoundError()
    if scope['method'] not in ('GET', 'HEAD'):
        return MethodNotAllowedError(headers={'Allow': 'GET, HEAD, POST'})
    return None
