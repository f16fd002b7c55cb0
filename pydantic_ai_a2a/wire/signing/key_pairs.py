"""Key pairs and public keys of settings: read from PEM files or JSON Web Keys, with their ids and algorithms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError
from jwt.utils import base64url_encode

from ...types.signing_keys import Key
from .algorithms import KEY_TYPES

_RSA_BITS = 2048
_SUPPORTED = 'an RSA key of 2048 bits or more, a key of the curves P-256, P-384 or P-521, or an Ed25519 key'
_THUMBPRINTS = {'RSA': ('e', 'kty', 'n'), 'EC': ('crv', 'kty', 'x', 'y'), 'OKP': ('crv', 'kty', 'x')}
"""The members of a key that its thumbprint covers (RFC 7638)."""

_PUBLIC = (RSAPublicKey, EllipticCurvePublicKey, Ed25519PublicKey)


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
        if isinstance(key, Mapping):
            loaded = PyJWK({name: value for name, value in key.items() if name != 'alg'}).key
        else:
            loaded = _from_pem(key)
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


def _bare(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _THUMBPRINTS[data['kty']]}


def fits(public: Mapping[str, Any], algorithm: str) -> bool:
    """Return True if a public key can be used for an algorithm."""
    kind, curve = KEY_TYPES[algorithm]
    return public.get('kty') == kind and curve in (None, public.get('crv'))


def _thumbprint(public: Mapping[str, Any]) -> str:
    text = json.dumps(public, sort_keys=True, separators=(',', ':'))
    return base64url_encode(sha256(text.encode()).digest()).decode()
