"""The public keys of an issuer: fetched when a token needs them, cached and rotated.

Unknown clients can cause a look-up of keys. So the number of fetches does not depend on the number of tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from itertools import islice
from math import ceil
from time import monotonic
from typing import Any, cast

import httpx2
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from ..errors import OverloadedError
from .issuers import checked_url, connected, fetch_json
from .request import InvalidCredentials

__all__ = ('KEY_TYPES', 'Jwks')

logger = logging.getLogger('pydantic_ai_a2a')

KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    'RS256': ('RSA', None),
    'RS384': ('RSA', None),
    'RS512': ('RSA', None),
    'PS256': ('RSA', None),
    'PS384': ('RSA', None),
    'PS512': ('RSA', None),
    'ES256': ('EC', 'P-256'),
    'ES384': ('EC', 'P-384'),
    'ES512': ('EC', 'P-521'),
    'EdDSA': ('OKP', 'Ed25519'),
}
"""Algorithms with a key pair, with the type and the curve of the key (RFC 7518, RFC 8037)."""

_MAX_KEYS = 100

_Table = Mapping[tuple[str | None, str], PyJWK]


class Jwks:
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
        self._table: _Table = {}
        self._fetched: float | None = None
        """Time of the last successful fetch."""
        self._tried: float | None = None
        """Time of the last attempt."""
        self._failing = False
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> PyJWK:
        """Return the key with an id; without an id the only key for the algorithm.

        Raises:
            InvalidCredentials: The issuer has no such key.
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
            wait = ceil(self._pause())
            text = 'Credentials cannot be checked at the moment; try again later.'
            raise OverloadedError(text, headers={'Retry-After': str(max(wait, 1))})
        if key is None:
            raise InvalidCredentials('key')
        return key

    def _known(self, kid: str | None, algorithm: str) -> PyJWK | None:
        return None if self._older_than(self._cache + self._stale) else self._table.get((kid, algorithm))

    def _older_than(self, seconds: float) -> bool:
        return self._fetched is None or self._clock() - self._fetched > seconds

    def _pause(self) -> float:
        """Return the seconds until the next attempt may begin."""
        return 0.0 if self._tried is None else self._tried + self._refetch - self._clock()

    def _fetch(self) -> asyncio.Task[None] | None:
        """Return the running attempt, or begin an attempt; None if an attempt is too early."""
        loop = asyncio.get_running_loop()
        if self._fetching is not None and not self._fetching.done() and self._fetching.get_loop() is loop:
            return self._fetching
        if self._pause() > 0:
            return None
        self._tried = self._clock()
        # In an empty context: the fetch does not belong to the trace of one client.
        self._fetching = loop.create_task(self._refresh(), context=Context())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            self._table = read_keys(await self._ask(), self._algorithms)
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
            if not self._discovery:
                return await fetch_json(client, self._url)
            document = await fetch_json(client, self._url)
            if document.get('issuer') != self._issuer:
                raise ValueError('the discovery document names another issuer')
            return await fetch_json(client, checked_url(str(document.get('jwks_uri'))))


def read_keys(document: Mapping[str, Any], algorithms: Sequence[str]) -> _Table:
    """Return the usable keys of a JSON Web Key Set (RFC 7517) by id and algorithm.

    The only key of an algorithm has a second entry without id. Keys that are shared, private, too weak, or for another
    use are ignored.

    Raises:
        ValueError: The document is no key set.
    """
    keys: object = document.get('keys')
    if not isinstance(keys, list):
        raise ValueError('the document has no keys')
    table: dict[tuple[str | None, str], PyJWK] = {}
    usable: dict[str, list[PyJWK]] = {}
    for entry in islice(cast('list[object]', keys), _MAX_KEYS):
        if not isinstance(entry, dict):
            continue
        data = cast('dict[str, Any]', entry)
        for algorithm in algorithms:
            if (key := _key(data, algorithm)) is not None:
                usable.setdefault(algorithm, []).append(key)
                table.setdefault((key.key_id, algorithm), key)
    for algorithm, fitting in usable.items():
        table.pop((None, algorithm), None)
        if len(fitting) == 1:
            table[None, algorithm] = fitting[0]
    return table


def _key(data: dict[str, Any], algorithm: str) -> PyJWK | None:
    kind, curve = KEY_TYPES[algorithm]
    fits = data.get('kty') == kind and (curve is None or data.get('crv') == curve)
    if not fits or data.get('use', 'sig') != 'sig' or data.get('alg', algorithm) != algorithm or 'd' in data:
        return None
    if not isinstance(data.get('kid'), str | None):
        return None
    try:
        return PyJWK(data, algorithm)
    except PyJWTError:
        return None
