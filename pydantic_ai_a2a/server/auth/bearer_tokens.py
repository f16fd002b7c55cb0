"""Bearer tokens (RFC 6750): reads the token of a request, and authenticates configured tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...arguments import checked
from ...types.a2a_objects import HttpSecurityScheme, SecurityScheme
from ...types.callers import Caller
from .authenticator import Authenticator
from .hashed_secrets import MAX_SECRET, HashedSecrets, is_hash
from .invalid_credentials import InvalidCredentials
from .redaction import redacted
from .request_info import RequestInfo

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
        ValueError: The mapping is empty or has its callers as keys, a token is too short or no bearer token, a hash is
            malformed, or a caller has no id.
    """

    def __init__(
        self, tokens: Mapping[str, Caller | str], *, name: str = 'bearer', description: str | None = None
    ) -> None:
        self._tokens = HashedSecrets(tokens)
        if not all(is_hash(token) or _TOKEN.fullmatch(token) for token in tokens):
            raise ValueError(
                'A key of the mapping is no bearer token, so that no request can have it: a token has letters, digits,'
                ' -._~+/, and = only at its end. Write {TOKEN: CALLER}.'
            )
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
