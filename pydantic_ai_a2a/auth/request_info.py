"""The base of the ways to authenticate: each finds a caller in a request and declares itself on the agent card."""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable, iscoroutine
from ipaddress import IPv6Address, ip_address
from math import inf
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, cast
from urllib.parse import parse_qsl, unquote_plus

from pydantic_core import from_json, to_json
from starlette.requests import Request, cookie_parser

from ..arguments import checked
from ..errors import ClientGone, OverloadedError
from ..protocol.fields import MAX_ID
from ..protocol.operations import OPERATIONS
from ..settings import TenantRule
from ..types import Caller, SecurityScheme

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')

PATIENCE = 30.0
"""Seconds for a function of the operator that decides about a request."""
_MOMENT = 1.0
"""Seconds until a request watches its client: most functions return sooner."""

Authenticate: TypeAlias = Callable[[Request], Caller | Awaitable[Caller | None] | None]
"""Returns the caller who sends a request, or None to refuse the request with HTTP 401.

`HTTPException` of Starlette or FastAPI with the status 401 or 403 also refuses. So does an anonymous caller.
"""


async def allows(option: str, function: Callable[..., Any], *args: Any) -> bool:
    """Return True if the operator's function, async or not, returns True for the arguments.

    A value that is no bool, such as a forgotten coroutine, allows nothing. It gets a line in the log.

    Args:
        option: The option with the function, for the log.
        function: The function.
        args: The arguments of the function.
    """
    allowed = function(*args)
    if isawaitable(allowed):
        allowed = await allowed
    return allowed if isinstance(allowed, bool) else refuse_value(option, function, allowed, 'True or False')


def refuse_value(option: str, function: object, value: object, wanted: str) -> bool:
    """Log that a function of the operator returned a value that allows nothing, and return False."""
    name = getattr(function, '__qualname__', type(function).__qualname__)
    # The value itself may be a credential.
    logger.error('%s %s returned %s instead of %s: the caller is refused.', option, name, type(value).__name__, wanted)
    if iscoroutine(value):
        value.close()  # else Python warns that nobody awaited it
    return False


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


# --- the bounds of claims about callers, which are stored with tasks --------------------------------------------------

MAX_CLAIMS = 10_000
"""Maximum bytes of the claims of a caller, as JSON."""


def are_claims(claims: Mapping[str, Any]) -> bool:
    """Return True if claims are a JSON object of at most `MAX_CLAIMS` bytes."""
    try:
        body = to_json(claims)
        return len(body) <= MAX_CLAIMS and from_json(body) == claims
    except (ValueError, TypeError, RecursionError):
        return False


# --- the values of a request that say who sends the request -----------------------------------------------------------
# Every transport fills them in.


