"""Admission of requests: finds the caller, checks scopes, and refuses with challenges and audit lines."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias, cast

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from ...errors import InvalidParamsError, OverloadedError, PermissionDeniedError, UnauthenticatedError
from ...settings.access import Access
from ...types.a2a_objects import SecurityRequirement, SecurityScheme
from ...types.callers import ANONYMOUS, Caller
from ...wire.protocol.request_fields import MAX_ID
from ..audit import Event, Fact, audit
from .authenticator import AllOf, Authenticate, Authenticator, CallableAuth, find_caller
from .caller_claims import MAX_CLAIMS, are_claims
from .challenges import challenges
from .client_machine import PROXY_HEADERS, other_machine
from .invalid_credentials import InvalidCredentials
from .redaction import credential_parameters, is_token, redacted
from .request_info import RequestInfo
from .scopes import needed_scopes

logger = logging.getLogger('pydantic_ai_a2a')

Auth: TypeAlias = Authenticator | Sequence[Authenticator] | Authenticate
"""The values of `auth=`."""


def guard(
    auth: Auth | None,
    access: Access,
    schemes: Mapping[str, SecurityScheme] | None,
    requirements: Sequence[SecurityRequirement] | None,
) -> Guard:
    """Return the guard of an app, from the options of `to_a2a`.

    Raises:
        ValueError: `auth` is empty, two authenticators give one name to different schemes or accept two issuers without
            keeping their callers apart, or scopes are wrong.
    """
    if auth is None or not isinstance(auth, Authenticator | Sequence):
        alone = [] if auth is None else [CallableAuth(auth, schemes or {})]
        return Guard(alone, access, card=(dict(schemes or {}), list(requirements or ())))
    authenticators = [auth] if isinstance(auth, Authenticator) else list(cast('Sequence[Authenticator]', auth))
    if not authenticators:
        raise ValueError(
            'auth= is empty: list an authenticator, or leave auth= out for a server that everybody may call.'
        )
    _check_issuers(authenticators)
    return Guard(authenticators, access)


def _check_issuers(authenticators: Sequence[Authenticator]) -> None:
    """Refuse two issuers whose callers could have the same id."""
    from .jwt import JWTAuth  # noqa: PLC0415 - apps without authenticators need none

    issuers: dict[str, str] = {}
    for authenticator in authenticators:
        decides = authenticator.first if isinstance(authenticator, AllOf) else authenticator
        if not isinstance(decides, JWTAuth) or decides.id_prefix is None:
            continue
        if issuers.setdefault(decides.id_prefix, decides.issuer) != decides.issuer:
            raise ValueError(
                'Two issuers can give the same subject to different callers: give each issuer an id_prefix= of its own.'
            )


class Guard:
    """Admits or refuses the requests of one app.

    Args:
        authenticators: Alternatives, tried in this order; without authenticators, all callers are anonymous.
        access: Scopes of operations, and the owners of tasks.
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
        """True if everybody may call."""
        self.expected = False
        """True if the operator of the server wants anonymous callers from other machines, or was warned of them."""
        self._here: str | None = None
        """An address of this machine."""
        self._scopes = needed_scopes(access.scopes or {})
        self._anonymous_list = access.anonymous_list
        self.scoped = bool(access.scopes)
        """True if an operation needs scopes."""
        self._always = frozenset[str].intersection(*self._scopes.values())
        self.schemes, self.requirements = card or (self._declared(), self._required())
        self._parameters = credential_parameters(self.schemes)

    def _declared(self) -> dict[str, SecurityScheme]:
        schemes: dict[str, SecurityScheme] = {}
        for authenticator in self._authenticators:
            for name, scheme in authenticator.schemes.items():
                if schemes.setdefault(name, scheme) != scheme:
                    raise ValueError(f'Two schemes of auth= have the name {name!r}: give one of them another name=.')
        return schemes

    def _required(self) -> list[SecurityRequirement]:
        """Return the requirements of the card: the alternatives, with the scopes that a message needs."""
        scopes = sorted(self._scopes['SendMessage'])
        requirements: list[SecurityRequirement] = []
        for authenticator in self._authenticators:
            requirement = SecurityRequirement(schemes=dict.fromkeys(authenticator.schemes, scopes))
            if authenticator.schemes and requirement not in requirements:
                requirements.append(requirement)
        return requirements

    def redact(self, query: bytes) -> bytes:
        """Return the query of a request without the credentials of all authenticators."""
        query = redacted(query, self._parameters, is_token)
        for authenticator in self._authenticators:
            query = authenticator.redact(query)
        return query

    async def admit(self, request: RequestInfo) -> Caller:
        """Return the caller who sends a request. The body need not have been read.

        Raises:
            UnauthenticatedError: The caller is unknown.
            PermissionDeniedError: The caller lacks a scope that every operation needs.
            OverloadedError: Credentials cannot be checked at the moment.
        """
        if self.anonymous:
            if not self.expected:  # without calls of functions, because every anonymous request comes here
                here = request.address is None or request.address == self._here
                for name, _ in request.headers:
                    here = here and name not in PROXY_HEADERS
                if not here:
                    self._warn(request)
            return ANONYMOUS
        caller = self.owning(await self._identify(request))
        self._check(caller, self._always, request, None)
        return caller

    def owning(self, caller: Caller) -> Caller:
        """Return the caller with the owner of its tasks from `Access.owner`.

        Raises:
            ValueError: The function returned no name, or the claims of the caller are no JSON.
        """
        if caller.claims and not are_claims(caller.claims):
            raise ValueError(f'Caller.claims must be a JSON object of at most {MAX_CLAIMS} bytes.')
        if self._owner is None or caller.anonymous:
            return caller
        owner: Any = self._owner(caller)  # a user's function may return another type than it declares
        if not isinstance(owner, str) or not owner:
            raise ValueError(f'Access.owner must return a string that is not empty, not {owner!r}.')
        return replace(caller, owns_as=owner)

    async def _identify(self, request: RequestInfo) -> Caller:
        """Return the first caller that an authenticator finds."""
        invalid: dict[Authenticator, InvalidCredentials] = {}
        unavailable: OverloadedError | None = None
        challenge: str | None = None
        for authenticator in self._authenticators:
            try:
                caller = await request.ask('auth=', find_caller(authenticator, request))
            except InvalidCredentials as error:
                invalid[authenticator] = error
            except OverloadedError as error:
                unavailable = error
            except HTTPException as error:  # of FastAPI's security or of Starlette, in a function that others use, too
                if error.status_code == 403:
                    _audit('forbidden', request)
                    raise PermissionDeniedError from None
                if error.status_code != 401:
                    raise
                challenge = challenge or Headers(error.headers).get('www-authenticate')
            else:
                if caller is not None:
                    return caller
        if unavailable is not None:
            _audit('authentication-unavailable', request)
            raise unavailable
        self._refuse(invalid, request, challenge)

    def _warn(self, request: RequestInfo) -> None:
        """Warn once that another machine has called an anonymous server."""
        if (stranger := other_machine(request)) is None:
            self._here = request.address
        else:
            self.expected = True
            logger.warning(
                'The agent does not authenticate callers, and received a request from %s: all callers share one'
                ' owner and see all tasks. Pass auth= to to_a2a() to tell callers apart.',
                stranger,
            )

    def _refuse(
        self, invalid: Mapping[Authenticator, InvalidCredentials], request: RequestInfo, challenge: str | None
    ) -> NoReturn:
        """Refuse the request, with the challenge of a function if there are no schemes."""
        if not invalid:
            _audit('authentication-missing', request)
            own = {} if challenge is None else {'WWW-Authenticate': challenge}
            raise UnauthenticatedError(headers=self._challenge({}) or own)
        reasons = {'+'.join(way.schemes) or type(way).__name__: error.reason for way, error in invalid.items()}
        _audit('authentication-failed', request, reasons=reasons)
        headers = self._challenge({way: _invalid_token(error) for way, error in invalid.items()})
        raise UnauthenticatedError('The credentials are not valid.', headers=headers)

    def authorize(self, caller: Caller, operation: str, request: RequestInfo) -> None:
        """Refuse a caller without the scopes of an operation.

        Raises:
            PermissionDeniedError: The caller lacks a scope.
        """
        self._check(caller, self._scopes[operation], request, operation)

    def check_list(self, caller: Caller, request: RequestInfo) -> None:
        """Refuse a list of tasks to an anonymous caller, who would see the tasks of all anonymous callers.

        Raises:
            PermissionDeniedError: The caller is anonymous and may not list tasks.
        """
        if not caller.anonymous or self._anonymous_list:
            return
        if self._anonymous_list is None and request.address is not None and other_machine(request) is None:
            return
        _audit('forbidden', request, operation='ListTasks', tenant=caller.tenant or None)
        raise PermissionDeniedError(
            'Anonymous callers may not list tasks on this server: send credentials, or read a task by its id.',
            headers=self._challenge({}),
        )

    def refuse_tenant(self, caller: Caller, name: str, request: RequestInfo) -> NoReturn:
        """Refuse a tenant that does not exist, or that the caller may not act in. Only the audit log has its name.

        Raises:
            InvalidParamsError: Always.
        """
        facts = {'caller': caller.id or None, 'tenant': caller.tenant or None}
        _audit('forbidden', request, **facts, named=name[:MAX_ID])
        raise InvalidParamsError.of('tenant', 'is not a tenant of this caller')

    def _check(self, caller: Caller, needed: frozenset[str], request: RequestInfo, operation: str | None) -> None:
        if needed <= caller.scopes:
            return
        _audit(
            'forbidden',
            request,
            operation=operation,
            needed=sorted(needed),
            caller=caller.id,
            tenant=caller.tenant or None,
        )
        names = ' '.join(sorted(needed))
        parameters = {'error': 'insufficient_scope', 'scope': names}
        raise PermissionDeniedError(
            f'The operation needs credentials with the scope: {names}.',
            metadata={'requiredScopes': names},
            headers=self._challenge(dict.fromkeys(self._authenticators, parameters)),
        )

    def _challenge(self, errors: Mapping[Authenticator, Mapping[str, str]]) -> dict[str, str]:
        """Return the header that names the schemes, and the errors of the credentials that were sent."""
        value = challenges(
            (scheme, errors.get(way, {})) for way in self._authenticators for scheme in way.schemes.values()
        )
        return {'WWW-Authenticate': value} if value else {}


def _audit(event: Event, request: RequestInfo, **facts: Fact) -> None:
    audit(event, correlation_id=request.correlation_id, remote=request.address, **facts)


def _invalid_token(error: InvalidCredentials) -> dict[str, str]:
    parameters = {'error': 'invalid_token'}
    return parameters if error.description is None else {**parameters, 'error_description': error.description}
