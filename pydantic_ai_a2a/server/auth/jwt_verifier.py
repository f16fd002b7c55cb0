"""Verifies JSON Web Tokens with PyJWT: algorithm, signature, issuer, audience, time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    InvalidKeyError,
    InvalidSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)

from ...issuer_requests import checked_url
from ...wire.signing.algorithms import ALGORITHMS, check_algorithms
from ...wire.signing.issuer_keys import IssuerKeys, UnknownKey
from .invalid_credentials import InvalidCredentials

_SHARED: Mapping[str, int] = {'HS256': 32, 'HS384': 48, 'HS512': 64}
"""Algorithms with a shared secret, and the minimum bytes of the secret (RFC 7518 §3.2)."""
_MAX_LEEWAY = 300
_REASONS: Mapping[type[PyJWTError], str] = {
    ExpiredSignatureError: 'expired',
    ImmatureSignatureError: 'not yet valid',
    InvalidAudienceError: 'audience',
    InvalidIssuerError: 'issuer',
    InvalidKeyError: 'key',
    InvalidSignatureError: 'signature',
    MissingRequiredClaimError: 'claim missing',
}


class JWTVerifier:
    """Verifies the tokens of one issuer. `JWTAuth` documents the arguments."""

    def __init__(
        self,
        issuer: str,
        audiences: Sequence[str],
        *,
        jwks_url: str | None,
        discovery: str | None,
        secret: bytes | None,
        algorithms: Sequence[str] | None,
        leeway: float,
        times: tuple[float, float, float],
    ) -> None:
        if not issuer or not audiences or not all(audiences):
            raise ValueError(
                'JWTAuth needs issuer= and audience=: tokens of other issuers or for other services must be refused.'
            )
        if not 0 <= leeway <= _MAX_LEEWAY:
            raise ValueError(f'leeway must be 0 to {_MAX_LEEWAY} seconds, not {leeway!r}.')
        if min(times) < 0:
            raise ValueError('cache=, stale= and refetch= must be 0 or more seconds.')
        self._issuer = issuer
        self._audiences = audiences
        self._leeway = leeway
        self._keys: IssuerKeys | bytes
        """The keys of the issuer, or the shared secret."""
        if secret is None:
            self._algorithms = ALGORITHMS if algorithms is None else tuple(algorithms)
            check_algorithms(self._algorithms, ALGORITHMS, 'algorithms=')
            url = checked_url(jwks_url or discovery or '')
            self._keys = IssuerKeys(issuer, url, self._algorithms, times, discovery=jwks_url is None)
        else:
            if jwks_url is not None:
                raise ValueError('Give secret= or jwks_url=, not both.')
            self._algorithms = ('HS256',) if algorithms is None else tuple(algorithms)
            check_algorithms(self._algorithms, _SHARED, 'algorithms=')
            needed = max(_SHARED[name] for name in self._algorithms)
            if len(secret) < needed:
                raise ValueError(f'A secret for {" and ".join(self._algorithms)} needs at least {needed} bytes.')
            self._keys = secret

    async def claims(self, token: str) -> dict[str, Any]:
        """Return the verified claims of a token.

        Raises:
            InvalidCredentials: The token is malformed or not valid.
            OverloadedError: The issuer's keys are not available at the moment.
        """
        try:
            header = jwt.get_unverified_header(token)
        except PyJWTError:
            raise InvalidCredentials('malformed') from None
        algorithm: object = header.get('alg')
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise InvalidCredentials('algorithm')
        keys = self._keys
        try:
            key = await keys.find(header.get('kid'), algorithm) if isinstance(keys, IssuerKeys) else keys
        except UnknownKey:
            raise InvalidCredentials('key') from None
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],  # a pinned algorithm, and the only algorithm of the key
                audience=self._audiences,
                issuer=self._issuer,
                leeway=self._leeway,
                options={'require': ['exp', 'iss', 'aud'], 'enforce_minimum_key_length': True},
            )
        except ExpiredSignatureError:
            raise InvalidCredentials('expired', 'The token has expired') from None
        except PyJWTError as error:
            raise InvalidCredentials(_REASONS.get(type(error), 'malformed')) from None
