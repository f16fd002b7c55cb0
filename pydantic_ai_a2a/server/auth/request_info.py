"""The values of a request, without its body, that say who sends the request. Every transport fills them in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar, cast
from urllib.parse import parse_qsl

from starlette.requests import Request, cookie_parser

from ...errors import ClientGone, OverloadedError
from .invalid_credentials import InvalidCredentials

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')

FUNCTION_TIME = 30.0
"""Seconds for a function of the operator that decides about a request."""
_MOMENT = 1.0
"""Seconds until a request watches its client: most functions return sooner."""


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

    async def ask(self, option: str, work: Awaitable[T], *, within: float | None = None) -> T:
        """Await a function of the operator, in time and while the client is there.

        Args:
            option: The option with the function, for the log.
            work: The function.
            within: The seconds for the function; None for `FUNCTION_TIME`.

        Raises:
            OverloadedError: The function has not returned in time.
            ClientGone: The client has gone.
        """
        loop, task = asyncio.get_running_loop(), cast('asyncio.Task[Any]', asyncio.current_task())
        limit = FUNCTION_TIME if within is None else within
        moment = min(_MOMENT, limit)
        watches: list[asyncio.Task[None]] = []
        ended: list[Exception] = []

        async def watch() -> None:
            try:
                async with asyncio.timeout(limit - moment):
                    await self.gone()
                ended.append(ClientGone())
            except TimeoutError:
                text = '%s has not returned within %g s (correlation id %s).'
                logger.error(text, option, limit, self.correlation_id)
                ended.append(OverloadedError(headers={'Retry-After': '1'}))
            task.cancel()

        timer = loop.call_later(moment, lambda: watches.append(loop.create_task(watch())))
        steps = _CountedSteps(work.__await__(), task)
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


class _CountedSteps(Generic[T]):
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


def _one(values: list[str]) -> str | None:
    if len(values) > 1:
        raise InvalidCredentials('several')
    return values[0] if values else None
