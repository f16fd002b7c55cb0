"""JSON Web Tokens of an issuer (RFC 7519, OpenID Connect): settings, and the callers of claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from ...arguments import checked
from ...errors import needs_extra
from ...issuer_requests import openid_url
from ...time_spans import seconds
from ...types.a2a_objects import (
    HttpSecurityScheme,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityScheme,
)
from ...types.callers import Caller
from .authenticator import Authenticator
from .bearer_tokens import bearer_token
from .caller_claims import are_claims
from .invalid_credentials import InvalidCredentials
from .request_info import RequestInfo

if TYPE_CHECKING:
    from .jwt_verifier import JWTVerifier


@checked
class JWTAuth(Authenticator):
    """Bearer tokens that an issuer has signed: OAuth 2 access tokens in the form of JWTs, OpenID Connect.

    Needs the extra `jwt`: `pip install 'pydantic-ai-a2a[jwt]'`. A token must have `iss`, `aud` and `exp`, and its times
    (`exp`, `nbf`, `iat`) must be valid now. The issuer's keys are fetched when the first token comes.

    Args:
        issuer: The exact value of `iss`. The issuer's keys are found by OpenID Connect's discovery, below this URL.
        audience: The value of `aud`, or a member of `aud`: the name of this agent at the issuer, or several names.
        jwks_url: The URL of the issuer's keys, if the issuer has no discovery.
        secret: A secret shared with the issuer, 32 bytes or more, for signatures with HMAC instead of a key pair.
        algorithms: The only accepted algorithms. Default: all of RS, PS, ES and EdDSA, or with a secret HS256.
        leeway: Seconds that the issuer's clock may be off; at most 300.
        id_claim: The claim with the caller's id.
        id_prefix: A prefix of the caller's id, to keep the subjects of several issuers apart.
        tenant_claim: The claim with the caller's tenant. A token without the claim is refused. None: no tenants.
        scope_claims: Claims with the caller's scopes: text with spaces between scopes, or a list. All claims count.
        claims: Names of the claims that `Caller.claims` keeps for runs, such as `email`. A token may lack a claim.
        caller: Returns the caller of claims, instead of these five options, or None to refuse the claims.
        cache: Seconds until the keys are fetched again.
        stale: Seconds beyond `cache` for which keys are used if the issuer does not answer. After that, HTTP 503.
        refetch: Minimum seconds between two attempts to fetch the keys, also if many tokens have unknown keys.
        flows: OAuth 2 flows for the card, by which clients get a token, beside the discovery URL. By default, the card
            names only the discovery URL. With a `jwks_url` or a `secret`, there is no discovery URL, and without
            flows, the card declares bearer tokens.
        name: Name of the scheme on the agent card.

    Raises:
        ImportError: The extra `jwt` is not installed.
        ValueError: An argument is empty or out of its bounds, a URL is neither `https` nor of this machine, the secret
            is too short, or the algorithms do not fit: algorithms of key pairs and of secrets never go together.
    """

    def __init__(
        self,
        issuer: str,
        audience: str | Sequence[str],
        *,
        jwks_url: str | None = None,
        secret: str | bytes | None = None,
        algorithms: Sequence[str] | None = None,
        leeway: timedelta | float = 30.0,
        id_claim: str = 'sub',
        id_prefix: str = '',
        tenant_claim: str | None = None,
        scope_claims: Sequence[str] = ('scope', 'scp'),
        claims: Sequence[str] = (),
        caller: Callable[[Mapping[str, Any]], Caller | None] | None = None,
        cache: timedelta | float = 600.0,
        stale: timedelta | float = 3600.0,
        refetch: timedelta | float = 30.0,
        flows: OAuthFlows | None = None,
        name: str = 'jwt',
    ) -> None:
        self.issuer = issuer
        self.id_prefix = id_prefix if caller is None else None
        """The prefix of the subjects; None if a function makes the callers."""
        self._id_claim = id_claim
        self._tenant_claim = tenant_claim
        self._scope_claims = tuple(scope_claims)
        self._claims = tuple(claims)
        self.function = caller or self._by_claims
        discovery = openid_url(issuer) if jwks_url is None and secret is None else None
        self._verifier = _verifier(
            issuer,
            [audience] if isinstance(audience, str) else list(audience),
            jwks_url=jwks_url,
            discovery=discovery,
            secret=secret.encode() if isinstance(secret, str) else secret,
            algorithms=algorithms,
            leeway=seconds(leeway),
            times=(seconds(cache), seconds(stale), seconds(refetch)),
        )
        self.schemes = {name: _scheme(flows, discovery)}

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        """Return the caller for whom the token of the request was issued, or None without a token.

        Raises:
            InvalidCredentials: The token is not valid, or has no caller in its claims.
            OverloadedError: The issuer's keys are not available at the moment.
        """
        token = bearer_token(request)
        if token is None:
            return None
        caller = self.function(await self._verifier.claims(token))
        if caller is None:
            raise InvalidCredentials('claims')
        return caller

    def _by_claims(self, claims: Mapping[str, Any]) -> Caller:
        tenant = '' if self._tenant_claim is None else _text(claims, self._tenant_claim)
        scopes = frozenset(scope for claim in self._scope_claims for scope in _scopes(claims.get(claim)))
        kept = {name: claims[name] for name in self._claims if name in claims}
        if not are_claims(kept):
            raise InvalidCredentials('claims')
        name = f'{self.id_prefix}{_text(claims, self._id_claim)}'
        return Caller(id=name, tenant=tenant, scopes=scopes, claims=kept)


def _verifier(issuer: str, audiences: list[str], **options: Any) -> JWTVerifier:
    try:
        from .jwt_verifier import JWTVerifier  # noqa: PLC0415 - of an extra, and cryptography takes long to import
    except ImportError as error:
        raise ImportError(needs_extra('JWTAuth', 'jwt')) from error
    return JWTVerifier(issuer, audiences, **options)


def _scheme(flows: OAuthFlows | None, discovery: str | None) -> SecurityScheme:
    if flows is not None:
        oauth2 = OAuth2SecurityScheme(flows=flows)
        if discovery is not None:
            oauth2['oauth2_metadata_url'] = discovery
        return SecurityScheme(oauth2_security_scheme=oauth2)
    if discovery is not None:
        openid = OpenIdConnectSecurityScheme(open_id_connect_url=discovery)
        return SecurityScheme(open_id_connect_security_scheme=openid)
    return SecurityScheme(http_auth_security_scheme=HttpSecurityScheme(scheme='Bearer', bearer_format='JWT'))


def _text(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidCredentials(f'claim {claim}')
    return value


def _scopes(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return [scope for scope in cast('list[object]', value) if isinstance(scope, str)]
    return []
