"""The base of the ways to authenticate: each finds a caller in a request and declares itself on the agent card."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, TypeAlias

from starlette.requests import Request

from ...arguments import checked
from ...types.a2a_objects import SecurityScheme
from ...types.callers import Caller
from .operator_functions import refuse_value
from .request_info import RequestInfo

Authenticate: TypeAlias = Callable[[Request], Caller | Awaitable[Caller | None] | None]
"""Returns the caller who sends a request, or None to refuse the request with HTTP 401.

`HTTPException` of Starlette or FastAPI with the status 401 or 403 also refuses. So does an anonymous caller.
"""


class Authenticator(ABC):
    """A way to authenticate. Several authenticators in `auth=` are alternatives: the first found caller counts.

    A subclass sets `schemes` and defines `authenticate`.
    """

    schemes: Mapping[str, SecurityScheme] = MappingProxyType({})
    """The schemes of the agent card, by name (§4.5), also used for the challenges of HTTP 401 and 403."""

    @abstractmethod
    async def authenticate(self, request: RequestInfo) -> Caller | None:
        """Return the caller who sends a request, or None if the request has no credentials of this kind.

        The method is called before the body is read.

        Raises:
            InvalidCredentials: The request has credentials, but they are not valid. The other alternatives are tried.
            OverloadedError: The credentials cannot be checked at the moment. The client gets HTTP 503, unless another
                alternative finds a caller.
            HTTPException: With the status 401, like None; with the status 403, the caller may not call.
        """

    def redact(self, query: bytes) -> bytes:
        """Return the query of a request without credentials. By default, the query stays as it is.

        The method is called first for every request with a query. The access log and all other code see the redacted
        query. Only `authenticate` sees the query that the client sent.
        """
        return query


async def find_caller(way: Authenticator, request: RequestInfo) -> Caller | None:
    """Return the caller that an authenticator finds. An anonymous caller, or another value, is none and is logged."""
    # A user's function may return another type than it declares.
    caller: Any = await way.authenticate(request)
    if caller is None or (isinstance(caller, Caller) and not caller.anonymous):
        return caller
    refuse_value('auth=', getattr(way, 'function', way), caller, 'a Caller with an id, or None')
    return None


@checked
class AllOf(Authenticator):
    """Several authenticators at once: a request needs the credentials of all authenticators.

    Args:
        first: Finds the caller, with tenant and scopes.
        others: Must find a caller, too.
    """

    def __init__(self, first: Authenticator, *others: Authenticator) -> None:
        self.first = first
        self._all = (first, *others)
        self.schemes = {name: scheme for way in self._all for name, scheme in way.schemes.items()}
        if len(self.schemes) < sum(len(way.schemes) for way in self._all):
            raise ValueError('Two schemes of AllOf have the same name: give one of them another name=.')

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        """Return the caller that the first way finds, or None if credentials are missing."""
        callers = [await find_caller(way, request) for way in self._all]
        return None if None in callers else callers[0]

    def redact(self, query: bytes) -> bytes:
        """Return the query without the credentials of all ways."""
        for way in self._all:
            query = way.redact(query)
        return query


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
