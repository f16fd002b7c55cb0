"""API keys in a header, in the query or in a cookie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b, sha256
from os import urandom

from ..arguments import checked
from ..types import ApiKeySecurityScheme, Caller, HttpSecurityScheme, SecurityScheme
from .request_info import Authenticator, InvalidCredentials, RequestInfo, redacted

HTTP_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A token of HTTP (RFC 9110): the legal names of headers and cookies."""


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


# --- bearer tokens (RFC 6750) -----------------------------------------------------------------------------------------
# Reads the token of a request, and authenticates configured tokens.

_TOKEN = re.compile(r'[A-Za-z0-9\-._~+/]+=*')


def bearer_token(request: RequestInfo) -> str | None:
    """Return the bearer token of a request, or None without one.

    Raises:
        InvalidCredentials: The token is malformed or too long, or the header comes several times.
    """
    header = request.header('authorization')
    if header is None:
        return None
    scheme, _, token = header.partition(' ')
    if scheme.lower() != 'bearer':
        return None
    token = token.strip(' ')
    if len(token) > MAX_SECRET:
        raise InvalidCredentials('oversized')
    if _TOKEN.fullmatch(token) is None:
        raise InvalidCredentials('malformed')
    return token


@checked
class BearerAuth(Authenticator):
    """Tokens in the `Authorization` header: `Authorization: Bearer …`.

    The server keeps only hashes of the tokens. Several tokens may stand for one caller, so that a token can be replaced
    while the old token is still valid.

    Args:
        tokens: The caller of each token. The key is a token (16 characters of ASCII or more) or a hash from `hash_key`.
            The value is the id of a caller, or a `Caller` with tenant and scopes.
        name: Name of the scheme on the agent card.
        description: Description of the scheme on the agent card, such as where to get a token.

    Raises:
        ValueError: The mapping is empty, a token is too short, a hash is malformed, or a caller has no id.
    """

    def __init__(
        self, tokens: Mapping[str, Caller | str], *, name: str = 'bearer', description: str | None = None
    ) -> None:
        self._tokens = HashedSecrets(tokens)
        scheme = HttpSecurityScheme(scheme='Bearer')
        if description is not None:
            scheme['description'] = description
        self.schemes = {name: SecurityScheme(http_auth_security_scheme=scheme)}

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        """Return the caller whose token the request has, or None without a token.

        Raises:
            InvalidCredentials: No caller has the token.
        """
        return self._tokens.caller(bearer_token(request))

    def redact(self, query: bytes) -> bytes:
        """Return the query without tokens, which belong into the header."""
        return redacted(query, ['access_token'], lambda value: self._tokens.find(value) is not None)


# --- the tokens and keys of a server ----------------------------------------------------------------------------------
# Only their hashes are kept in memory.

MAX_SECRET = 8192
"""Maximum characters of a token or key. Longer tokens and keys are invalid."""
_MIN_SECRET = 16
_PREFIX = 'sha256:'
_HASH = re.compile(r'sha256:([0-9a-f]{64})')
_PRINTABLE = re.compile(r'[!-~]+')


def hash_key(secret: str) -> str:
    """Return the hash of a random token or key for the configuration: `sha256:` and 64 hexadecimal digits.

    The hash protects secrets that nobody can guess. Passwords of people need a slow hash instead.

    Args:
        secret: 16 characters of ASCII or more, without spaces.

    Raises:
        ValueError: The secret is shorter, or has other characters.
    """
    if len(secret) < _MIN_SECRET or _PRINTABLE.fullmatch(secret) is None:
        raise ValueError(
            f'A token or key needs at least {_MIN_SECRET} characters of ASCII without spaces;'
            ' `pydantic-ai-a2a hash-key` makes one.'
        )
    return _PREFIX + sha256(secret.encode()).hexdigest()


class HashedSecrets:
    """The callers of secrets.

    Args:
        callers: Callers by secret, or by hash from `hash_key`. A string is the id of a caller.

    Raises:
        ValueError: The mapping is empty, a secret is too short, a hash is malformed, or a caller has no id.
    """

    def __init__(self, callers: Mapping[str, Caller | str]) -> None:
        if not callers:
            raise ValueError('The mapping of tokens or keys is empty: add at least one.')
        self._key = urandom(32)
        self._callers = {self._blinded(_digest(secret)): _caller(caller) for secret, caller in callers.items()}

    def caller(self, secret: str | None) -> Caller | None:
        """Return the caller of the secret of a request; None for a request without a secret.

        Raises:
            InvalidCredentials: No caller has the secret.
        """
        if secret is None:
            return None
        caller = self.find(secret)
        if caller is None:
            raise InvalidCredentials('unknown')
        return caller

    def _blinded(self, digest: bytes) -> bytes:
        # The client does not know the compared bytes and learns nothing from the time of a look-up. The time does not
        # depend on the number of secrets.
        return blake2b(digest, key=self._key, digest_size=32).digest()

    def find(self, secret: str) -> Caller | None:
        """Return the caller of a secret; None for an unknown secret."""
        if len(secret) > MAX_SECRET:
            return None
        return self._callers.get(self._blinded(sha256(secret.encode()).digest()))


def _digest(secret: str) -> bytes:
    text = secret if secret.startswith(_PREFIX) else hash_key(secret)
    match = _HASH.fullmatch(text)
    if match is None:
        raise ValueError(f'A hash must be {_PREFIX} and 64 hexadecimal digits in lower case.')
    return bytes.fromhex(match[1])


def _caller(value: Caller | str) -> Caller:
    caller = Caller(id=value) if isinstance(value, str) else value
    if caller.anonymous:
        raise ValueError('Each token or key needs a Caller whose id is not empty.')
    return caller
