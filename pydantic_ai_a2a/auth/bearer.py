"""Bearer tokens (RFC 6750): how a request has one, and those that a server knows by itself. Knows no JWT."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fasta2a.schema import HttpSecurityScheme, SecurityScheme
from starlette.requests import Request

from ..arguments import checked
from ..types import Caller
from .base import Authenticator, InvalidCredentials, one
from .hashes import MAX_SECRET, HashedSecrets

__all__ = ('BearerAuth', 'bearer_token')

_TOKEN = re.compile(r'[A-Za-z0-9\-._~+/]+=*')


def bearer_token(request: Request) -> str | None:
    """The bearer token of a request; None if it has none.

    Raises:
        InvalidCredentials: What it has in the place of one is none, or there are several, or it is too long.
    """
    header = one(request.headers.getlist('authorization'))
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

    Only their hashes are kept. Several tokens may stand for one caller: so they are replaced one after the other.

    Args:
        tokens: Whom each token stands for, by the token (16 characters of ASCII or more) or its hash as `hash_key`
            makes it. A string is the id of a caller; a `Caller` has a tenant and scopes as well.
        name: Name of the scheme on the agent card.
        description: What the card says of it, such as where to get a token.

    Raises:
        ValueError: There are no tokens, one is too short or no hash, or a caller has no id.
    """

    def __init__(
        self, tokens: Mapping[str, Caller | str], *, name: str = 'bearer', description: str | None = None
    ) -> None:
        self._tokens = HashedSecrets(tokens)
        scheme = HttpSecurityScheme(scheme='Bearer')
        if description is not None:
            scheme['description'] = description
        self.schemes = {name: SecurityScheme(http_auth_security_scheme=scheme)}

    async def authenticate(self, request: Request) -> Caller | None:
        """Who has the token of a request; None if it has none."""
        token = bearer_token(request)
        if token is None:
            return None
        caller = self._tokens.find(token)
        if caller is None:
            raise InvalidCredentials('unknown')
        return caller
