"""API keys in a header, in the query or in a cookie."""

from __future__ import annotations

from collections.abc import Mapping

from ...arguments import HTTP_NAME, checked
from ...types.a2a_objects import ApiKeySecurityScheme, SecurityScheme
from ...types.callers import Caller
from .authenticator import Authenticator
from .hashed_secrets import HashedSecrets
from .redaction import redacted
from .request_info import RequestInfo


@checked
class APIKeyAuth(Authenticator):
    """Keys in a header, `X-API-Key` unless said otherwise, or in the query or a cookie.

    The server keeps only hashes of the keys. Prefer a header: URLs end up in logs and histories. The app replaces a key
    in the query by `redacted` before other code and the web server's access log see the query. Proxies and middleware
    around the app do see the key.

    Args:
        keys: The caller of each key. The key of the mapping is an API key (16 characters of ASCII or more, without
            spaces) or a hash from `hash_key`. The value is the id of a caller, or a `Caller` with tenant and scopes.
        header: The header that has the key.
        query: The query parameter that has the key, instead of a header.
        cookie: The cookie that has the key, instead of a header.
        name: Name of the scheme on the agent card.
        description: Description of the scheme on the agent card, such as where to get a key.

    Raises:
        ValueError: The mapping is empty, a key is too short, a hash is malformed, a caller has no id, several places
            are named, or a name is not legal in its place.
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
        named = [(place, parameter) for place, parameter in places.items() if parameter is not None]
        if len(named) > 1:
            raise ValueError('An API key has one place: give header=, query= or cookie=, not several.')
        [(self._place, self._parameter)] = named or [('header', 'X-API-Key')]
        if HTTP_NAME.fullmatch(self._parameter) is None:
            raise ValueError(f'{self._parameter!r} cannot be the name of a {self._place} parameter.')
        scheme = ApiKeySecurityScheme(name=self._parameter, location=self._place)
        if description is not None:
            scheme['description'] = description
        self.schemes = {name: SecurityScheme(api_key_security_scheme=scheme)}

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        """Return the caller whose key the request has, or None without a key.

        Raises:
            InvalidCredentials: No caller has the key.
        """
        read = {'header': request.header, 'cookie': request.cookie, 'query': request.parameter}[self._place]
        return self._keys.caller(read(self._parameter))

    def redact(self, query: bytes) -> bytes:
        """Return the query without keys. Keys are replaced also if the server reads them from another place."""
        return redacted(query, [self._parameter], lambda value: self._keys.find(value) is not None)
