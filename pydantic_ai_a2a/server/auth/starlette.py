"""Callers that Starlette's authentication middleware has found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arguments import checked
from ...types.a2a_objects import SecurityScheme
from ...types.callers import Caller
from .authenticator import Authenticator
from .request_info import RequestInfo


@checked
class StarletteAuth(Authenticator):
    """The user that Starlette's `AuthenticationMiddleware` found: `request.user`, with the scopes of `request.auth`.

    The middleware is around this app (`middleware=`) or around the app that this app is mounted in. A user who is not
    authenticated is refused. The caller's id is the user's `identity`, or `display_name` if the user has no `identity`.

    Args:
        schemes: The schemes of the middleware's backend for the agent card, by name; None declares no scheme.
        tenant: The tenant of all callers.
        claims: Returns facts about a user for `Caller.claims`, as JSON values. None: no claims.
    """

    def __init__(
        self,
        schemes: dict[str, SecurityScheme] | None = None,
        *,
        tenant: str = '',
        claims: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> None:
        self.schemes = schemes or {}
        self._tenant = tenant
        self._claims = claims

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        """Return the middleware's user, or None if the user is not authenticated.

        Raises:
            RuntimeError: The app is not inside the middleware.
        """
        scope = request.scope or {}
        if 'user' not in scope or 'auth' not in scope:
            raise RuntimeError(
                "StarletteAuth needs Starlette's AuthenticationMiddleware around the app: add it to the outer app."
            )
        user: Any = scope['user']
        if not user.is_authenticated:
            return None
        claims = dict[str, Any]() if self._claims is None else self._claims(user)
        scopes = frozenset(scope['auth'].scopes)
        return Caller(id=_identity(user), tenant=self._tenant, scopes=scopes, claims=claims)


def _identity(user: Any) -> str:
    """Return the lasting name of a user.

    Raises:
        RuntimeError: The user has no name and would be like an anonymous caller.
    """
    try:
        identity = user.identity
    except (NotImplementedError, AttributeError):  # a user class may lack `identity`, which is newer
        identity = user.display_name
    if not identity:
        raise RuntimeError(
            'The user of AuthenticationMiddleware has no identity and no display_name: give its class one of them.'
        )
    return str(identity)
