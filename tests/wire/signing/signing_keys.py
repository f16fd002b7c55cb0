"""Key pairs for tests, each made once in a process."""

from __future__ import annotations

from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

__all__ = ('private_pem', 'public_pem')


@cache
def _private(kind: str, number: int) -> Any:
    """A private key: EC on a curve, RSA of a size, or Ed25519."""
    if kind.startswith('P-'):
        return ec.generate_private_key({'P-256': ec.SECP256R1, 'P-384': ec.SECP384R1, 'P-521': ec.SECP521R1}[kind]())
    return ed25519.Ed25519PrivateKey.generate() if kind == 'Ed25519' else rsa.generate_private_key(65537, int(kind))


def private_pem(kind: str = 'P-256', number: int = 1) -> str:
    """The text of the PEM file of a private key."""
    key = _private(kind, number)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public_pem(kind: str = 'P-256', number: int = 1) -> str:
    """The text of the PEM file of the public key."""
    key = _private(kind, number).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
