"""Tokens that somebody has made up, changed or kept too long; the keys come from a real server."""

from __future__ import annotations

import base64
import hmac
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fasta2a.schema import ClientCredentialsOAuthFlow, OAuthFlows
from jwt.algorithms import RSAAlgorithm

from pydantic_ai_a2a import Caller, InvalidCredentials, JWTAuth
from pydantic_ai_a2a.errors import OverloadedError

from ...bounds import LIMIT
from .issuer import AUDIENCE, ISSUER, SECRET, Issuer, Key, claims, hs256_token, issuer, request_info

KEY, OTHER = Key(), Key()
RSA: RSAPrivateKey = generate_private_key(65537, 2048)
PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
RSA_JWK = {**RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True), 'kid': 'rsa'}
SHARED = JWTAuth(ISSUER, AUDIENCE, secret=SECRET)


async def caller(auth: JWTAuth, token: str) -> Caller | None:
    return await auth.authenticate(request_info(authorization=f'Bearer {token}'))


async def refused(auth: JWTAuth, token: str) -> str:
    """Why a token is refused."""
    with pytest.raises(InvalidCredentials) as error:
        await caller(auth, token)
    return error.value.reason


@asynccontextmanager
async def jwt_auth_with_keys(*keys: Key, **options: Any) -> AsyncGenerator[tuple[Issuer, JWTAuth]]:
    """A server of keys, and what trusts them."""
    async with issuer(*keys) as server:
        yield server, JWTAuth(ISSUER, AUDIENCE, jwks_url=f'{server.url}/keys', **options)


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b'=').decode()


def forged_token(header: dict[str, Any], payload: dict[str, Any], key: bytes = b'') -> str:
    """A token with any header, signed with HMAC if there is a key."""
    text = f'{encoded(header)}.{encoded(payload)}'
    digest = hmac.digest(key, text.encode(), 'sha256') if key else b''
    return f'{text}.{base64.urlsafe_b64encode(digest).rstrip(b"=").decode()}'


async def test_signed_token_authenticates_its_subject() -> None:
    async with jwt_auth_with_keys(KEY) as (_, auth):
        assert await caller(auth, KEY.sign()) == Caller(id='ann')
        assert await auth.authenticate(request_info()) is None
        assert await auth.authenticate(request_info(authorization='Basic YW5uOmFubg==')) is None


async def test_rsa_key_without_alg_verifies_every_rsa_algorithm() -> None:
    async with jwt_auth_with_keys() as (server, auth):
        server.keys = {'keys': [RSA_JWK]}
        for algorithm in ('RS256', 'RS512', 'PS384'):
            token = jwt.encode(claims(), RSA, algorithm, {'kid': 'rsa'})
            assert await caller(auth, token) == Caller(id='ann')


@pytest.mark.parametrize('alg', ['none', 'None', 'NONE', '', None, 7, ['ES256'], 'HS256', 'ES512K'])
async def test_unaccepted_algorithm_is_refused_before_keys_are_fetched(alg: object) -> None:
    async with jwt_auth_with_keys(KEY) as (server, auth):
        token = forged_token({'alg': alg, 'kid': 'key-1'}, claims())
        assert await refused(auth, token) == 'algorithm'
    assert server.asked == []


async def test_token_without_signature_is_refused() -> None:
    async with jwt_auth_with_keys(KEY) as (_, auth):
        assert await refused(auth, KEY.sign().rpartition('.')[0] + '.') == 'signature'


@pytest.mark.parametrize('secret', [PEM, PEM.strip(), json.dumps(RSA_JWK).encode()], ids=['pem', 'stripped', 'jwk'])
async def test_public_key_cannot_be_used_as_shared_secret(secret: bytes) -> None:
    async with jwt_auth_with_keys() as (server, auth):
        server.keys = {'keys': [RSA_JWK]}
        forged = forged_token({'alg': 'HS256', 'kid': 'rsa'}, claims(), secret)
        assert await refused(auth, forged) == 'algorithm'
        relabelled = forged_token({'alg': 'RS256', 'kid': 'rsa'}, claims(), secret)
        assert await refused(auth, relabelled) == 'signature'


