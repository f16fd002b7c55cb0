"""Who is let in, and what they may do: asks the authenticators, words the refusals. Knows no wire and no task."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from fasta2a.schema import SecurityRequirement, SecurityScheme
from starlette.requests import Request
from starlette.types import Scope

from ..audit import Event, Fact, audit
from ..errors import OverloadedError, PermissionDeniedError, UnauthenticatedError
from ..types import ANONYMOUS, Caller
from .base import AllOf, Authenticate, Authenticator, CallableAuth, InvalidCredentials
from .challenge import challenges
from .hosts import is_loopback
from .jwt import JWTAuth
from .scopes import needed_scopes

__all__ = ('Guard', 'guard')

logger = logging.getLogger('pydantic_ai_a2a')


def guard(
    auth: Authenticator | Sequence[Authenticator] | None,
    authenticate: Authenticate | None,
    scopes: Mapping[str, str | Collection[str]] | None,
    schemes: Mapping[str, SecurityScheme] | None,
    requirements: Sequence[SecurityRequirement] | None,
) -> Guard:
    """The guard of an app, from what the user gave.

    Raises:
        TypeError: `auth` is given with `authenticate`, or with schemes or requirements for the card, which are its own;
            or scopes with neither.
        ValueError: `auth` is empty, two of it give one name to different schemes or take callers of two issuers for the
            same, or scopes are wrong.
    """
    if auth is None:
        alone = [] if authenticate is None else [CallableAuth(authenticate, schemes or {})]
        return Guard(alone, scopes or {}, card=(dict(schemes or {}), list(requirements or ())))
    if authenticate is not None:
        raise TypeError('Give auth= or authenticate=, not both.')
    if schemes or requirements:
        raise TypeError('With auth=, the card gets its security_schemes and security_requirements from it.')
    authenticators = [auth] if isinstance(auth, Authenticator) else list(auth)
    if not authenticators:
        raise ValueError('auth= is empty; leave it out for a server that everybody may call.')
    _check_issuers(authenticators)
    return Guard(authenticators, scopes or {})


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
        scopes: What operations need.
        card: Schemes and requirements of the card; None takes them from the authenticators.
    """

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        scopes: Mapping[str, str | Collection[str]],
        *,
        card: tuple[dict[str, SecurityScheme], list[SecurityRequirement]] | None = None,
    ) -> None:
        if scopes and not authenticators:
            raise TypeError('scopes= needs auth= or authenticate=: an anonymous caller has none.')
        self._authenticators = authenticators
        self.anonymous = not authenticators
        """Whether everybody may call."""
        self.expected = False
        """Whether whoever runs the server has said that everybody may: else it is told once that others do."""
        self._client: str | None = None
        self._scopes = needed_scopes(scopes)
        self.anonymous_list: bool | None = None
        """Whether anonymous callers may list tasks; None: those on this machine."""
        self.scoped = bool(scopes)
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

    async def admit(self, scope: Scope, correlation_id: str) -> Caller:
        """Who calls, before a body is read or state touched.

        Raises:
            UnauthenticatedError: Nobody that is known.
            PermissionDeniedError: Somebody who lacks a scope that every operation needs.
            OverloadedError: Credentials cannot be checked at the moment.
        """
        if self.anonymous:
            client = scope['client'] if 'client' in scope else None  # noqa: SIM401 - a call for each request
            if client is not None and client[0] != self._client:
                self._notice(client[0])
            return ANONYMOUS
        request = Request(scope)
        try:
            caller = await self._identify(request, correlation_id)
        finally:
            for each in self._authenticators:
                each.redact(request)
        self._check(caller, self._always, scope, correlation_id, None)
        return caller

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

    def _notice(self, client: str) -> None:
        """Say it, once, when an anonymous server is called from elsewhere."""
        self._client = client
        if not self.expected and is_loopback(client) is False:
            self.expected = True
            logger.warning(
                'Whoever reaches this agent may call it, and %s does: all callers are one owner, who sees everything.'
                ' to_a2a(agent, auth=...) tells them apart.',
                client,
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
            PermissionDeniedError: The caller lacks a scope for it.
        """
        self._check(caller, self._scopes[operation], scope, correlation_id, operation)

    def check_list(self, caller: Caller, scope: Scope, correlation_id: str) -> None:
        """See that a caller may list tasks: anonymous ones would see those of all the others.

        Raises:
            PermissionDeniedError: The caller is anonymous, and may not.
        """
        if not caller.anonymous or self.anonymous_list:
            return
        client = scope.get('client')
        if self.anonymous_list is None and client and is_loopback(client[0]) is not False:
            return
        self._audit('forbidden', scope, correlation_id, operation='ListTasks', tenant=caller.tenant or None)
        raise PermissionDeniedError('Anonymous callers may not list tasks here.', headers=self._challenge({}))

    def _check(
        self, caller: Caller, needed: frozenset[str], scope: Scope, correlation_id: str, operation: str | None
    ) -> None:
        if needed <= caller.scopes:
            return
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


def _invalid_token(error: InvalidCredentials) -> dict[str, str]:
    told = {'error': 'invalid_token'}
    return told if error.description is None else {**told, 'error_description': error.description}
