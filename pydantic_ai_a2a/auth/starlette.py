"""Callers that Starlette's authentication middleware has found. Knows none of its backends."""

from __future__ import annotations

from typing import Any

from fasta2a.schema import SecurityScheme
from starlette.requests import Request

from ..arguments import checked
from ..types import Caller
from .base import Authenticator

__all__ = ('StarletteAuth',)


@checked
class StarletteAuth(Authenticator):
    """Who Starlette's `AuthenticationMiddleware` says that it is: `request.user`, with the scopes of `request.auth`.

    The middleware is around this app (`middleware=`) or around the one that it is mounted in. A user who is not
    authenticated is refused. The caller's id is the user's `identity`, or its `display_name` where it has none.

    Args:
        schemes: What the middleware's backend reads, for the agent card, by name; None declares nothing.
        tenant: The tenant that all of them act in.
    """

    def __init__(self, schemes: dict[str, SecurityScheme] | None = None, *, tenant: str = '') -> None:
        self.schemes = schemes or {}
        self._tenant = tenant

    async def authenticate(self, request: Request) -> Caller | None:
        """The middleware's user; None if it is not authenticated.

        Raises:
            RuntimeError: There is no such middleware.
        """
        if 'user' not in request.scope or 'auth' not in request.scope:
            raise RuntimeError("StarletteAuth needs Starlette's AuthenticationMiddleware around the app.")
        user: Any = request.scope['user']
        if not user.is_authenticated:
            return None
        return Caller(id=_identity(user), tenant=self._tenant, scopes=frozenset(request.scope['auth'].scopes))


def _identity(user: Any) -> str:
    """What names the user for good.

    Raises:
        RuntimeError: Nothing does, so that it would be as good as anonymous.
    """
    try:
        identity = user.identity
    except (NotImplementedError, AttributeError):  # it is younger than `display_name`, and SimpleUser lacked it
        identity = user.display_name
    if not identity:
        raise RuntimeError('An authenticated user has neither an identity nor a display_name.')
    return str(identity)
