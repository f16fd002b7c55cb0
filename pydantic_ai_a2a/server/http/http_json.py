"""The HTTP+JSON binding (§11): verbs, paths and status codes.

The paths are Starlette's routes. Routes at the end of the app's routes refuse unknown paths that look like paths of the
binding, so that clients get errors in the form of the binding.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from ...correlation_ids import new_correlation_id
from ...errors import (
    A2AError,
    MethodNotAllowedError,
    NotFoundError,
    UnsupportedMediaTypeError,
    VersionNotSupportedError,
)
from ...wire.protocol.operations import OPERATIONS, Operation
from ...wire.protocol.value_count import check_values
from ...wire.protocol.versions import HTTP, CodecChoice, Versions
from ..auth.request_info import header
from ..service.request_flow import DecodedRequest, Serving
from .asgi_requests import requested_version
from .encoded_paths import AnyPath
from .exchange import HttpExchange
from .replies import reply
from .request_bodies import JSON, check_content_type, read_body
from .root_and_unknown_paths import not_found

MEDIA_TYPE = b'application/a2a+json'
"""The media type of all answers but streams."""

_TAKEN = (MEDIA_TYPE.decode(), *JSON)
_UNKNOWN = ('/message:{rest:path}', '/tasks/{rest:path}')
_OLDER = ('/v1/card', '/v1/message:{rest:path}', '/v1/tasks', '/v1/tasks/{rest:path}')
"""The paths of A2A 0.3."""
_PARAM = re.compile(r'{[^}]*}')
_LIKE_ONE = re.compile(r'.*/(?:message:[^/]*|tasks(?:/.*)?|extendedAgentCard/?)', re.DOTALL)


def _by_path() -> dict[str, dict[str, Operation]]:
    """Return the operations by path and verb. Paths that end in an id come last: an id may hold a colon."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS.values():
        for verb, path in operation.http:
            paths.setdefault(path, {})[verb] = operation
    return {path: paths[path] for path in sorted(paths, key=lambda path: path.endswith('}'))}


_PATHS = _by_path()


FIRST_SEGMENTS = frozenset(path.split('/')[1] for path in (*_PATHS, *_OLDER) if '{rest' not in path.split('/')[1])
"""First segments of the paths."""


def first_taken(others: Iterable[BaseRoute]) -> str | None:
    """Return the first path of the binding that another route has too, whatever the names of the params."""
    ours = {_PARAM.sub('{}', path) for path in _PATHS}
    paths = (str(getattr(route, 'path', '')) for route in others)
    return next((path for path in paths if _PARAM.sub('{}', path) in ours), None)


def routes(
    serving: Serving, *, below: str = '', takes: Callable[[Mapping[str, str]], bool] | None = None
) -> list[BaseRoute]:
    """Return the routes of the binding, each for all verbs of a path.

    Args:
        serving: The parts of the app.
        below: A prefix of the paths, such as `/{tenant}`.
        takes: Returns whether a route takes a path with these params; None: the routes take all params.
    """
    return [AnyPath(below + path, _HttpJson(serving, operations), takes=takes) for path, operations in _PATHS.items()]


def last_routes(
    versions: Versions,
    card_url: Callable[[Scope], str],
    *,
    below: str = '',
    takes: Callable[[Mapping[str, str]], bool] | None = None,
) -> list[BaseRoute]:
    """Return the routes that refuse paths which only look like paths of the binding; see `routes`.

    Args:
        versions: The versions that are served.
        card_url: Returns the URL of the agent card, which a refusal names.
        below: As for `routes`.
        takes: As for `routes`.
    """
    not_served = versions.not_served('0.3', versions.over_http)
    if versions.over_http:
        text = f'{not_served.message} The paths of 1.0 have no /v1: write /message:send.'
        not_served = VersionNotSupportedError(text, metadata=not_served.metadata)
    older = _Refusal(lambda _: not_served, card_url)
    unknown = _Refusal(not_found if versions.over_http else lambda _: NotFoundError(), card_url)
    refused = {**dict.fromkeys(_UNKNOWN, unknown), **dict.fromkeys(_OLDER, older)}
    return [AnyPath(below + path, refusal, takes=takes) for path, refusal in refused.items()]


def is_http_json(scope: Scope) -> bool:
    """Return whether the path of a request looks like a path of this binding, below any mount."""
    return _LIKE_ONE.fullmatch(scope['path']) is not None


class _Refusal:
    """Refuses every request and names the agent card, as an ASGI app."""

    def __init__(self, error_of: Callable[[Scope], A2AError], card_url: Callable[[Scope], str]) -> None:
        self._error_of = error_of
        self._card_url = card_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        correlation_id = new_correlation_id()
        error = self._error_of(scope)
        metadata = {**error.metadata, 'agentCard': self._card_url(scope)}
        body = HTTP.encode_status(type(error)(error.message, metadata=metadata), correlation_id)
        await reply(send, error.http_status, body, correlation_id, media_type=MEDIA_TYPE)


class _HttpJson:
    """One path, as an ASGI app."""

    def __init__(self, serving: Serving, operations: Mapping[str, Operation]) -> None:
        self._serving = serving
        self.operations = operations

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        return _HttpJsonExchange(self, self._serving, scope, receive, send).serve()


class _HttpJsonExchange(HttpExchange):
    media_type = MEDIA_TYPE
    unshared = (('Cache-Control', 'no-store'),)

    def __init__(self, endpoint: _HttpJson, serving: Serving, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(serving, scope, receive, send)
        self._endpoint = endpoint
        self._verb: str = scope['method']

    async def read(self) -> bytes:
        """Return the body; empty for other verbs than POST."""
        if self._verb not in self._endpoint.operations:
            verbs = sorted(self._endpoint.operations)
            text = f'The path does not accept this HTTP method. Use {" or ".join(verbs)}.'
            raise MethodNotAllowedError(text, headers={'Allow': ', '.join(verbs)})
        if self._verb != 'POST':
            return b''
        # Pages of other origins send an `Origin` header. Without this header, a request with an empty body needs no
        # content type.
        headers = self.scope['headers']
        declared = header(headers, b'content-type')
        undeclared = declared is None and header(headers, b'origin') is None
        if not undeclared:
            check_content_type(declared, _TAKEN)
        body = await read_body(self.scope, self.receive, self.serving.limits.body)
        if body and undeclared:
            raise UnsupportedMediaTypeError(f'The request body must be declared as {" or ".join(_TAKEN)}.')
        return body

    def decode(self, body: bytes) -> DecodedRequest:
        if len(body) > self.serving.limits.values:  # long enough to hold too many values, at a byte each
            check_values(body, self.serving.limits.values)
        codec = self.serving.versions.choose_http(requested_version(self.scope))
        operation = self._endpoint.operations[self._verb]
        params = self.decode_params(
            codec,
            operation,
            path=self.scope['path_params'],
            query=self.scope['query_string'],
            body=body if self._verb == 'POST' else None,
        )
        return operation, params, CodecChoice(codec)

    async def refuse(self, error: A2AError) -> None:
        """Answer with a `google.rpc.Status` (§11.6)."""
        body = HTTP.encode_status(error, self.correlation_id)
        headers = (*self.unshared, *error.headers.items())
        await reply(self.send, error.http_status, body, self.correlation_id, headers, media_type=MEDIA_TYPE)
