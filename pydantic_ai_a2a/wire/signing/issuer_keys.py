"""The public keys of an issuer: fetched when a token needs them, cached and rotated.

Unknown clients can cause a look-up of keys. So the number of fetches does not depend on the number of tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import Context
from math import ceil
from time import monotonic
from typing import Any

import httpx2
from jwt import PyJWK

from ...errors import OverloadedError
from ...issuer_requests import checked_url, connected, fetch_json
from .key_sets import KeyTable, read_key_set

logger = logging.getLogger('pydantic_ai_a2a')


class UnknownKey(Exception):
    """The issuer has no such key."""


class IssuerKeys:
    """The keys of one issuer.

    Args:
        issuer: The issuer, for the log. A discovery document must name the same issuer.
        url: The URL of the keys, or of a discovery document.
        algorithms: The only algorithms that keys are used for.
        times: Seconds until keys are fetched again; seconds more if the fetch fails; seconds between attempts.
        discovery: True if the URL is the URL of OpenID Connect's discovery document.
        clock: Returns seconds of a steady clock.
    """

    def __init__(
        self,
        issuer: str,
        url: str,
        algorithms: Sequence[str],
        times: tuple[float, float, float],
        *,
        discovery: bool,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._issuer = issuer
        self._url = url
        self._algorithms = algorithms
        self._cache, self._stale, self._refetch = times
        self._discovery = discovery
        self._clock = clock
        self._table: KeyTable = {}
        self._fetched: float | None = None
        """Time of the last successful fetch."""
        self._tried: float | None = None
        """Time of the last attempt."""
        self._failing = False
        self._fetching: asyncio.Task[None] | None = None

    @property
    def may_be_dropped(self) -> bool:
        """True if the next attempt may begin, so that a new object for the URL makes no more attempts."""
        return self._until_next_attempt() <= 0

    async def find(self, kid: str | None, algorithm: str) -> PyJWK:
        """Return the key with an id; without an id the only key for the algorithm.

        Raises:
            UnknownKey: The issuer has no such key.
            OverloadedError: The issuer does not answer, and the keys from the last fetch are too old.
        """
        key = self._known(kid, algorithm)
        if key is not None:
            if self._older_than(self._cache):
                self._fetch()  # for later requests: this key may still be used
            return key
        fetching = self._fetch()
        if fetching is not None:
            await asyncio.shield(fetching)
            key = self._known(kid, algorithm)
        if key is None and (self._failing or self._older_than(self._cache + self._stale)):
            wait = ceil(self._until_next_attempt())
            text = 'Credentials cannot be checked at the moment; try again later.'
            raise OverloadedError(text, headers={'Retry-After': str(max(wait, 1))})
        if key is None:
            raise UnknownKey
        return key

    def _known(self, kid: str | None, algorithm: str) -> PyJWK | None:
        return None if self._older_than(self._cache + self._stale) else self._table.get((kid, algorithm))

    def _older_than(self, seconds: float) -> bool:
        return self._fetched is None or self._clock() - self._fetched > seconds

    def _until_next_attempt(self) -> float:
        """Return the seconds until the next attempt may begin."""
        return 0.0 if self._tried is None else self._tried + self._refetch - self._clock()

    def _fetch(self) -> asyncio.Task[None] | None:
        """Return the running attempt, or begin an attempt; None if an attempt is too early."""
        loop = asyncio.get_running_loop()
        if self._fetching is not None and not self._fetching.done() and self._fetching.get_loop() is loop:
            return self._fetching
        if self._until_next_attempt() > 0:
            return None
        self._tried = self._clock()
        # In an empty context: the fetch does not belong to the trace of one client.
        self._fetching = loop.create_task(self._refresh(), context=Context())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            self._table = read_key_set(await self._ask(), self._algorithms)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            self._failing = True
            logger.warning(
                'The keys of the issuer %s could not be fetched (%s: %s).', self._issuer, type(error).__name__, error
            )
        else:
            self._failing = False
            self._fetched = self._clock()

    async def _ask(self) -> dict[str, Any]:
        async with connected() as client:
            document = await fetch_json(client, self._url)
            if not self._discovery:
                return document
            if document.get('issuer') != self._issuer:
                raise ValueError(f'the discovery document names another issuer, {str(document.get("issuer"))[:200]!r}')
            return await fetch_json(client, checked_url(str(document.get('jwks_uri'))))
