"""JSON Web Signatures (RFC 7515): made by key pairs of settings, and checked strictly."""

from __future__ import annotations

import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from jwt import PyJWK, api_jws
from jwt.exceptions import PyJWTError
from jwt.utils import base64url_decode, base64url_encode
from pydantic_core import from_json

from ...types.signing_keys import Key
from .key_pairs import KeyPair, load_keys

_MAX_HEADER = 10_000
_MAX_TOKEN = 20_000


class Unverified(Exception):
    """A signature cannot be verified; the text completes "the signature ..."."""


class Signer:
    """Signs with the key pairs of a setting.

    Args:
        keys: Key pairs and public keys; the first is a key pair. See `Access.signing`.
        setting: Name of the setting, for errors.
        key_set_url: URL of the key set, for the headers of the signatures.

    Raises:
        ValueError: A key cannot be used, or the first key is only a public key.
    """

    def __init__(self, keys: Sequence[Key], setting: str, key_set_url: str) -> None:
        self.keys = load_keys(keys, setting)
        """The keys, the newest first."""
        if self.keys[0].private is None:
            raise ValueError(f'{setting}[0] is a public key: the first key signs, so it must be a private key.')
        self._key_set_url = key_set_url

    def signatures(self, payload: bytes, **header: str) -> list[dict[str, str]]:
        """Return a signature of each key pair, as in an agent card (§8.4.2), with more fields in its header."""
        signed = [self._sign(pair, payload, 'JOSE', **header) for pair in self.keys if pair.private is not None]
        return [{'protected': protected, 'signature': signature} for protected, _, signature in signed]

    def token(self, payload: bytes) -> str:
        """Return the payload signed by the first key, as a JSON Web Token."""
        return '.'.join(self._sign(self.keys[0], payload, 'JWT'))

    def _sign(self, pair: KeyPair, payload: bytes, kind: str, **header: str) -> list[str]:
        headers = {'kid': pair.kid, 'typ': kind, 'jku': self._key_set_url, **header}
        return api_jws.encode(payload, pair.private, pair.algorithm, headers=headers).split('.')


def protected_header(protected: object, algorithms: Collection[str]) -> Mapping[str, Any]:
    """Return the protected header of a signature.

    Raises:
        Unverified: The header is malformed, or names an algorithm that is not accepted.
    """
    decoded = _decoded(protected, 'header') if isinstance(protected, str) and len(protected) < _MAX_HEADER else b''
    try:
        header: object = from_json(decoded)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise Unverified('has a malformed header')
    fields = cast('dict[str, Any]', header)
    if fields.get('alg') not in algorithms:
        raise Unverified('has an algorithm that is not accepted')
    if not isinstance(fields.get('kid'), str | None) or not isinstance(fields.get('jku'), str | None):
        raise Unverified('has a malformed header')
    return fields


def split_token(token: str) -> tuple[str, bytes, str]:
    """Return the protected header, the payload and the signature of a token, which is not verified.

    Raises:
        Unverified: The token is malformed.
    """
    parts = token.split('.')
    if len(parts) != 3 or len(token) > _MAX_TOKEN:
        raise Unverified('is malformed')
    protected, payload, signature = parts
    return protected, _decoded(payload, 'payload'), signature


def verify(protected: str, payload: bytes, signature: object, keys: Sequence[PyJWK]) -> None:
    """Verify a signature with one of the keys, each of which has a single algorithm.

    Raises:
        Unverified: No key has made the signature.
    """
    _decoded(signature, 'value')
    token = f'{protected}.{base64url_encode(payload).decode()}.{signature}'
    for key in keys:
        try:
            api_jws.decode(token, key, algorithms=[key.algorithm_name])
        except PyJWTError:
            continue
        return
    raise Unverified('does not match the content')


def _decoded(text: object, part: str) -> bytes:
    """Return the bytes of base64url. Each value has one form, so that no changed character goes unnoticed."""
    try:
        value = base64url_decode(cast('str', text))
        if base64url_encode(value).decode() == text:
            return value
    except (AttributeError, TypeError, ValueError, binascii.Error):
        pass
    raise Unverified(f'has a malformed {part}')
