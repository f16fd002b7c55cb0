"""A function of the user as an authenticator."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isawaitable

from ...types.a2a_objects import SecurityScheme
from ...types.callers import Caller
from .authenticator import Authenticate, Authenticator
from .request_info import RequestInfo


class CallableAuth(Authenticator):
    """A user's function for finding the caller.

    Args:
        authenticate: The function.
        schemes: The schemes of the agent card.
    """

    def __init__(self, authenticate: Authenticate, schemes: Mapping[str, SecurityScheme]) -> None:
        self.function = authenticate
        self.schemes = schemes

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        """Return the caller from the function."""
        caller = self.function(request.starlette())
        return await caller if isawaitable(caller) else caller
