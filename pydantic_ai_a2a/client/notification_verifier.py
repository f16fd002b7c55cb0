"""The check of signed push notifications, for the receiver of a webhook."""

# No `from __future__ import annotations`: FastAPI reads the annotations of `NotificationVerifier.__call__`.
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from inspect import isawaitable
from time import time
from typing import Any, TypeAlias, cast

from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..arguments import checked
from ..errors import NotificationRefused, RemoteUnavailable, needs_extra
from ..time_spans import seconds
from ..wire.signing.push_signatures import BODY_DIGEST, LIFETIME, NOTIFICATION_ID, SIGNATURE_HEADER
from .remote_urls import origin
from .trusted_keys import TrustedKeys

FirstTime: TypeAlias = Callable[[str, float], bool | Awaitable[bool]]
"""A function that remembers the id of a signature for some seconds, and returns False if the id was remembered."""

_LEEWAY = 30.0
"""Seconds that the clocks of the agent and of the receiver may differ."""
_REMEMBERED = 100_000
_LONGEST_ID = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A verified push notification."""

    id: str
    """Id of the notification, the same for each try: process a notification once by this id."""
    issuer: str
    """URL of the agent."""
    issued_at: datetime
    """Time of the signature."""
    content: Any
    """The JSON of the body: a `StreamResponse` of A2A 1.0, or a task of A2A 0.3."""


@checked
class NotificationVerifier:
    """Verifies signed push notifications of one agent, and refuses repeated, late and changed requests.

    The object is a dependency for FastAPI, and a function of Starlette's `Request`: it returns the `Notification`, or
    raises an `HTTPException` with status 401, or 503 if the keys cannot be fetched now.

    Args:
        trusted: The keys of the agent.
        issuer: URL of the agent, as on the agent's card.
        audience: URL or origin of your webhook, such as `https://client.example.com`. A notification for another
            receiver is refused.
        max_age: Seconds after which a notification is late; at most 300. Default 300.
        max_body: Most bytes of a body. Default 10,000,000.
        first_time: Function that remembers ids, for a receiver of several processes. The function gets the id of a
            signature and the seconds to remember the id, returns False for a remembered id, and may be async. Default:
            this object remembers up to 100,000 ids.

    Raises:
        ValueError: A key or an origin cannot be used, or a number is out of its bounds.
        ImportError: The extra `jwt` is not installed.
    """

    def __init__(
        self,
        trusted: TrustedKeys,
        *,
        issuer: str,
        audience: str,
        max_age: timedelta | float = float(LIFETIME),
        max_body: int = 10_000_000,
        first_time: FirstTime | None = None,
    ) -> None:
        try:
            from .signature_verifier import SignatureVerifier  # noqa: PLC0415 - of an extra
        except ImportError as error:
            raise ImportError(needs_extra('NotificationVerifier', 'jwt')) from error
        self._keys = SignatureVerifier(trusted)
        self._issuer = issuer
        self._audience = origin(audience)
        self._max_age = seconds(max_age)
        self._max_body = max_body
        self._first_time = first_time or Remembered(_REMEMBERED)
        if not self._audience:
            raise ValueError(f'audience must be a URL such as https://client.example.com, not {audience!r}.')
        if not 0 < self._max_age <= LIFETIME:
            raise ValueError(f'max_age must be more than 0 and at most {LIFETIME} seconds, not {self._max_age!r}.')

    async def __call__(self, request: Request) -> Notification:
        """Return the notification in a request.

        Raises:
            HTTPException: The notification is refused, or cannot be verified now.
        """
        length = request.headers.get('content-length', '')
        if not length.isdecimal() or float(length) > self._max_body:
            raise HTTPException(413, f'The body must have a Content-Length of at most {self._max_body} bytes.')
        try:
            return await self.verify(request.headers, await request.body())
        except NotificationRefused as error:
            raise HTTPException(401, str(error)) from None
        except RemoteUnavailable:
            raise HTTPException(503, 'The notification cannot be verified now.') from None

    async def verify(self, headers: Mapping[str, str], body: bytes) -> Notification:
        """Return the notification in the headers and the body of a request.

        Raises:
            NotificationRefused: The notification is not signed by the agent for this receiver, or is late, changed or
                repeated.
            RemoteUnavailable: The key set of the agent cannot be fetched now, or too many ids are remembered.
        """
        tokens = [value for name, value in headers.items() if name.lower() == SIGNATURE_HEADER.lower()]
        if len(tokens) != 1:
            raise NotificationRefused(f'The notification has no {SIGNATURE_HEADER}, or several.')
        claims = await self._keys.claims(tokens[0])
        if claims.get('iss') != self._issuer:
            raise NotificationRefused('The notification is of another agent.')
        if origin(str(claims.get('aud'))) != self._audience:
            raise NotificationRefused('The notification is for another receiver.')
        if not compare_digest(str(claims.get(BODY_DIGEST)).encode(), sha256(body).hexdigest().encode()):
            raise NotificationRefused('The body of the notification was changed.')
        issued, expires = self._times(claims)
        token_id, notification_id = (_text(claims, name) for name in ('jti', NOTIFICATION_ID))
        try:
            content = from_json(body)
        except ValueError:
            raise NotificationRefused('The body of the notification is not JSON.') from None
        first = self._first_time(token_id, expires + _LEEWAY - time())  # longer, for the clocks of several processes
        if not (await first if isawaitable(first) else first):
            raise NotificationRefused('The notification is repeated: a request with the same signature came before.')
        at = datetime.fromtimestamp(issued, UTC)
        return Notification(id=notification_id, issuer=self._issuer, issued_at=at, content=content)

    def _times(self, claims: Mapping[str, Any]) -> tuple[float, float]:
        """Return the time of the signature, and the time until which the signature is accepted."""
        issued, expires = claims.get('iat'), claims.get('exp')
        if not _is_time(issued) or not _is_time(expires):
            raise NotificationRefused('The signature of the notification has no times.')
        at = cast('float', issued)
        until = min(cast('float', expires), at + self._max_age) + _LEEWAY
        if time() > until:
            raise NotificationRefused('The notification is late: its signature has expired.')
        if time() < at - _LEEWAY:
            raise NotificationRefused('The notification has a time in the future.')
        return at, until


class Remembered:
    """Ids of signatures, each until its signature has expired."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._until: dict[str, float] = {}

    def __call__(self, token_id: str, remaining: float) -> bool:
        """Remember an id for so many seconds. Return False if it is known."""
        now = time()
        if self._until.get(token_id, 0.0) > now:
            return False
        if len(self._until) >= self._most:
            self._until = {name: until for name, until in self._until.items() if until > now}
        if len(self._until) >= self._most:
            raise RemoteUnavailable(f'More than {self._most} notifications came in a few minutes. Try again later.')
        self._until[token_id] = now + remaining
        return True


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_ID:
        raise NotificationRefused(f'The signature of the notification has no {name}.')
    return value
