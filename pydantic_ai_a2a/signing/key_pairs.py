"""Key pairs and public keys of settings: read from PEM files or JSON Web Keys, with their ids and algorithms."""

from __future__ import annotations

import binascii
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, TypeAlias, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from jwt import PyJWK, api_jws
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError
from jwt.utils import base64url_decode, base64url_encode
from pydantic_core import from_json

from .algorithms import KEY_TYPES, Key

_RSA_BITS = 2048
_SUPPORTED = 'an RSA key of 2048 bits or more, a key of the curves P-256, P-384 or P-521, or an Ed25519 key'
_THUMBPRINTS = {'RSA': ('e', 'kty', 'n'), 'EC': ('crv', 'kty', 'x', 'y'), 'OKP': ('crv', 'kty', 'x')}
"""The members of a key that its thumbprint covers (RFC 7638)."""


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A key pair, or only its public key."""

    kid: str
    """Id of the key: the id in the JSON Web Key, else the thumbprint of the public key (RFC 7638)."""
    named: bool
    """True if the JSON Web Key has the id."""
    algorithm: str
    """The algorithm of signatures by the key pair."""
    pinned: bool
    """True if the JSON Web Key has the algorithm, so that the key is not used for another one."""
    public: Mapping[str, Any]
    """The public key as a JSON Web Key."""
    private: Any = None
    """The private key for PyJWT; None for a public key."""


def load_keys(keys: Sequence[Key], setting: str) -> list[KeyPair]:
    """Read the keys of a setting.

    Args:
        keys: The keys.
        setting: Name of the setting, for errors.

    Raises:
        ValueError: A key cannot be used, or two keys have the same id. The text never shows a key.
    """
    pairs = [_load_key(key, f'{setting}[{n}]') for n, key in enumerate(keys)]
    kids = [pair.kid for pair in pairs]
    if repeated := next((kid for kid in kids if kids.count(kid) > 1), None):
        raise ValueError(f'{setting} has two keys with the id {repeated!r}: give each key a `kid` of its own.')
    return pairs


def _load_key(key: Key, place: str) -> KeyPair:
    """Read one key; see `load_keys`."""
    try:
        loaded = _from_jwk(key) if isinstance(key, Mapping) else _from_pem(key)
    except (ValueError, TypeError, UnsupportedAlgorithm, PyJWTError):
        loaded = None
    data: Mapping[str, Any] = key if isinstance(key, Mapping) else {}
    described = None if loaded is None else _described(loaded)
    if described is None:
        raise ValueError(
            f'{place} cannot be read: a key is the text of a PEM file without a password, or a JSON Web Key, and is '
            f'{_SUPPORTED}.'
        )
    public, default = described
    algorithm = data.get('alg', default)
    if algorithm not in KEY_TYPES or not fits(public, algorithm):
        raise ValueError(f'{place} has the algorithm {algorithm!r}, which does not fit the key: leave out `alg`.')
    kid = data.get('kid') or _thumbprint(public)
    if not isinstance(kid, str):
        raise ValueError(f'{place} has a `kid` that is not a string.')
    is_private = isinstance(loaded, RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey)
    return KeyPair(
        kid=kid,
        named='kid' in data,
        algorithm=algorithm,
        pinned='alg' in data,
        public={**public, 'kid': kid, 'alg': algorithm, 'use': 'sig'},
        private=loaded if is_private else None,
    )


def _from_pem(key: str | bytes) -> Any:
    text = key.encode() if isinstance(key, str) else key
    return load_pem_private_key(text, None) if b'PRIVATE KEY' in text else load_pem_public_key(text)


def _from_jwk(key: Mapping[str, Any]) -> Any:
    return PyJWK({name: value for name, value in key.items() if name != 'alg'}).key


def _described(key: Any) -> tuple[dict[str, Any], str] | None:
    """Return a public key as a JSON Web Key, and its default algorithm; None for a key that is not supported."""
    public: Any = key if isinstance(key, _PUBLIC) else getattr(key, 'public_key', lambda: None)()
    if isinstance(public, RSAPublicKey):
        data = RSAAlgorithm.to_jwk(public, as_dict=True)
        return (_bare(data), 'RS256') if public.key_size >= _RSA_BITS else None
    if isinstance(public, EllipticCurvePublicKey):
        curves = {'secp256r1': 'ES256', 'secp384r1': 'ES384', 'secp521r1': 'ES512'}
        algorithm = curves.get(public.curve.name)
        return None if algorithm is None else (_bare(ECAlgorithm.to_jwk(public, as_dict=True)), algorithm)
    if isinstance(public, Ed25519PublicKey):
        return _bare(OKPAlgorithm.to_jwk(public, as_dict=True)), 'EdDSA'
    return None


_PUBLIC = (RSAPublicKey, EllipticCurvePublicKey, Ed25519PublicKey)


def _bare(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _THUMBPRINTS[data['kty']]}


def fits(public: Mapping[str, Any], algorithm: str) -> bool:
    """Return True if a public key can be used for an algorithm."""
    kind, curve = KEY_TYPES[algorithm]
    return public.get('kty') == kind and curve in (None, public.get('crv'))


def _thumbprint(public: Mapping[str, Any]) -> str:
    text = json.dumps(public, sort_keys=True, separators=(',', ':'))
    return base64url_encode(sha256(text.encode()).digest()).decode()


# --- JSON Web Key Sets (RFC 7517) -------------------------------------------------------------------------------------
# The usable public keys of a set.

_MAX_KEYS = 100

KeyTable: TypeAlias = Mapping[tuple[str | None, str], PyJWK]
"""Public keys by id and algorithm."""


def read_keys(document: Mapping[str, Any], algorithms: Sequence[str]) -> KeyTable:
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
            if (key := read_key(data, algorithm)) is not None:
                usable.setdefault(algorithm, []).append(key)
                table.setdefault((key.key_id, algorithm), key)
    for algorithm, fitting in usable.items():
        table.pop((None, algorithm), None)
        if len(fitting) == 1:
            table[None, algorithm] = fitting[0]
    return table


def read_key(data: Mapping[str, Any], algorithm: str) -> PyJWK | None:
    """Return the public key for an algorithm; None if the key cannot be used for the algorithm."""
    if (
        not fits(data, algorithm)
        or data.get('use', 'sig') != 'sig'
        or data.get('alg', algorithm) != algorithm
        or 'd' in data
    ):
        return None
    if not isinstance(data.get('kid'), str | None):
        return None
    try:
        key = PyJWK(dict(data), algorithm)
    except PyJWTError:
        return None
    return key if key.Algorithm.check_key_length(key.key) is None else None


# --- JSON Web Signatures (RFC 7515) -----------------------------------------------------------------------------------
# Made by key pairs of settings, and checked strictly.

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
