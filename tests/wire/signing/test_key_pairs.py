"""Keys of settings: what is read, and what is refused without showing the key."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from pydantic_ai_a2a.wire.signing.jws import Signer, Unverified, protected_header, verify
from pydantic_ai_a2a.wire.signing.key_pairs import load_keys
from pydantic_ai_a2a.wire.signing.key_sets import read_key_set

from .signing_keys import private_pem, public_pem

JKU = 'https://agent.example.com/.well-known/jwks.json'


@pytest.mark.parametrize(
    ('kind', 'algorithm'),
    [('P-256', 'ES256'), ('P-384', 'ES384'), ('P-521', 'ES512'), ('2048', 'RS256'), ('Ed25519', 'EdDSA')],
)
def test_key_type_decides_signature_algorithm(kind: str, algorithm: str) -> None:
    signer = Signer([private_pem(kind).encode()], 'signing', JKU)
    [signature] = signer.signatures(b'content')
    header = protected_header(signature['protected'], [algorithm])
    assert header == {'alg': algorithm, 'kid': signer.keys[0].kid, 'typ': 'JOSE', 'jku': JKU}
    [public] = load_keys([public_pem(kind)], 'keys')
    assert (public.private, public.public) == (None, signer.keys[0].public)
    key = read_key_set({'keys': [public.public]}, [algorithm])[public.kid, algorithm]
    verify(signature['protected'], b'content', signature['signature'], [key])
    with pytest.raises(Unverified, match='does not match the content'):
        verify(signature['protected'], b'Content', signature['signature'], [key])


def test_jwk_keeps_its_kid_and_algorithm() -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    fields = {'kid': 'one', 'alg': 'ES256'}
    [pair] = load_keys([{**ECAlgorithm.to_jwk(private, as_dict=True), **fields}], 'keys')
    assert (pair.kid, pair.named, pair.algorithm, pair.pinned) == ('one', True, 'ES256', True)
    assert 'd' not in pair.public
    [unnamed] = load_keys([ECAlgorithm.to_jwk(private, as_dict=True)], 'keys')
    assert (unnamed.named, unnamed.pinned) == (False, False)


def test_rsa_jwk_signs_with_its_declared_algorithm() -> None:
    private: Any = load_pem_private_key(private_pem('2048').encode(), None)
    key = {**RSAAlgorithm.to_jwk(private, as_dict=True), 'alg': 'PS384'}
    [signature] = Signer([key], 'signing', JKU).signatures(b'content')
    assert protected_header(signature['protected'], ['PS384'])['alg'] == 'PS384'


def test_key_without_kid_uses_rfc_7638_thumbprint() -> None:
    """The example of RFC 7638 §3.1."""
    n = (
        '0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3o'
        'knjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZH'
        'zu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEg'
        'U8awapJzKnqDKgw'
    )
    [pair] = load_keys([{'kty': 'RSA', 'n': n, 'e': 'AQAB', 'kid': None}], 'keys')
    assert pair.kid == 'NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs'


@pytest.mark.parametrize(
    'key',
    [
        '',
        b'\xff',
        'no key',
        '-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n',
        {},
        {'kty': 'oct', 'k': 'c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0'},
        {'kty': 'EC', 'crv': 'P-256', 'x': 'secret', 'y': 'secret'},
        {'kty': 'RSA', 'd': 1},
        {'kty': 'OKP', 'crv': 'X25519', 'x': 'hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo'},
    ],
)
def test_unreadable_key_is_refused_without_echoing_key(key: Any) -> None:
    with pytest.raises(ValueError, match=r'^signing\[1\] cannot be read: a key is the text of a PEM file') as error:
        Signer([private_pem(), key], 'signing', JKU)
    assert 'secret' not in str(error.value)


@pytest.mark.parametrize('private', [ec.generate_private_key(ec.SECP256K1()), None])
def test_encrypted_pem_and_short_rsa_key_are_refused(private: Any) -> None:
    key: Any = (
        public_pem('1024')
        if private is None
        else private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b'password'))
    )
    with pytest.raises(ValueError, match='2048 bits'):
        load_keys([key], 'signing')


def _rsa(text: str) -> RSAPublicKey:
    key = load_pem_public_key(text.encode())
    assert isinstance(key, RSAPublicKey)
    return key


def test_short_rsa_key_in_key_set_is_ignored() -> None:
    pairs = (('short', '1024'), ('long', '2048'))
    keys = [{**RSAAlgorithm.to_jwk(_rsa(public_pem(bits)), as_dict=True), 'kid': kid} for kid, bits in pairs]
    assert read_key_set({'keys': keys}, ['RS256']).keys() == {('long', 'RS256'), (None, 'RS256')}


def test_key_on_unsupported_curve_is_refused() -> None:
    private = ec.generate_private_key(ec.SECP256K1())
    with pytest.raises(ValueError, match='P-256, P-384 or P-521'):
        load_keys([ECAlgorithm.to_jwk(private, as_dict=True)], 'signing')


def test_algorithm_not_fitting_the_key_is_refused() -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    for algorithm in ('RS256', 'ES384', 'HS256', 'none'):
        with pytest.raises(ValueError, match=f'signing\\[0\\] has the algorithm {algorithm!r}, which does not fit'):
            load_keys([{**ECAlgorithm.to_jwk(private, as_dict=True), 'alg': algorithm}], 'signing')


def test_kid_must_be_a_unique_string() -> None:
    key = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True)
    with pytest.raises(ValueError, match=r'signing\[0\] has a `kid` that is not a string'):
        load_keys([{**key, 'kid': 1}], 'signing')
    with pytest.raises(ValueError, match="signing has two keys with the id 'one'"):
        load_keys([{**key, 'kid': 'one'}, {**key, 'kid': 'one'}], 'signing')


def test_first_signing_key_must_be_private() -> None:
    with pytest.raises(ValueError, match=r'signing\[0\] is a public key: the first key signs'):
        Signer([public_pem(), private_pem(number=2)], 'signing', JKU)


def test_only_private_keys_sign() -> None:
    signer = Signer([private_pem(), public_pem(number=2), private_pem('2048')], 'signing', JKU)
    signatures = signer.signatures(b'')
    kids = [protected_header(each['protected'], ['ES256', 'RS256'])['kid'] for each in signatures]
    assert kids == [signer.keys[0].kid, signer.keys[2].kid]


@pytest.mark.parametrize(
    ('protected', 'reason'),
    [
        (None, 'has a malformed header'),
        ('', 'has a malformed header'),
        ('x' * 20_000, 'has a malformed header'),
        ('e30=', 'has a malformed header'),
        ('W10', 'has a malformed header'),
        ('e30', 'has an algorithm that is not accepted'),
        ('eyJhbGciOiJub25lIn0', 'has an algorithm that is not accepted'),
        ('eyJhbGciOiJIUzI1NiJ9', 'has an algorithm that is not accepted'),
        ('eyJhbGciOlsiRVMyNTYiXX0', 'has an algorithm that is not accepted'),
        ('eyJhbGciOiJFUzI1NiIsImtpZCI6MX0', 'has a malformed header'),
        ('eyJhbGciOiJFUzI1NiIsImprdSI6e319', 'has a malformed header'),
    ],
)
def test_invalid_protected_header_is_refused(protected: Any, reason: str) -> None:
    with pytest.raises(Unverified, match=reason):
        protected_header(protected, ['ES256'])


@pytest.mark.parametrize('signature', [None, 7, '', '=', 'é', 'AA', 'AB'])
def test_invalid_signature_value_is_refused(signature: Any) -> None:
    signer = Signer([private_pem()], 'signing', JKU)
    key = read_key_set({'keys': [signer.keys[0].public]}, ['ES256'])[signer.keys[0].kid, 'ES256']
    [signed] = signer.signatures(b'')
    with pytest.raises(Unverified):
        verify(signed['protected'], b'', signature, [key])
