"""What a way to authenticate offers: it finds a caller in a request, and says so on the card. Knows no operation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from types import MappingProxyType
from typing import TypeAlias

from fasta2a.schema import SecurityScheme
from starlette.requests import Request

from ..arguments import checked
from ..types import Caller

__all__ = ('AllOf', 'Authenticate', 'Authenticator', 'CallableAuth', 'InvalidCredentials', 'one')

Authenticate: TypeAlias = Callable[[Request], Caller | Awaitable[Caller | None] | None]
"""Says who sends a request; None refuses it with HTTP 401."""


class InvalidCredentials(Exception):
    """Credentials that are there and not good; an `Authenticator` raises it.

    Args:
        reason: What is wrong in a word or two, such as `expired`, for the audit log. Never the credential.
        description: What the client is told besides `invalid_token`, if anything; in ASCII.
    """

    def __init__(self, reason: str, description: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description


class Authenticator(ABC):
    """One way to authenticate. Several in `auth=` are alternatives: the first that finds a caller decides.

    A subclass of your own sets `schemes` and has `authenticate`.
    """

    schemes: Mapping[str, SecurityScheme] = MappingProxyType({})
    """What a request needs, as the agent card declares it: each scheme by its name there (§4.5). The challenges of HTTP
    401 and 403 are made from it as well."""

    @abstractmethod
    async def authenticate(self, request: Request) -> Caller | None:
        """Who sends a request; None if it has no credentials of this kind.

        It is asked before the body is read: the request has headers, cookies, a query and an address.

        Raises:
            InvalidCredentials: It has some, and they are not good. Other alternatives are asked all the same.
            OverloadedError: They cannot be checked at the moment. The client is answered with HTTP 503, unless another
                alternative finds a caller.
        """

    def redact(self, request: Request) -> None:  # noqa: B027 - most ways have nothing to take out
        """Take credentials out of the request's query, `request.scope['query_string']`.

        It is called for every request that has a query, before anything else is done with it: what it leaves there is
        what the server's access log and everybody further in see, but for `authenticate`. By default it does nothing.
        """


@checked
class AllOf(Authenticator):
    """Several ways at once: a request needs the credentials of all of them.

    The caller is whom the first one finds, with its tenant and scopes.

    Args:
        first: Says who calls.
        others: Have to find somebody, too.
    """

    def __init__(self, first: Authenticator, *others: Authenticator) -> None:
        self.first = first
        self._all = (first, *others)
        self.schemes = {name: scheme for each in self._all for name, scheme in each.schemes.items()}
        if len(self.schemes) < sum(len(each.schemes) for each in self._all):
            raise ValueError('AllOf needs schemes of different names: give one a name= of its own.')

    async def authenticate(self, request: Request) -> Caller | None:
        """Who sends a request, as the first says; None if credentials are missing."""
        callers = [await each.authenticate(request) for each in self._all]
        return None if None in callers else callers[0]

    def redact(self, request: Request) -> None:
        """Take out what any of them would."""
        for each in self._all:
            each.redact(request)


class CallableAuth(Authenticator):
    """A function of the user's own, which says only who calls; what the card declares is given besides.

    Args:
        authenticate: Returns None for whom it does not know, without a reason.
        schemes: What the card declares.
    """

    def __init__(self, authenticate: Authenticate, schemes: Mapping[str, SecurityScheme]) -> None:
        self._authenticate = authenticate
        self.schemes = schemes

    async def authenticate(self, request: Request) -> Caller | None:
        """Who sends a request, as the function says."""
        caller = self._authenticate(request)
        return await caller if isawaitable(caller) else caller


def one(values: list[str]) -> str | None:
    """The value that a request has in some place; None if there is none.

    Raises:
        InvalidCredentials: There are several, of which others on the way may have read another.
    """
    if len(values) > 1:
        raise InvalidCredentials('several')
    return values[0] if values else None
