"""Credentials that runs use on behalf of callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.requests import Request

from ..arguments import checked
from ..types.callers import Caller
from .positive_numbers import positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A credential that a run may use on behalf of the caller. An `Exchange` returns the credential."""

    value: str = field(repr=False)
    """The credential, such as an access token: at most 16,000 characters."""
    expires_in: float
    """Seconds until the credential expires, as in the answer of a token endpoint (`expires_in`)."""


Exchange: TypeAlias = Callable[[Request, Caller], Awaitable[Credential | None] | Credential | None]
"""A function, async or not, of the request, without its body, and its caller. Returns a `Credential`, or None."""


@checked
@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Credentials that runs use on behalf of callers: exchanged for each message, and stored encrypted."""

    exchange: Exchange
    """Function, async or not, of the Starlette request, without its body, and the `Caller`. Returns a `Credential` for
    the run, or None for no credential. A function that waits for a server must be async. The server calls the function
    for each message that an authenticated caller sends, before the message is stored. If the function fails, the caller
    gets HTTP 503, and nothing is stored."""
    keys: Sequence[str] = field(repr=False)
    """Fernet keys that encrypt stored credentials (see `cryptography.fernet.Fernet.generate_key`). The first key
    encrypts, all keys decrypt."""
    timeout = 10.0  # seconds for one exchange

    def __post_init__(self) -> None:
        positive(self)
        if not self.keys:
            raise ValueError('Credentials.keys needs a key of cryptography.fernet.Fernet.generate_key().')