async def test_symmetric_key_of_an_issuer_is_ignored() -> None:
    oct_key = {'kty': 'oct', 'k': encoded('x' * 40), 'kid': 'key-1', 'alg': 'HS256'}
    async with jwt_auth_with_keys() as (server, auth):
        server.keys = {'keys': [oct_key, {**oct_key, 'alg': 'ES256'}]}
        assert await refused(auth, KEY.sign()) == 'key'


async def test_shared_secret_accepts_only_its_algorithm() -> None:
    assert await caller(SHARED, hs256_token()) == Caller(id='ann')
    assert await refused(SHARED, hs256_token('another secret of the same sort and length')) == 'signature'
    assert await refused(SHARED, KEY.sign()) == 'algorithm'
    assert await refused(SHARED, jwt.encode(claims(), SECRET, 'HS384')) == 'algorithm'
    assert await refused(SHARED, forged_token({'alg': 'none'}, claims())) == 'algorithm'


@pytest.mark.parametrize(
    ('changes', 'reason'),
    [
        ({'iss': 'https://evil.example.com'}, 'issuer'),
        ({'iss': f'{ISSUER}/'}, 'issuer'),
        ({'iss': [ISSUER]}, 'issuer'),
        ({'iss': None}, 'claim missing'),
        ({'aud': 'https://other.example.com'}, 'audience'),
        ({'aud': ['https://other.example.com', 'https://third.example.com']}, 'audience'),
        ({'aud': f'{AUDIENCE}/'}, 'audience'),
        ({'aud': None}, 'claim missing'),
        ({'exp': None}, 'claim missing'),
        ({'exp': 1}, 'expired'),
        ({'exp': -1e300}, 'expired'),
        ({'exp': float('inf')}, 'malformed'),
        ({'exp': 'tomorrow'}, 'malformed'),
        ({'nbf': 4102444800}, 'not yet valid'),
        ({'nbf': {}}, 'malformed'),
        ({'iat': 4102444800}, 'not yet valid'),
        ({'sub': None}, 'claim sub'),
        ({'sub': ''}, 'claim sub'),
        ({'sub': 7}, 'malformed'),
        ({'sub': 'ann\n'}, 'claim sub'),
        ({'sub': 'ann\udcff'}, 'claim sub'),
    ],
)
async def test_signed_token_with_invalid_claims_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert await refused(SHARED, forged_token({'alg': 'HS256'}, claims(**changes), SECRET.encode())) == reason


@pytest.mark.parametrize(
    'token',
    [
        'garbage',
        '..',
        'a.b.c',
        'e30.e30.e30',
        encoded([]) + '.e30.',
        encoded('[' * 3000) + '.e30.',
        base64.urlsafe_b64encode(b'[' * 5000).decode().rstrip('=') + '.e30.',
        forged_token({'alg': 'ES256', 'kid': 7}, {}),
        forged_token({'alg': 'ES256', 'kid': None}, {}),
        forged_token({'alg': 'ES256', 'crit': ['exp']}, {}),
        forged_token({'alg': 'ES256', 'b64': False}, {}),
        'x' * 8193,
        KEY.sign(pad='x' * 8192),
        'ann\xe9',
        'two tokens',
        '',
    ],
    ids=range(16),
)
async def test_malformed_token_is_refused_without_fetching_keys(token: str) -> None:
    async with jwt_auth_with_keys(KEY) as (server, auth):
        assert await refused(auth, token) in ('malformed', 'oversized', 'algorithm')
    assert server.asked == []


async def test_two_authorization_headers_are_refused() -> None:
    once = request_info(authorization=f'Bearer {hs256_token()}')
    twice = replace(once, headers=[*once.headers, *once.headers])
    with pytest.raises(InvalidCredentials, match='several'):
        await SHARED.authenticate(twice)


async def test_token_with_changed_claims_or_foreign_signature_is_refused() -> None:
    async with jwt_auth_with_keys(KEY) as (_, auth):
        header, _, signature = KEY.sign().split('.')
        assert await refused(auth, f'{header}.{encoded(claims(sub="bob"))}.{signature}') == 'signature'
        assert await refused(auth, OTHER.sign()) == 'signature'


