"""Routes that read params from the encoded path: an id may hold slashes and colons."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from starlette.routing import Match, Route
from starlette.types import Scope

_SLASHES = 8
"""More slashes than a path of the app has."""
_MESSAGE = re.compile(r'/message%3A(?=\w+/?$)', re.IGNORECASE)
"""The colon of an operation on messages, as some clients encode it. In a path of a task it belongs to the id."""
_CACHED_PATHS = 32
"""Cached paths: several routes read the path of one request."""


class AnyPath(Route):
    """A path with any ids, with or without a final slash, because clients do not follow redirects.

    Args:
        path: The path, with params in braces.
        endpoint: An ASGI app for all verbs.
        methods: The methods of the route; None: all methods.
        takes: Returns whether the route takes a path with these params; None: the route takes all params.
    """

    def __init__(
        self,
        path: str,
        endpoint: Any,
        *,
        methods: Sequence[str] | None = None,
        takes: Callable[[Mapping[str, str]], bool] | None = None,
    ) -> None:
        super().__init__(path, endpoint, methods=methods, include_in_schema=False)
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix('$') + '/?')
        self._takes = takes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request has the path, and the params of the path."""
        if scope['type'] != 'http' or (self.methods is not None and scope['method'] not in self.methods):
            return Match.NONE, {}
        path = _encoded_path(scope['path'], scope.get('root_path', ''), scope.get('raw_path') or b'')
        match = self.path_regex.fullmatch(path)
        if match is None:
            return Match.NONE, {}
        params = {name: unquote(value) for name, value in match.groupdict().items()}
        if self._takes is not None and not self._takes(params):
            return Match.NONE, {}
        return Match.FULL, {'endpoint': self.endpoint, 'path_params': params}


@lru_cache(maxsize=_CACHED_PATHS)
def _encoded_path(path: str, root_path: str, raw_path: bytes) -> str:
    """Return a request's path below the app's path, encoded: encoded slashes and colons belong to an id."""
    path, sent = path.removeprefix(root_path), raw_path.decode('latin-1')
    for slashes in range(1, _SLASHES):
        below = '/' + '/'.join(sent.rsplit('/', slashes)[1:])
        if unquote(below) == path:
            return _MESSAGE.sub('/message:', below)
    return quote(path, safe='/:')  # without a raw path, or after a change by middleware
