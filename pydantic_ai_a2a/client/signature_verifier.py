"""Verifies a signature with the trusted keys, and fetches key sets for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jwt import PyJWK
from pydantic_core import from_json

from ..errors import NotificationRefused, OverloadedError, RemoteUnavailable
from ..issuer_requests import checked_url
from ..json_values import as_object
from ..types.signing_keys import Key
from ..wire.signing.issuer_keys import IssuerKeys, UnknownKey
from ..wire.signing.jws import Unverified, protected_header, split_token, verify
from ..wire.signing.key_pairs import KeyPair, fits, load_keys
from .remote_urls import origin, shown_url
from .trusted_keys import TrustedKeys

KEY_TIMES = (600.0, 0.0, 30.0)
"""Seconds until a key set is fetched again; seconds more if the fetch fails; seconds between attempts."""
_MOST_SETS = 32
"""Most key sets of unknown URLs. The signer of a notification is not known before its signature is verified."""


class SignatureVerifier:
    """Finds the trusted key of a signature, and verifies the signature.

    Args:
        trusted: The trusted keys.

    Raises:
        ValueError: A key or an origin cannot be used.
    """

    def __init__(self, trusted: TrustedKeys) -> None:
        keys = [key for entry in trusted.keys for key in _members(entry)]
        self._algorithms = tuple(trusted.algorithms)
        self._keys = load_keys(keys, 'TrustedKeys.keys')
        urls = [checked_url(url) for url in trusted.origins]
        self._exact = frozenset(urls)
        self._origins = frozenset(origin(url) for url in urls if url.removesuffix('/') == _bare_origin(url))
        self._sets: dict[str, IssuerKeys] = {}
        self._known = {*self._exact, *(f'{place}/.well-known/jwks.json' for place in self._origins)}
        """URLs that no forged header has made up: configured key sets, the usual ones of configured origins, and sets
        that have verified a signature."""

    async def verify(self, protected: str, payload: bytes, signature: object) -> Mapping[str, Any]:
        """Verify a signature, and return its protected header.

        A key set is fetched only if no configured key has made the signature.

        Args:
            protected: The protected header.
            payload: The signed bytes.
            signature: The signature in base64url.

        Raises:
            Unverified: No trusted key has made the signature.
            RemoteUnavailable: The key set cannot be fetched now.
        """
        header = protected_header(protected, self._algorithms)
        kid, algorithm, url = header.get('kid'), header['alg'], header.get('jku')
        pairs = self._configured(kid, algorithm)
        is_foreign = url is None or (url not in self._exact and origin(url) not in self._origins)
        if pairs:
            keys = [PyJWK({**pair.public, 'alg': algorithm}, algorithm) for pair in pairs]
            try:
                verify(protected, payload, signature, keys)
                return header
            except Unverified:
                if is_foreign or pairs[0].kid == kid:
                    raise
        if url is None or is_foreign:
            raise Unverified('names a key that is not trusted')
        verify(protected, payload, signature, [await self._fetched(url, kid, algorithm)])
        self._known.add(url)
        return header

    async def claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a JSON Web Token, such as of a push notification. Their meaning is not checked.

        Raises:
            NotificationRefused: No trusted key has made the signature.
            RemoteUnavailable: The key set cannot be fetched now.
        """
        try:
            protected, payload, signature = split_token(token)
            await self.verify(protected, payload, signature)
        except Unverified as error:
            raise NotificationRefused(f'The signature of the notification {error}.') from None
        try:
            return as_object(from_json(payload))
        except ValueError:
            return {}

    def _configured(self, kid: str | None, algorithm: str) -> list[KeyPair]:
        """Return the configured key with the id, else the configured keys without an id."""
        fitting = [
            pair
            for pair in self._keys
            if pair.algorithm == algorithm or (not pair.pinned and fits(pair.public, algorithm))
        ]
        return [pair for pair in fitting if pair.kid == kid] or [pair for pair in fitting if not pair.named]

    async def _fetched(self, url: str, kid: str | None, algorithm: str) -> PyJWK:
        try:
            return await self._key_set(url).find(kid, algorithm)
        except UnknownKey:
            raise Unverified('names a key that is not in the key set of its origin') from None
        except OverloadedError:
            raise RemoteUnavailable(f'The key set {shown_url(url)} cannot be fetched. Try again later.') from None

    def _key_set(self, url: str) -> IssuerKeys:
        if url not in self._sets:
            if url not in self._known:
                self._make_room()
            self._sets[url] = IssuerKeys(shown_url(url), url, self._algorithms, KEY_TIMES, discovery=False)
        return self._sets[url]

    def _make_room(self) -> None:
        """Drop key sets of unknown URLs that were fetched long ago, if there are many.

        Raises:
            OverloadedError: There are many new ones.
        """
        unknown = self._sets.keys() - self._known
        if len(unknown) < _MOST_SETS:
            return
        old = {url for url in unknown if self._sets[url].may_be_dropped}
        if not old:
            raise OverloadedError
        self._sets = {url: keys for url, keys in self._sets.items() if url not in old}


def _members(entry: Key | Mapping[str, Any]) -> Sequence[Key]:
    """Return the key, or the keys of a key set."""
    return entry['keys'] if isinstance(entry, Mapping) and 'keys' in entry else [entry]


def _bare_origin(url: str) -> str:
    scheme, _, rest = url.partition('://')
    return f'{scheme}://{rest.partition("/")[0]}'