@pytest.mark.parametrize('header', ['jku', 'x5u', 'jwk', 'x5c'])
async def test_keys_named_in_token_header_are_ignored(header: str) -> None:
    async with jwt_auth_with_keys(KEY) as (server, auth), issuer(OTHER) as evil:
        own = {'jku': f'{evil.url}/keys', 'x5u': f'{evil.url}/keys', 'jwk': OTHER.public, 'x5c': ['MII']}[header]
        assert await refused(auth, OTHER.sign(headers={header: own})) == 'signature'
        assert (server.asked, evil.asked) == (['/keys'], [])


async def test_leeway_bounds_expiry_and_not_before() -> None:
    soon, late = int(time.time()) + 200, int(time.time()) - 20
    lenient, strict = (JWTAuth(ISSUER, AUDIENCE, secret=SECRET, leeway=leeway) for leeway in (300, 0))
    assert await caller(lenient, hs256_token(exp=late, nbf=soon)) == Caller(id='ann')
    assert await refused(strict, hs256_token(exp=late)) == 'expired'
    assert await refused(strict, hs256_token(nbf=soon + 86_400)) == 'not yet valid'
    default = JWTAuth(ISSUER, AUDIENCE, secret=SECRET)
    assert await caller(default, hs256_token(nbf=int(time.time()) + 20)) == Caller(id='ann')


async def test_token_with_any_accepted_audience_is_valid() -> None:
    auth = JWTAuth(ISSUER, ['a', 'b'], secret=SECRET)
    assert await caller(auth, hs256_token(aud=['x', 'b'])) == Caller(id='ann')
    assert await refused(auth, hs256_token(aud='x')) == 'audience'


@pytest.mark.parametrize(
    ('given', 'scopes'),
    [
        ({'scope': 'read write'}, ['read', 'write']),
        ({'scp': ['read', 7]}, ['read']),
        ({'scope': 'read', 'scp': 'write admin'}, ['admin', 'read', 'write']),
        ({'scope': {'read': True}, 'scp': 7}, []),
        ({'roles': ['read']}, []),
    ],
)
async def test_scopes_are_read_from_text_or_list(given: dict[str, Any], scopes: list[str]) -> None:
    found = await caller(SHARED, hs256_token(**given))
    assert found is not None
    assert sorted(found.scopes) == scopes


async def test_claim_options_select_id_tenant_and_scopes() -> None:
    auth = JWTAuth(
        ISSUER,
        AUDIENCE,
        secret=SECRET,
        id_claim='email',
        id_prefix='example:',
        tenant_claim='org',
        scope_claims=['roles'],
    )
    found = await caller(
        auth, hs256_token(sub=None, email='ann@example.com', org='acme', roles=['read'], scope='write')
    )
    assert found is not None
    assert (found.id, found.tenant, found.scopes) == ('example:ann@example.com', 'acme', {'read'})
    assert await refused(auth, hs256_token(email='ann@example.com')) == 'claim org'


async def test_selected_claims_are_kept_with_the_caller() -> None:
    auth = JWTAuth(ISSUER, AUDIENCE, secret=SECRET, claims=['email', 'groups', 'absent'])
    found = await caller(auth, hs256_token(email='ann@example.com', groups=['a'], salary=7))
    assert found is not None
    assert found.claims == {'email': 'ann@example.com', 'groups': ['a']}
    assert await refused(auth, hs256_token(email='\ud800')) == 'claims'


async def test_caller_function_maps_claims_to_a_caller() -> None:
    def staff(found: Any) -> Caller | None:
        return Caller(id=f'staff-{found["sub"]}') if found['sub'] == 'ann' else None

    auth = JWTAuth(ISSUER, AUDIENCE, secret=SECRET, caller=staff)
    assert await caller(auth, hs256_token()) == Caller(id='staff-ann')
    assert await refused(auth, hs256_token(sub='bob')) == 'claims'


async def test_keys_are_found_by_issuer_discovery() -> None:
    async with issuer(KEY) as server:
        auth = JWTAuth(server.url, AUDIENCE)
        assert server.asked == []
        assert await caller(auth, KEY.sign(iss=server.url)) == Caller(id='ann')
        assert server.asked == ['/.well-known/openid-configuration', '/keys']


