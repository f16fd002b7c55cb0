"""The hosts that a server answers for, against web pages in browsers that point their own names to this machine."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from ...correlation_ids import new_correlation_id
from ...errors import MisdirectedRequestError
from ...public_hosts import is_loopback
from ...wire.protocol.versions import HTTP, Versions
from ..auth.request_info import header
from ..service.refusals import audit_refused
from .asgi_requests import request_info
from .http_json import MEDIA_TYPE, is_http_json
from .replies import reply
from .unread_bodies import closing

_HOST = re.compile(r'(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/@\[\]\\*,]+))(?::[0-9]{0,5})?')
_PATTERN = re.compile(r'\*|(?:\*\.)?[^\s:/@\[\]\\*]+')

HOSTS = 'pydantic_ai_a2a.hosts'
"""Key of the scope for the hosts that the server answers for, if a `HostCheck` has seen the request."""

_VERSIONS = Versions()
"""All versions, for refusals that do not depend on the versions of the app."""


class AllowedHosts:
    """Names of the hosts that a server answers for. `localhost` and IP addresses are always allowed.

    A web page can point its own name to this machine (DNS rebinding). The `Host` header of its requests then has the
    name of the page. Browsers always send the header.

    Args:
        names: Names without ports; `*.example.com` is every name below `example.com`, and `*` every host.

    Raises:
        ValueError: A name is not the name of a host.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names: tuple[str, ...] = tuple(name.lower().rstrip('.') for name in names)
        if bad := [name for name in self.names if not _PATTERN.fullmatch(name)]:
            raise ValueError(f'allowed_hosts= takes names such as agent.example.com or *.example.com, not {bad[0]!r}.')
        self.are_local = all(is_loopback(name) for name in self.names)
        self._exact = frozenset(self.names)
        self._below = tuple(name[1:] for name in self.names if name.startswith('*.'))

    def answer(self, scope: Scope) -> bool:
        """Return whether a request is for an allowed host, or without a host."""
        if scope['type'] not in ('http', 'websocket') or '*' in self._exact:
            return True
        value = header(scope['headers'], b'host')
        return value is None or self._include(value)

    def _include(self, value: str) -> bool:
        match = _HOST.fullmatch(value)
        if match is None:
            return False
        if match['v6']:
            return _is_address(match['v6'])
        name = match['name'].lower().rstrip('.')
        return (
            name in self._exact
            or name == 'localhost'
            or name.endswith(('.localhost', *self._below))
            or _is_address(name)
        )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class HostCheck:
    """An ASGI app that passes on requests for some hosts. Requests for other hosts get HTTP 421.

    Args:
        app: The app.
        hosts: The hosts.
        redact: Takes credentials out of a refused request. The app itself redacts the requests that the app gets.
    """

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, redact: Callable[[Scope], None]) -> None:
        self._app = app
        self._hosts = hosts
        self._redact = redact

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests for the hosts, and the lifespan."""
        if self._hosts.answer(scope):
            scope[HOSTS] = self._hosts
            await self._app(scope, receive, send)
        else:
            self._redact(scope)
            await misdirected(scope, receive, send)


async def misdirected(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request for another host, as an ASGI app."""
    if scope['type'] == 'websocket':
        await send({'type': 'websocket.close', 'code': 1008})
        return
    _, send = closing(scope, receive, send)
    error, correlation_id = MisdirectedRequestError(), new_correlation_id()
    audit_refused(error, request_info(scope, correlation_id))
    if is_http_json(scope):
        body, media_type = HTTP.encode_status(error, correlation_id), MEDIA_TYPE
    else:
        codec = _VERSIONS.before_reading(header(scope['headers'], b'a2a-version')).codec
        described = codec.encode_error(error, correlation_id)
        body, media_type = b'{"jsonrpc":"2.0","id":null,"error":' + described + b'}', b'application/json'
    body = b'' if scope['method'] == 'HEAD' else body
    await reply(send, error.http_status, body, correlation_id, media_type=media_type)