class InvalidCredentials(Exception):
    """The request has credentials, but they are not valid. An `Authenticator` raises this error.

    Args:
        reason: A word or two for the audit log, such as `expired`. Never the credential.
        description: ASCII text that the client gets besides `invalid_token`, if any.
    """

    def __init__(self, reason: str, description: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description


class _Steps(Generic[T]):
    """Awaits a function of the operator, and counts how often it cancels the asyncio task of its own request.

    All other cancels come between two steps of the function.
    """

    def __init__(self, steps: Generator[Any, Any, T], task: asyncio.Task[Any]) -> None:
        self._steps = steps
        self._task = task
        self.cancels = 0

    def __await__(self) -> Generator[Any, Any, T]:
        step = partial(self._steps.send, None)
        while True:
            before = self._task.cancelling()
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            finally:
                self.cancels += max(0, self._task.cancelling() - before)
            try:
                step = partial(self._steps.send, (yield waits_for))
            except BaseException as error:  # the function gets it, such as a cancel
                step = partial(self._steps.throw, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """The values of a request, without its body, that an `Authenticator` reads."""

    correlation_id: str
    """Names the request in its answer and in the logs."""
    headers: Iterable[tuple[bytes, bytes]] = field(default=(), repr=False)
    """Names in lower case, and values."""
    query: bytes = field(default=b'', repr=False)
    """The query of the URL as the client sent it."""
    address: str | None = None
    """The address of the client at the other end of the connection; None if the transport has no address."""
    scope: MutableMapping[str, Any] | None = field(default=None, repr=False)
    """The ASGI scope of a request over HTTP; None for other transports."""
    tls_names: tuple[str, ...] = field(default=(), repr=False)
    """The alternative names in the client's certificate, each after its kind: `URI:spiffe://example.com/planner`,
    `DNS:planner.example.com`, `IP:192.0.2.7` or `email:planner@example.com`. A certificate without alternative names
    has its common name, as `CN:planner`. The transport has verified the certificate. Empty without a certificate, and
    for one whose names have a NUL. Only gRPC with `client_ca` fills them in."""
    gone: Callable[[], Coroutine[Any, Any, None]] = field(default=partial(asyncio.sleep, inf), repr=False)
    """Returns once the client has gone."""
    base_url: Callable[[], str] = field(default=str, repr=False)
    """Returns the URL under which the client reached the app; empty for transports without URLs."""

    async def ask(self, option: str, work: Awaitable[T]) -> T:
        """Await a function of the operator, in time and while the client is there.

        Args:
            option: The option with the function, for the log.
            work: The function.

        Raises:
            OverloadedError: The function has not returned in time.
            ClientGone: The client has gone.
        """
        loop, task = asyncio.get_running_loop(), cast('asyncio.Task[Any]', asyncio.current_task())
        moment = min(_MOMENT, PATIENCE)
        watches: list[asyncio.Task[None]] = []
        ended: list[Exception] = []

        async def watch() -> None:
            try:
                async with asyncio.timeout(PATIENCE - moment):
                    await self.gone()
                ended.append(ClientGone())
            except TimeoutError:
                text = '%s has not returned within %g s (correlation id %s).'
                logger.error(text, option, PATIENCE, self.correlation_id)
                ended.append(OverloadedError(headers={'Retry-After': '1'}))
            task.cancel()

        timer = loop.call_later(moment, lambda: watches.append(loop.create_task(watch())))
        steps = _Steps(work.__await__(), task)
        try:
            return await steps
        except asyncio.CancelledError:
            if not ended or task.cancelling() > len(ended) + steps.cancels:
                raise  # the server ends the request
            raise ended[0] from None
        finally:
            for watching in (timer, *watches):
                watching.cancel()
            for _ in range(steps.cancels + len(ended)):
                task.uncancel()

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None without the header.

        Raises:
            InvalidCredentials: The header comes several times. A proxy may have read another value.
        """
        raw = name.lower().encode('latin-1')
        return _one([value.decode('latin-1') for key, value in self.headers if key == raw])

    def parameter(self, name: str) -> str | None:
        """Return the value of a query parameter, or None without the parameter.

        Raises:
            InvalidCredentials: The parameter comes several times. A proxy may have read another value.
        """
        parameters = parse_qsl(self.query.decode('latin-1'), keep_blank_values=True)
        return _one([value for key, value in parameters if key == name])

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie, or None without the cookie."""
        cookies = b'; '.join(value for key, value in self.headers if key == b'cookie')
        return cookie_parser(cookies.decode('latin-1')).get(name)

    def starlette(self) -> Request:
        """Return the request as Starlette's, without a body."""
        if self.scope is not None:
            return Request(self.scope)
        client = None if self.address is None else (self.address, 0)
        headers = list(self.headers)
        return Request({'type': 'http', 'headers': headers, 'query_string': self.query, 'client': client})


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the value of a header, several values joined with commas; None without the header."""
    first: bytes | None = None
    for key, value in headers:
        if key == name:
            if first is not None:
                return b','.join(value for key, value in headers if key == name).decode('latin-1')
            first = value
    return None if first is None else first.decode('latin-1')


def _one(values: list[str]) -> str | None:
    if len(values) > 1:
        raise InvalidCredentials('several')
    return values[0] if values else None


# --- the tenant of a caller, from the caller's credentials or from the request ----------------------------------------


def is_name(name: str, reserved: Collection[str]) -> bool:
    """True if a tenant can have the name: it can stand in a path and is none of the reserved names."""
    return (
        0 < len(name) <= MAX_ID
        and name not in reserved
        and name not in ('.', '..')
        and not name.startswith('message:')
        and name.isprintable()
    )


class Tenants:
    """The tenants that requests may name.

    Args:
        rule: The rule of the settings.
        reserved: First segments of the app's paths. No tenant may have such a name.

    Raises:
        ValueError: A name is reserved or not legal in a path.
    """

    def __init__(self, rule: TenantRule, reserved: Collection[str]) -> None:
        self._reserved = frozenset(reserved)
        self._rule = rule
        if isinstance(rule, Collection):
            self._rule = names = frozenset(cast('Collection[str]', rule))
            if bad := sorted(name for name in names if not self.may_be(name)):
                raise ValueError(
                    f'{bad[0]!r} cannot be the name of a tenant: the name is reserved, or not valid in a path.'
                )

    def may_be(self, name: str) -> bool:
        """Return whether a tenant could have the name. The tenant need not exist."""
        return is_name(name, self._reserved)

    async def settle(self, caller: Caller, name: str) -> Caller | None:
        """Return the caller in the tenant that the request names; None if the caller may not act in this tenant.

        Args:
            caller: The caller of the credentials. A tenant of the credentials cannot be changed.
            name: The tenant; empty if the request names no tenant.
        """
        if not name or name == caller.tenant:
            return caller
        if caller.tenant or not self.may_be(name) or not await self._allows(caller, name):
            return None
        return replace(caller, tenant=name)

    async def _allows(self, caller: Caller, name: str) -> bool:
        rule = self._rule
        if isinstance(rule, bool):
            return rule
        if isinstance(rule, Collection):
            return name in rule
        return await allows('Access.tenants', rule, caller, name)


# --- the value of `WWW-Authenticate` for the schemes of a server (RFC 9110 §11.6, RFC 6750 §3) ------------------------

_REALM = 'realm="a2a"'
_UNQUOTABLE = re.compile(r'[^ !#-\[\]-~]')


def challenges(schemes: Iterable[tuple[SecurityScheme, Mapping[str, str]]]) -> str:
    """Return the header's value with each HTTP scheme once, in order; empty without HTTP schemes, as for certificates.

    Args:
        schemes: The schemes of the card, each with the parameters that describe an error of its credentials.
    """
    challenge_of: dict[str, str] = {}
    for scheme, errors in schemes:
        name, parameters = _challenge(scheme)
        if name and (errors or name not in challenge_of):
            challenge_of[name] = ', '.join([*parameters, *(_parameter(key, value) for key, value in errors.items())])
    return ', '.join(f'{name} {parameters}' for name, parameters in challenge_of.items())


def _challenge(scheme: SecurityScheme) -> tuple[str, list[str]]:
    """Return the name and the parameters of a scheme's challenge; an empty name for a scheme outside HTTP."""
    if 'http_auth_security_scheme' in scheme:
        return scheme['http_auth_security_scheme']['scheme'], [_REALM]
    if 'api_key_security_scheme' in scheme:
        key = scheme['api_key_security_scheme']
        return 'ApiKey', [_REALM, _parameter('in', key['location']), _parameter('name', key['name'])]
    return '' if 'mtls_security_scheme' in scheme else 'Bearer', [_REALM]


def _parameter(name: str, value: str) -> str:
    """Return a parameter of a challenge without the characters that are illegal between quotes."""
    return f'{name}="{_UNQUOTABLE.sub("", value)}"'


# --- the scopes that each operation needs -----------------------------------------------------------------------------

_SCOPE = re.compile(r'[!#-\[\]-~]+')
"""A scope-token of RFC 6749 §3.3, which can stand in a header."""
_ALL = '*'


def needed_scopes(scopes: Mapping[str, str | Collection[str]]) -> dict[str, frozenset[str]]:
    """Return the scopes of each operation. A caller needs all scopes of an operation.

    Args:
        scopes: Scopes by the name of an operation in A2A 1.0. `*` stands for the other operations.

    Raises:
        ValueError: An operation does not exist, or a scope has illegal characters.
    """
    unknown = scopes.keys() - OPERATIONS.keys() - {_ALL}
    if unknown:
        raise ValueError(
            f'Access.scopes has {min(unknown)!r}, which is not an operation: use {", ".join(OPERATIONS)} or *.'
        )
    configured = {name: _read(value) for name, value in scopes.items()}
    rest = configured.get(_ALL, frozenset[str]())
    return {
        name: configured.get(name, configured.get(operation.scopes_of, rest)) for name, operation in OPERATIONS.items()
    }


def _read(value: str | Collection[str]) -> frozenset[str]:
    names = frozenset([value] if isinstance(value, str) else value)
    for name in names:
        if _SCOPE.fullmatch(name) is None:
            raise ValueError(
                f'{name!r} is not a valid scope: use printable ASCII without spaces, quotes and backslashes.'
            )
    return names


# --- redaction --------------------------------------------------------------------------------------------------------
# Removes credentials from the query of a URL before logging, in all encodings and spellings.

_TOKEN = re.compile(r'eyJ[\w-]*\.[\w-]*\.[\w-]*')
"""A JSON Web Token."""

_DECODINGS = 4
"""Limit of how often a part of a query is decoded: proxies and clients encode twice by mistake."""


def parameters(schemes: Mapping[str, SecurityScheme]) -> list[str]:
    """Return the names of query parameters that may have credentials of the schemes.

    Clients put a bearer token into `access_token` (RFC 6750 §2.3), also where the server reads it from a header only.
    """
    keys = (scheme['api_key_security_scheme'] for scheme in schemes.values() if 'api_key_security_scheme' in scheme)
    return ['access_token', *(key['name'] for key in keys)]


def is_token(value: str) -> bool:
    """Return True for a JSON Web Token."""
    return _TOKEN.fullmatch(value) is not None


def redacted(query: bytes, names: Iterable[str], is_secret: Callable[[str], bool]) -> bytes:
    """Return the query without the values of parameters, and without secrets under other names.

    A parameter is found in any case and encoding, after `&` or `;`. A part of the query with one of the names as a word
    is replaced as a whole.

    Args:
        query: The query of the request.
        names: Names of the parameters.
        is_secret: Returns True for a secret value, under any name.
    """
    words = '|'.join(re.escape(name.lower()) for name in names)
    word = re.compile(rf'(?<![a-z0-9])(?:{words})(?![a-z0-9])')
    parts = re.split('([&;])', query.decode('latin-1'))
    for index, part in enumerate(parts):
        decoded = _decoded(part)
        value = decoded.partition('=')[2] or decoded
        if (named := word.search(decoded.lower())) is not None or is_secret(value):
            parts[index] = f'{named[0] if named else "secret"}=redacted'
    return ''.join(parts).encode('latin-1')


def _decoded(part: str) -> str:
    for _ in range(_DECODINGS):
        part = unquote_plus(part)
    return part


# --- names of this machine --------------------------------------------------------------------------------------------
# In the names of hosts, and as the origin of requests.

OF_PROXIES = frozenset(
    {
        b'forwarded',
        b'via',
        b'x-forwarded-by',
        b'x-forwarded-for',
        b'x-forwarded-host',
        b'x-forwarded-port',
        b'x-forwarded-prefix',
        b'x-forwarded-proto',
        b'x-forwarded-scheme',
        b'x-forwarded-server',
        b'x-real-ip',
    }
)
"""Headers that proxies add. The sender of such a request is not the client of the connection."""


def is_loopback(host: str) -> bool | None:
    """Return whether a host is this machine itself; None for names that may be of any machine."""
    if host == 'localhost':
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # a dual-stack socket shows IPv4 clients so
    return address.is_loopback


def remote(request: RequestInfo) -> str | None:
    """Return the origin of a request from another machine; None if the origin is this machine or unknown.

    A request that came through a proxy is from another machine. The address of the proxy itself does not count.
    """
    for name, _ in request.headers:
        if name in OF_PROXIES:
            return 'a machine behind a proxy'
    address = request.address
    return address if address is not None and is_loopback(address) is False else None
