"""Tokens and keys that the server knows by itself: where they are read, how they are kept, what they may be."""

from __future__ import annotations

import pickle
from hashlib import sha256
from typing import Any

import pytest

from pydantic_ai_a2a import APIKeyAuth, Authenticator, BearerAuth, Caller, InvalidCredentials, RequestInfo, hash_key

from .issuer import request_info

ANN, BOB = 'the-token-of-ann-1234', 'the-token-of-bob-1234'
CALLERS = {ANN: 'ann', hash_key(BOB): Caller(id='bob', tenant='acme', scopes=frozenset({'read'}))}


async def refused(auth: Authenticator, asking: RequestInfo) -> str:
    with pytest.raises(InvalidCredentials) as error:
        await auth.authenticate(asking)
    return error.value.reason


def test_hash_key_is_sha256_of_key() -> None:
    assert hash_key(ANN) == f'sha256:{sha256(ANN.encode()).hexdigest()}'


async def test_plain_and_hashed_tokens_authenticate_their_caller() -> None:
    auth = BearerAuth(CALLERS)
    assert await auth.authenticate(request_info(authorization=f'Bearer {ANN}')) == Caller(id='ann')
    bob = await auth.authenticate(request_info(authorization=f'bEARER  {BOB}'))
    assert bob is not None
    assert (bob.id, bob.tenant, bob.scopes) == ('bob', 'acme', {'read'})


@pytest.mark.parametrize('token', ['the-token-of-ann-1235', ANN + ANN, ANN[:-1], hash_key(ANN), hash_key(BOB)[7:]])
async def test_unknown_token_or_hash_is_refused(token: str) -> None:
    assert await refused(BearerAuth(CALLERS), request_info(authorization=f'Bearer {token}')) in ('unknown', 'malformed')
    assert await refused(APIKeyAuth(CALLERS), request_info(x_api_key=token)) == 'unknown'


@pytest.mark.parametrize('header', ['', 'Bearer', 'Basic YW5uOmFubg==', f'Digest {ANN}', ANN])
async def test_non_bearer_authorization_is_ignored(header: str) -> None:
    auth = BearerAuth(CALLERS)
    if header == 'Bearer':
        assert await refused(auth, request_info(authorization=header)) == 'malformed'
    else:
        assert await auth.authenticate(request_info(authorization=header)) is None


@pytest.mark.parametrize(
    ('auth', 'asking'),
    [
        (APIKeyAuth(CALLERS), request_info(x_api_key=ANN)),
        (APIKeyAuth(CALLERS, header='Api-Key'), request_info(api_key=ANN)),
        (APIKeyAuth(CALLERS, query='key'), request_info(f'a=1&key={ANN}')),
        (APIKeyAuth(CALLERS, cookie='session'), request_info(cookie=f'a=1; session={ANN}')),
    ],
    ids=['default', 'header', 'query', 'cookie'],
)
async def test_api_key_is_read_from_configured_place(auth: APIKeyAuth, asking: RequestInfo) -> None:
    assert await auth.authenticate(asking) == Caller(id='ann')
    assert await auth.authenticate(request_info()) is None


@pytest.mark.parametrize(
    ('auth', 'asking', 'reason'),
    [
        (APIKeyAuth(CALLERS, query='key'), request_info(f'key={ANN}&key=other'), 'several'),
        (APIKeyAuth(CALLERS, query='key'), request_info('key='), 'unknown'),
        (APIKeyAuth(CALLERS, query='key'), request_info('key=%ff%00%ed%b0%80'), 'unknown'),
        (APIKeyAuth(CALLERS, cookie='key'), request_info(cookie='key="\\377"'), 'unknown'),
        (APIKeyAuth(CALLERS), request_info(x_api_key='\xff' * 20), 'unknown'),
        (APIKeyAuth(CALLERS), request_info(x_api_key='x' * 100_000), 'unknown'),
    ],
    ids=['twice', 'empty', 'bytes', 'octal', 'latin', 'huge'],
)
async def test_repeated_empty_or_unknown_key_is_refused(auth: APIKeyAuth, asking: RequestInfo, reason: str) -> None:
    assert await refused(auth, asking) == reason


@pytest.mark.parametrize('kind', [BearerAuth, APIKeyAuth])
@pytest.mark.parametrize('form', [str, hash_key])
def test_neither_secrets_nor_hashes_are_kept(kind: Any, form: Any) -> None:
    auth = kind({form(ANN): 'whose it is'})
    all_of_it = pickle.dumps(auth)
    digest = sha256(ANN.encode())
    assert b'whose it is' in all_of_it
    assert not any(each in all_of_it for each in (ANN.encode(), digest.digest(), digest.hexdigest().encode()))


@pytest.mark.parametrize('kind', [BearerAuth, APIKeyAuth])
@pytest.mark.parametrize(
    ('callers', 'complaint'),
    [
        ({}, 'tokens or keys is empty'),
        ({'short': 'ann'}, 'at least 16 characters'),
        ({'with spaces in between': 'ann'}, 'without spaces'),
        ({'not-ascii-é-not-ascii': 'ann'}, 'ASCII'),
        ({'sha256:abc': 'ann'}, '64 hexadecimal digits'),
        ({hash_key(ANN).upper(): 'ann', hash_key(ANN)[:-1] + 'X': 'ann'}, '64 hexadecimal digits'),
        ({ANN: ''}, 'a Caller whose id is not empty'),
        ({ANN: Caller(tenant='acme')}, 'a Caller whose id is not empty'),
    ],
    ids=range(8),
)
def test_invalid_tokens_and_keys_are_rejected(kind: Any, callers: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        kind(callers)
    assert not any(secret in str(refusal.value) for secret in callers)


@pytest.mark.parametrize(
    ('places', 'complaint'),
    [
        ({'header': 'X-Key', 'query': 'key'}, 'has one place'),
        ({'header': ''}, 'cannot be the name of a header'),
        ({'header': 'X-Key: a\r\nX-Other'}, 'cannot be the name of a header'),
        ({'query': 'a b'}, 'cannot be the name of a query'),
        ({'cookie': 'a="b"'}, 'cannot be the name of a cookie'),
    ],
)
def test_invalid_key_location_is_rejected(places: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        APIKeyAuth(CALLERS, **places)


def test_security_scheme_declares_name_and_location() -> None:
    assert BearerAuth(CALLERS, name='token', description='Ask us.').schemes == {
        'token': {'http_auth_security_scheme': {'scheme': 'Bearer', 'description': 'Ask us.'}}
    }
    assert APIKeyAuth(CALLERS, cookie='session', name='key', description='Log in.').schemes == {
        'key': {'api_key_security_scheme': {'name': 'session', 'location': 'cookie', 'description': 'Log in.'}}
    }