@pytest.mark.parametrize(
    ('changes', 'complaint'),
    [
        ({'issuer': 'https://evil.example.com'}, 'names another issuer'),
        ({'issuer': None}, 'names another issuer'),
        ({'jwks_uri': 'http://issuer.example.com/keys'}, 'not an https URL'),
        ({'jwks_uri': 'file:///etc/passwd'}, 'not an https URL'),
        ({'jwks_uri': None}, 'not an https URL'),
    ],
)
async def test_untrusted_discovery_document_makes_keys_unavailable(
    changes: dict[str, Any], complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with issuer(KEY) as server:
        server.discovery |= changes
        with pytest.raises(OverloadedError):
            await caller(JWTAuth(server.url, AUDIENCE), KEY.sign(iss=server.url))
    assert complaint in caplog.text


@pytest.mark.parametrize(
    ('options', 'complaint'),
    [
        ({'issuer': ''}, 'needs issuer= and audience='),
        ({'audience': ''}, 'needs issuer= and audience='),
        ({'audience': []}, 'needs issuer= and audience='),
        ({'issuer': 'http://issuer.example.com'}, 'not an https URL'),
        ({'issuer': 'issuer.example.com'}, 'not an https URL'),
        ({'jwks_url': 'http://10.0.0.1/keys'}, 'not an https URL'),
        ({'jwks_url': 'https:///keys'}, 'not an https URL'),
        ({'leeway': 301}, 'leeway must be 0 to 300'),
        ({'leeway': -1}, 'leeway must be 0 to 300'),
        ({'refetch': -1}, 'must be 0 or more seconds'),
        ({'algorithms': []}, 'algorithms= must be of RS256'),
        ({'algorithms': ['none']}, 'algorithms= must be of RS256'),
        ({'algorithms': ['RS256', 'HS256']}, 'not HS256'),
        ({'secret': SECRET, 'algorithms': ['HS256', 'RS256']}, 'not RS256'),
        ({'secret': SECRET, 'jwks_url': 'https://issuer.example.com/keys'}, 'secret= or jwks_url=, not both'),
        ({'secret': 'x' * 31}, 'at least 32 bytes'),
        ({'secret': b'x' * 47, 'algorithms': ['HS256', 'HS384']}, 'at least 48 bytes'),
    ],
)
def test_invalid_jwt_options_are_rejected(options: dict[str, Any], complaint: str) -> None:
    given: dict[str, Any] = {'issuer': ISSUER, 'audience': AUDIENCE, **options}
    with pytest.raises(ValueError, match=complaint):
        JWTAuth(**given)


@pytest.mark.parametrize('host', ['localhost', '127.0.0.1', '[::1]'])
def test_local_jwks_url_may_use_http(host: str) -> None:
    JWTAuth(ISSUER, AUDIENCE, jwks_url=f'http://{host}:8080/keys')


def test_security_scheme_tells_how_to_get_token() -> None:
    flows = OAuthFlows(client_credentials=ClientCredentialsOAuthFlow(token_url=f'{ISSUER}/token', scopes={'a': 'A'}))
    discovered = JWTAuth(ISSUER, AUDIENCE, name='login')
    assert discovered.schemes == {
        'login': {
            'open_id_connect_security_scheme': {'open_id_connect_url': f'{ISSUER}/.well-known/openid-configuration'}
        }
    }
    assert SHARED.schemes == {'jwt': {'http_auth_security_scheme': {'scheme': 'Bearer', 'bearer_format': 'JWT'}}}
    metadata = f'{ISSUER}/.well-known/openid-configuration'
    assert JWTAuth(ISSUER, AUDIENCE, flows=flows).schemes == {
        'jwt': {'oauth2_security_scheme': {'flows': flows, 'oauth2_metadata_url': metadata}}
    }
    keys = f'{ISSUER}/keys'
    assert JWTAuth(ISSUER, AUDIENCE, flows=flows, jwks_url=keys).schemes == {
        'jwt': {'oauth2_security_scheme': {'flows': flows}}
    }


def test_missing_jwt_extra_is_named_in_error() -> None:
    program = """
import sys
sys.modules['jwt'] = None
import pydantic_ai_a2a
try:
    pydantic_ai_a2a.JWTAuth('https://issuer.example.com', 'agent')
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert ran.stdout == "JWTAuth needs the extra `jwt`: pip install 'pydantic-ai-a2a[jwt]', in a checkout '.[jwt]'\n"
