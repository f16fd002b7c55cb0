"""API keys in a header, in the query or in a cookie: where a request has one, and whom it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fasta2a.schema import ApiKeySecurityScheme, SecurityScheme
from starlette.requests import Request

from ..arguments import checked
from ..types import Caller
from .base import Authenticator, InvalidCredentials, one
from .hashes import HashedSecrets
from .redaction import redacted

__all__ = ('APIKeyAuth',)

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A token of HTTP (RFC 9110): what a header or a cookie may be called."""


@checked
class APIKeyAuth(Authenticator):
    """Keys in a header, `X-API-Key` unless said otherwise, or in the query or a cookie.

    Only their hashes are kept. A header is the place for them: what is in a URL ends up in logs and histories. A key in
    the query is replaced by `redacted` before anybody further in sees it, and the web server's access log is written
    from that; proxies on the way have seen it, and so has middleware around the app.

    Args:
        keys: Whom each key stands for, by the key (16 characters of ASCII or more, without spaces) or its hash as
            `hash_key` makes it. A string is the id of a caller; a `Caller` has a tenant and scopes as well.
        header: The header that has the key.
        query: The query parameter that has it, instead of a header.
        cookie: The cookie that has it, instead of a header.
        name: Name of the scheme on the agent card.
        description: What the card says of it, such as where to get a key.

    Raises:
        ValueError: There are no keys, one is too short or no hash, a caller has no id, there are several places, or one
            has a name that it cannot have.
    """

    def __init__(
        self,
        keys: Mapping[str, Caller | str],
        *,
        header: str | None = None,
        query: str | None = None,
        cookie: str | None = None,
        name: str = 'apiKey',
        description: str | None = None,
    ) -> None:
        self._keys = HashedSecrets(keys)
        places = {'header': header, 'query': query, 'cookie': cookie}
        given = [(place, called) for place, called in places.items() if called is not None]
        if len(given) > 1:
            raise ValueError('An API key has one place: a header, the query or a cookie.')
        [(self._place, self._called)] = given or [('header', 'X-API-Key')]
        if _NAME.fullmatch(self._called) is None:
            raise ValueError(f'{self._called!r} cannot be the name of a {self._place} parameter.')
        scheme = ApiKeySecurityScheme(name=self._called, location=self._place)
        if description is not None:
            scheme['description'] = description
        self.schemes = {name: SecurityScheme(api_key_security_scheme=scheme)}

    async def authenticate(self, request: Request) -> Caller | None:
        """Who has the key of a request; None if it has none."""
        key = self._key(request)
        if key is None:
            return None
        caller = self._keys.find(key)
        if caller is None:
            raise InvalidCredentials('unknown')
        return caller

    def _key(self, request: Request) -> str | None:
        if self._place == 'header':
            return one(request.headers.getlist(self._called))
        if self._place == 'cookie':
            return request.cookies.get(self._called)
        return one(request.query_params.getlist(self._called))

    def redact(self, request: Request) -> None:
        """Replace a key in the query, whatever is asked for, and also where keys are not read from the query."""
        query = request.scope['query_string']
        request.scope['query_string'] = redacted(query, self._called, lambda value: self._keys.find(value) is not None)
