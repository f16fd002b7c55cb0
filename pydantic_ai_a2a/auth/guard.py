"""Who is let in, and what they may do: asks the authenticators, words the refusals. Knows no wire and no task."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias, cast

from fasta2a.schema import SecurityRequirement, SecurityScheme
from starlette.requests import Request
from starlette.types import Scope

from ..audit import Event, Fact, audit
from ..errors import InvalidParamsError, OverloadedError, PermissionDeniedError, UnauthenticatedError
from ..protocol.fields import MAX_ID
from ..settings import Access
from ..types import ANONYMOUS, Caller
from .base import AllOf, Authenticate, Authenticator, CallableAuth, InvalidCredentials
from .challenge import challenges
from .hosts import OF_PROXIES, remote
from .jwt import JWTAuth
from .scopes import needed_scopes

__all__ = ('Auth', 'Guard', 'guard')

logger = logging.getLogger('pydantic_ai_a2a')

Auth: TypeAlias = Authenticator | Sequence[Authenticator] | Authenticate
"""The values of `auth=`."""

_QUERY = 'pydantic_ai_a2a.query'
"""Where a scope has the query as it was sent, for who authenticates."""


def guard(
    auth: Auth | None,
    access: Access,
    schemes: Mapping[str, SecurityScheme] | None,
    requirements: Sequence[SecurityRequirement] | None,
) -> Guard:
    """Return the guard of an app, from the options of `to_a2a`.

    Raises:
        ValueError: `auth` is empty, two of it give one name to different schemes or take callers of two issuers for the
            same, or scopes are wrong.
    """
    if auth is None or not isinstance(auth, Authenticator | Sequence):
        alone = [] if auth is None else [CallableAuth(auth, schemes or {})]
        return Guard(alone, access, card=(dict(schemes or {}), list(requirements or ())))
    authenticators = [auth] if isinstance(auth, Authenticator) else list(cast('Sequence[Authenticator]', auth))
    if not authenticators:
        raise ValueError('auth= is empty; leave it out for a server that everybody may call.')
    _check_issuers(authenticators)
    return Guard(authenticators, access)


def _check_issuers(authenticators: Sequence[Authenticator]) -> None:
    """See that nobody becomes somebody else by a token of another issuer that has the same subject."""
    issuers: dict[str, str] = {}
    for each in authenticators:
        decides = each.first if isinstance(each, AllOf) else each
        if not isinstance(decides, JWTAuth) or decides.id_prefix is None:
            continue
        if issuers.setdefault(decides.id_prefix, decides.issuer) != decides.issuer:
            raise ValueError(
                'Two issuers may have the same subjects, who would be one caller here:'
                ' keep them apart with an id_prefix= for each.'
            )


class Guard:
    """Decides about requests.

    Args:
        authenticators: Alternatives, asked in this order; without any, everybody is anonymous.
        access: What callers may do, and whose their tasks are.
        card: Schemes and requirements of the card; None takes them from the authenticators.
    """

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        access: Access,
        *,
        card: tuple[dict[str, SecurityScheme], list[SecurityRequirement]] | None = None,
    ) -> None:
        self._owner = access.owner
        self._authenticators = authenticators
        self.anonymous = not authenticators
        """Whether everybody may call."""
        self.expected = False
        """Whether whoever runs the server has said that everybody may: else it is told once that others do."""
        self._here: str | None = None
        """An address that is known to be of this machine."""
        self._scopes = needed_scopes(access.scopes or {})
        self._anonymous_list = access.anonymous_list
        self.scoped = bool(access.scopes)
        """Whether any operation needs scopes."""
        self._always = frozenset[str].intersection(*self._scopes.values())
        self.schemes, self.requirements = card or (self._declared(), self._required())

    def _declared(self) -> dict[str, SecurityScheme]:
        schemes: dict[str, SecurityScheme] = {}
        for each in self._authenticators:
            for name, scheme in each.schemes.items():
                if schemes.setdefault(name, scheme) != scheme:
                    raise ValueError(f'Two schemes of auth= are called {name!r}: give one a name= of its own.')
        return schemes

    def _required(self) -> list[SecurityRequirement]:
        """What the card requires: any of the alternatives, with the scopes that a message needs."""
        scopes = sorted(self._scopes['SendMessage'])
        requirements: list[SecurityRequirement] = []
        for each in self._authenticators:
            requirement = SecurityRequirement(schemes=dict.fromkeys(each.schemes, scopes))
            if each.schemes and requirement not in requirements:
                requirements.append(requirement)
        return requirements

    def redact(self, scope: Scope) -> None:
        """Take credentials out of a request's query before anything else is done with it; `admit` still finds them."""
        if not self._authenticators or not scope.get('query_string'):
            return
        request = Request({**scope, 'type': 'http'})  # that of a websocket is logged as well
        for each in self._authenticators:
            each.redact(request)
        if request.scope['query_string'] != scope['query_string']:
            scope[_QUERY] = _AsSent(scope['query_string'])
            scope['query_string'] = request.scope['query_string']

    async def admit(self, scope: Scope, correlation_id: str) -> Caller:
        """Who calls, before a body is read or state touched.

        Raises:
            UnauthenticatedError: The caller is unknown; or anonymous, and lacks a scope that every operation needs.
            PermissionDeniedError: The caller lacks a scope that every operation needs.
            OverloadedError: Credentials cannot be checked at the moment.
        """
        if self.anonymous:
            if not self.expected:  # looked at without calls, of which each request would have more
                client = scope['client'] if 'client' in scope else None  # noqa: SIM401
                here = client is None or client[0] == self._here
                for name, _ in scope['headers']:
                    here = here and name not in OF_PROXIES
                if not here:
                    self._notice(scope)
            return ANONYMOUS
        request = Request({**scope, 'query_string': scope[_QUERY].query} if _QUERY in scope else scope)
        caller = self.owning(await self._identify(request, correlation_id))
        self._check(caller, self._always, scope, correlation_id, None)
        return caller

    def owning(self, caller: Caller) -> Caller:
        """The caller, who knows now whose its tasks are.

        Raises:
            ValueError: `owner=` has named nobody.
        """
        if self._owner is None or caller.anonymous:
            return caller
        owner: Any = self._owner(caller)  # what a user's function returns, whatever it says that it does
        if not isinstance(owner, str) or not owner:
            raise ValueError(f'owner= must return a string that names somebody, not {owner!r}.')
        return replace(caller, owns_as=owner)

    async def _identify(self, request: Request, correlation_id: str) -> Caller:
        """The first caller that an authenticator finds."""
        invalid: dict[Authenticator, InvalidCredentials] = {}
        unavailable: OverloadedError | None = None
        for each in self._authenticators:
            try:
                caller = await each.authenticate(request)
            except InvalidCredentials as error:
                invalid[each] = error
            except OverloadedError as error:
                unavailable = error
            else:
                if caller is not None:
                    return caller
        if unavailable is not None:
            self._audit('authentication-unavailable', request.scope, correlation_id)
            raise unavailable
        self._refuse(invalid, request.scope, correlation_id)

    def _notice(self, scope: Scope) -> None:
        """Say it, once, when an anonymous server is called from elsewhere."""
        if (stranger := remote(scope)) is None:
            self._here = scope['client'][0]
        else:
            self.expected = True
            logger.warning(
                'Whoever reaches this agent may call it, and %s does: all callers are one owner, who sees everything.'
                ' to_a2a(agent, auth=...) tells them apart.',
                stranger,
            )

    def _refuse(
        self, invalid: Mapping[Authenticator, InvalidCredentials], scope: Scope, correlation_id: str
    ) -> NoReturn:
        if not invalid:
            self._audit('authentication-missing', scope, correlation_id)
            raise UnauthenticatedError(headers=self._challenge({}))
        self._audit(
            'authentication-failed',
            scope,
            correlation_id,
            reasons={'+'.join(each.schemes) or type(each).__name__: error.reason for each, error in invalid.items()},
        )
        headers = self._challenge({each: _invalid_token(error) for each, error in invalid.items()})
        raise UnauthenticatedError('The credentials are not valid.', headers=headers)

    def authorize(self, caller: Caller, operation: str, scope: Scope, correlation_id: str) -> None:
        """See that a caller may perform an operation.

        Raises:
            UnauthenticatedError: The caller is anonymous and lacks a scope for it: credentials may help.
            PermissionDeniedError: The caller lacks a scope for it.
        """
        self._check(caller, self._scopes[operation], scope, correlation_id, operation)

    def check_list(self, caller: Caller, scope: Scope, correlation_id: str) -> None:
        """See that a caller may list tasks: anonymous ones would see those of all the others.

        Raises:
            PermissionDeniedError: The caller is anonymous, and may not.
        """
        if not caller.anonymous or self._anonymous_list:
            return
        if self._anonymous_list is None and scope.get('client') and remote(scope) is None:
            return
        self._audit('forbidden', scope, correlation_id, operation='ListTasks', tenant=caller.tenant or None)
        raise PermissionDeniedError('Anonymous callers may not list tasks here.', headers=self._challenge({}))

    def refuse_tenant(self, caller: Caller, name: str, scope: Scope, correlation_id: str) -> NoReturn:
        """Refuse a tenant that there is not, or not for this caller: nobody but the audit log is told which.

        Raises:
            InvalidParamsError: Always.
        """
        facts = {'caller': caller.id or None, 'tenant': caller.tenant or None}
        self._audit('forbidden', scope, correlation_id, **facts, named=name[:MAX_ID])
        raise InvalidParamsError.of('tenant', 'is none that there is for this caller')

    def check_known(self, caller: Caller, scope: Scope, correlation_id: str) -> None:
        """See that a caller is somebody, where that is needed whatever else is not (§13.3).

        Raises:
            UnauthenticatedError: Nobody vouches for the caller.
        """
        if caller.anonymous:
            self._refuse({}, scope, correlation_id)

    def _check(
        self, caller: Caller, needed: frozenset[str], scope: Scope, correlation_id: str, operation: str | None
    ) -> None:
        if needed <= caller.scopes:
            return
        if caller.anonymous:
            self._refuse({}, scope, correlation_id)
        self._audit(
            'forbidden',
            scope,
            correlation_id,
            operation=operation,
            needed=sorted(needed),
            caller=caller.id,
            tenant=caller.tenant or None,
        )
        names = ' '.join(sorted(needed))
        said = {'error': 'insufficient_scope', 'scope': names}
        raise PermissionDeniedError(
            f'This needs credentials with the scope: {names}.',
            metadata={'requiredScopes': names},
            headers=self._challenge(dict.fromkeys(self._authenticators, said)),
        )

    def _challenge(self, errors: Mapping[Authenticator, Mapping[str, str]]) -> dict[str, str]:
        """The header that says what to send, and what was wrong with what was sent."""
        value = challenges(
            (scheme, errors.get(each, {})) for each in self._authenticators for scheme in each.schemes.values()
        )
        return {'WWW-Authenticate': value} if value else {}

    def _audit(self, event: Event, scope: Scope, correlation_id: str, **facts: Fact) -> None:
        client = scope.get('client')
        audit(event, correlation_id=correlation_id, remote=client[0] if client else None, **facts)


class _AsSent:
    """A query with its credentials, which does not show in a log of the scope."""

    def __init__(self, query: bytes) -> None:
        self.query = query


def _invalid_token(error: InvalidCredentials) -> dict[str, str]:
    told = {'error': 'invalid_token'}
    return told if error.description is None else {**told, 'error_description': error.description}
