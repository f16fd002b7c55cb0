"""Routes whose params are found in the path as it was sent: an id may hold slashes and colons. Knows no operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from starlette.routing import Match, Route
from starlette.types import Scope

__all__ = ('AnyPath',)

_SLASHES = 8
"""More than any path has."""


class AnyPath(Route):
    """A path with or without a final slash, since clients do not follow redirects, and with any ids in it.

    Args:
        path: With its params in braces.
        endpoint: An ASGI app, for all verbs.
        methods: The only ones; None: all.
        takes: Whether its params are such that the path is one of this route.
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
        """Whether it is the path of a request, with the params that it has."""
        found = self.path_regex.fullmatch(_encoded_path(scope)) if scope['type'] == 'http' else None
        if found is None or (self.methods is not None and scope['method'] not in self.methods):
            return Match.NONE, {}
        params = {name: unquote(value) for name, value in found.groupdict().items()}
        if self._takes is not None and not self._takes(params):
            return Match.NONE, {}
        return Match.FULL, {'endpoint': self.endpoint, 'path_params': params}


def _encoded_path(scope: Scope) -> str:
    """A request's path below the app's, as it was sent: encoded slashes and colons belong to an id."""
    path: str = scope['path'].removeprefix(scope.get('root_path', ''))
    sent = (scope.get('raw_path') or b'').decode('latin-1')
    for slashes in range(1, _SLASHES):
        below = '/' + '/'.join(sent.rsplit('/', slashes)[1:])
        if unquote(below) == path:
            return below
    return quote(path, safe='/:')  # the server does not tell, or something on the way has changed it
