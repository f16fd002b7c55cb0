"""The pages of several agents in one server: a list for clients (RFC 9727), and a list for people.

The card and the health of an agent are requested from the agent's app, as a client without credentials would. So the
lists show nothing that middleware of an agent protects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, cast

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope

from .app_urls import base_url, quoted
from .cached_answers import CachedAnswer
from .card_and_keys import CARD_PATH
from .health import READY_PATH

logger = logging.getLogger('pydantic_ai_a2a')

CATALOGUE_PATH = '/.well-known/api-catalog'
_LINKSET = b'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_CACHED = (('Cache-Control', 'public, max-age=300'), ('Vary', 'Host'))
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Agents</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 45rem; margin: 2rem auto; padding: 0 1rem; }}
</style>
<main>
<h1>Agents</h1>
{agents}
</main>
</html>
"""


class Agents:
    """The agents of a server.

    Args:
        apps: The app of each agent, by path.
        docs: Path of the page of each agent, by path of the agent; agents without a page are left out.
    """

    def __init__(self, apps: Mapping[str, ASGIApp], docs: Mapping[str, str]) -> None:
        self._apps = apps
        self._docs = docs

    async def linkset(self, request: Request) -> CachedAnswer:
        """Return the list for clients: a linkset with the API catalog's link relations (RFC 9727, RFC 9264)."""
        agents, own = await self._listed(request.scope), _catalogue_url(request.scope)
        items = [{'href': agent.url, **({} if agent.name is None else {'title': agent.name})} for agent in agents]
        linkset = [{'anchor': own, 'item': items}, *map(_links, agents)]
        headers = [*_CACHED, ('Link', f'<{own}>; rel="api-catalog"')]
        return CachedAnswer(to_json({'linkset': linkset}), headers, media_type=_LINKSET)

    async def page(self, request: Request) -> CachedAnswer:
        """Return the list for people: HTML without scripts."""
        entries = [_entry(agent) for agent in await self._listed(request.scope)]
        headers = [
            *_CACHED,
            ('Content-Security-Policy', _POLICY),
            ('Link', f'<{_catalogue_url(request.scope)}>; rel="api-catalog"'),
        ]
        page = _PAGE.format(agents='\n'.join(entries))
        return CachedAnswer(page.encode(), headers, media_type=b'text/html; charset=utf-8')

    async def _listed(self, scope: Scope) -> list[_Agent]:
        """Return the agents as the client of a request reaches them."""
        return [await self._agent(scope, path) for path in self._apps]

    async def ask(self, scope: Scope, path: str, below: str) -> tuple[int, dict[str, Any] | None]:
        """Return the status and the JSON of an agent's answer; None for an answer that is no JSON object."""
        status, body = await _get(self._apps[path], scope, path, below)
        try:
            answer: object = from_json(body)
        except ValueError:
            answer = None
        return status, cast('dict[str, Any]', answer) if isinstance(answer, dict) else None

    async def _agent(self, scope: Scope, path: str) -> _Agent:
        status, answer = await self.ask(scope, path, CARD_PATH)
        card: dict[str, Any] = answer if status == 200 and answer is not None else {}
        here = base_url(scope).removesuffix('/') + quoted(path)
        docs = self._docs.get(path)
        return _Agent(
            path=path,
            url=f'{here}/',
            name=card.get('name'),
            description=card.get('description'),
            docs=None if docs is None else here + quoted(docs),
        )

    @property
    def paths(self) -> list[str]:
        """The paths of the agents."""
        return list(self._apps)


@dataclass(frozen=True, kw_only=True)
class _Agent:
    """An agent in the lists. Texts of the card are None if the card is protected."""

    path: str
    url: str
    name: str | None
    description: str | None
    docs: str | None
    """URL of the agent's page in the browser."""

    @property
    def base(self) -> str:
        """URL of the agent in this server, without the final slash."""
        return self.url.removesuffix('/')


def _catalogue_url(scope: Scope) -> str:
    return base_url(scope).removesuffix('/') + CATALOGUE_PATH


def _links(agent: _Agent) -> dict[str, Any]:
    """Return the links of an agent (RFC 8631)."""
    links = {
        'anchor': agent.url,
        'service-desc': [{'href': agent.base + CARD_PATH, 'type': 'application/json'}],
        'status': [{'href': agent.base + READY_PATH, 'type': 'application/json'}],
    }
    return links if agent.docs is None else {**links, 'service-doc': [{'href': agent.docs, 'type': 'text/html'}]}


def _entry(agent: _Agent) -> str:
    name = escape(agent.name or agent.path)
    title = name if agent.docs is None else f'<a href="{escape(agent.docs)}">{name}</a>'
    card = f'<a href="{escape(agent.base + CARD_PATH)}">Agent card</a>'
    return f'<h2>{title}</h2>\n<p>{escape(agent.description or "")}</p>\n<p><code>{escape(agent.url)}</code> {card}</p>'


async def _get(app: ASGIApp, scope: Scope, path: str, below: str) -> tuple[int, bytes]:
    """Return the status and the body of an app's answer to a GET request without credentials."""
    root = scope.get('root_path', '') + path
    headers: Sequence[tuple[bytes, bytes]] = [(name, value) for name, value in scope['headers'] if name == b'host']
    inner: Scope = {
        **{name: scope[name] for name in ('type', 'asgi', 'http_version', 'scheme', 'server') if name in scope},
        'client': None,
        'method': 'GET',
        'path': root + below,
        'raw_path': quoted(root + below).encode(),
        'root_path': root,
        'query_string': b'',
        'headers': headers,
    }
    status, body = 500, b''
    requests: list[Message] = [{'type': 'http.request', 'body': b'', 'more_body': False}]
    answered = asyncio.Event()

    async def receive() -> Message:
        if requests:
            return requests.pop()
        await answered.wait()
        return {'type': 'http.disconnect'}

    async def send(message: Message) -> None:
        nonlocal status, body
        status = message.get('status', status)
        body += message.get('body', b'')
        if message['type'] == 'http.response.body' and not message.get('more_body', False):
            answered.set()

    try:
        await app(inner, receive, send)
    except Exception:  # of middleware of the user: the other agents are listed
        logger.exception('The agent at %s has failed a request for %s.', path, below)
        return 500, b''
    return status, body
