"""Signed cards (§8.4): the official SDK verifies them, and clients of each version get a card of their own."""

from __future__ import annotations

from copy import deepcopy
from hashlib import sha256
from typing import Any, cast

import httpx
import jwt
import pytest
import rfc8785
from a2a.client.card_resolver import A2ACardResolver, parse_agent_card
from a2a.compat.v0_3 import types
from a2a.types import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from fasta2a.schema import Skill
from jwt import PyJWK
from jwt.utils import base64url_decode, base64url_encode
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_core import from_json

from pydantic_ai_a2a import A2AClient, Access, APIKeyAuth, BearerAuth, Messages, Push, TrustedKeys, to_a2a

from ...app_client import Client, lifespan, rpc
from ...cases import each_case
from ...dialects import current_dialect, in_no_version
from ...wire.signing.signing_keys import private_pem, public_pem

URL = 'https://agent.example.com/joker/'
CARD, OLDER, KEYS = '/.well-known/agent-card.json', '/.well-known/agent.json', '/.well-known/jwks.json'
KEY = 'the-key-of-ann-1234'


def signed_app(*keys: str, access: Any = None, **options: Any) -> Any:
    settings: dict[str, Any] = {'signing': keys or [private_pem()], **(access or {})}
    return to_a2a(Agent('test', name='joker'), url=URL, access=Access(**settings), **options)


async def get(app: Any, path: str = CARD, **headers: str) -> Any:
    answer = await Client(app).get(path, {name.replace('_', '-'): value for name, value in headers.items()})
    assert answer.status == 200
    return answer.json


async def verify_card(app: Any, card: Any, *algorithms: str) -> None:
    """Verify a card with the official SDK and the keys that the app serves."""
    keys = {key['kid']: PyJWK(key) for key in (await get(app, KEYS))['keys']}
    verify = create_signature_verifier(lambda kid, _: keys[kid or ''], [*algorithms])
    verify(parse_agent_card(deepcopy(card)))


@in_no_version('there is one signed card')
@pytest.mark.parametrize(('kind', 'algorithm'), [('P-256', 'ES256'), ('2048', 'RS256'), ('Ed25519', 'EdDSA')])
async def test_official_sdk_verifies_signed_card(kind: str, algorithm: str) -> None:
    app = signed_app(private_pem(kind))
    card = await get(app)
    await verify_card(app, card, algorithm)
    for name in ('name', 'version', 'description'):
        with pytest.raises(InvalidSignaturesError):
            await verify_card(app, {**card, name: 'x'}, algorithm)
    [signature] = card['signatures']
    header = from_json(base64url_decode(signature['protected']))
    [key] = (await get(app, KEYS))['keys']
    assert header.pop('card_sha256') == sha256(canonical_json(card)).hexdigest()
    assert header == {'alg': algorithm, 'kid': key['kid'], 'typ': 'JOSE', 'jku': f'{URL.removesuffix("/")}{KEYS}'}


def canonical_json(card: dict[str, Any]) -> bytes:
    """The JSON of the card without signatures, by RFC 8785 alone."""
    return rfc8785.dumps({name: value for name, value in card.items() if name != 'signatures'})


def without_defaults(value: Any, descriptor: Any = AgentCard.DESCRIPTOR) -> Any:
    """The card without the default values of its protobuf messages, as a conformance kit of A2A reads §8.4.3."""
    if descriptor is None or descriptor.full_name == 'google.protobuf.Struct':
        return value
    if isinstance(value, list):
        return [without_defaults(entry, descriptor) for entry in cast('list[Any]', value)]
    if descriptor.GetOptions().map_entry:
        inner = descriptor.fields_by_name['value'].message_type
        return {name: without_defaults(entry, inner) for name, entry in value.items()}
    fields = {field.json_name: field for field in descriptor.fields}
    return {
        name: without_defaults(entry, fields[name].message_type)
        for name, entry in value.items()
        if fields[name].has_presence or entry
    }


def no_caller(_: object) -> None:
    """Authenticate no caller."""


AUTHS: dict[str, tuple[dict[str, Any], list[Any], int]] = {
    'a bearer token': ({'auth': BearerAuth({KEY: 'ann'})}, [{'schemes': {'bearer': {}}}], 2),
    'an API key': ({'auth': APIKeyAuth({KEY: 'ann'})}, [{'schemes': {'apiKey': {}}}], 2),
    'OAuth with scopes': (
        {
            'auth': no_caller,
            'security_schemes': {
                'oauth': {
                    'oauth2_security_scheme': {
                        'flows': {
                            'client_credentials': {'token_url': 'https://a.example/token', 'scopes': {'read': 'Read.'}}
                        }
                    }
                }
            },
            'security_requirements': [{'schemes': {'oauth': ['read']}}],
        },
        [{'schemes': {'oauth': {'list': ['read']}}}],
        1,
    ),
    'no authentication': ({}, [], 1),
}


@in_no_version('there is one signed card')
@each_case('options, requirements, count', AUTHS.values(), ids=AUTHS)
async def test_card_with_security_verifies_in_every_canonical_form(
    options: dict[str, Any], requirements: list[Any], count: int
) -> None:
    app = signed_app(**options)
    card = await get(app)
    assert card.get('securityRequirements', []) == requirements
    assert len(card['signatures']) == count
    await verify_card(app, card, 'ES256')
    assert rfc8785.dumps(without_defaults({**card, 'signatures': []})) == canonical_json(card)
    signed: list[bytes] = []
    for signature in card['signatures']:
        token = f'{signature["protected"]}.{base64url_encode(canonical_json(card)).decode()}.{signature["signature"]}'
        try:
            signed.append(jwt.api_jws.decode(token, public_pem(), algorithms=['ES256']))
        except jwt.InvalidSignatureError:
            continue
    assert signed == [canonical_json(card)]
    async with A2AClient(app, card_keys=TrustedKeys(keys=[public_pem()])) as client:
        read = await client.card()
        assert len(read.get('security_requirements', [])) == len(requirements)


@in_no_version('there is one signed card')
async def test_official_client_verifies_fetched_card() -> None:
    app = signed_app()
    keys = {key['kid']: PyJWK(key) for key in (await get(app, KEYS))['keys']}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL) as http:
        resolver = A2ACardResolver(http, 'https://agent.example.com')
        card = await resolver.get_agent_card(
            signature_verifier=create_signature_verifier(lambda kid, _: keys[kid or ''], ['ES256'])
        )
        assert card.name == 'joker'
        other = create_signature_verifier(lambda kid, _: public_pem(number=2), ['ES256'])
        with pytest.raises(InvalidSignaturesError):
            await resolver.get_agent_card(signature_verifier=other)


@in_no_version('there is one signed card')
async def test_card_stays_verifiable_during_key_rotation() -> None:
    old, new = private_pem(number=1), private_pem('2048', number=2)
    for keys, algorithms in (
        ([old, public_pem('2048', number=2)], ['ES256']),
        ([new, old], ['RS256', 'ES256']),
        ([new, public_pem(number=1)], ['RS256']),
    ):
        app = signed_app(*keys)
        card = await get(app)
        assert len(card['signatures']) == len(algorithms)
        for algorithm in algorithms:
            await verify_card(app, card, algorithm)
        assert len((await get(app, KEYS))['keys']) == 2


def schema_of(card: dict[str, Any]) -> dict[str, Any]:
    [schemas] = [each['params'] for each in card['capabilities']['extensions'] if 'params' in each]
    return schemas['inputSchema']


@in_no_version('there is one signed card')
async def test_signed_card_and_0_3_card_are_separate() -> None:
    class Order(BaseModel):
        number: int

    app = signed_app(messages=Messages(input_type=Order))
    card = await get(app)
    assert not {'url', 'preferredTransport', 'protocolVersion', 'supportsAuthenticatedExtendedCard'} & card.keys()
    assert schema_of(card)['title'] == 'Order'
    assert [each['protocolVersion'] for each in card['supportedInterfaces']] == ['1.0', '1.0', '0.3']
    older = await get(app, OLDER)
    assert types.AgentCard.model_validate(older).url == URL
    assert not {'signatures', 'supportedInterfaces'} & older.keys()
    assert schema_of(older)['title'] == 'Order'
    assert await get(app, CARD, A2A_Version='0.3') == await get(app, f'{CARD}?A2A-Version=0.3') == older
    assert await get(app, CARD, A2A_Version='1.0') == card
    vary = (await Client(app).get(CARD)).headers['vary']
    assert vary == 'Host, A2A-Version'


@in_no_version('there is one signed card')
async def test_server_without_0_3_has_single_signed_card() -> None:
    app = signed_app(access={'versions': ['1.0']})
    card = await get(app)
    assert await get(app, OLDER) == await get(app, CARD, A2A_Version='0.3') == card
    assert (await Client(app).get(CARD)).headers['vary'] == 'Host'
    await verify_card(app, card, 'ES256')


@in_no_version('keys have no version')
async def test_public_keys_are_served_and_cacheable() -> None:
    app = signed_app(private_pem('P-384'), public_pem('2048'))
    answer = await Client(app).get(KEYS)
    assert {name: answer.headers[name] for name in ('content-type', 'cache-control')} == {
        'content-type': 'application/jwk-set+json',
        'cache-control': 'public, max-age=3600',
    }
    assert [{*key} for key in answer.json['keys']] == [
        {'kid', 'alg', 'use', 'kty', 'crv', 'x', 'y'},
        {'kid', 'alg', 'use', 'kty', 'n', 'e'},
    ]
    again = await Client(app).get(KEYS, {'If-None-Match': answer.headers['etag']})
    head = await Client(app).get(KEYS, method='HEAD')
    assert (again.status, again.body, head.status, head.body) == (304, b'', 200, b'')
    assert (await Client(to_a2a(Agent('test'))).get(KEYS)).status == 404


async def test_key_for_cards_and_webhooks_served_once() -> None:
    app = signed_app(private_pem(), push=Push(signing=[private_pem()]))
    [key] = (await get(app, KEYS))['keys']
    assert key['alg'] == 'ES256'


async def test_extended_card_is_signed_in_1_0_only() -> None:
    more = Skill(
        id='more', name='More', description='More.', tags=['x'], input_modes=['text/plain'], output_modes=['text/plain']
    )
    app = signed_app(auth=APIKeyAuth({KEY: 'ann'}), access={'extended_card': {'skills': [more]}})
    async with lifespan(app):
        answer = await Client(app).post(rpc('GetExtendedAgentCard'), {'X-API-Key': KEY})
    card = answer.json['result'] if current_dialect().has_envelope else answer.json
    assert [skill['id'] for skill in card['skills']] == ['joker', 'more']
    if current_dialect().version == '0.3':
        assert 'signatures' not in card
        assert types.AgentCard.model_validate(card).url == URL
    else:
        await verify_card(app, card, 'ES256')
        with pytest.raises(InvalidSignaturesError):
            await verify_card(app, {**card, 'skills': card['skills'][:1]}, 'ES256')


@in_no_version('there is one signed card')
async def test_tenant_card_is_signed_with_its_tenant() -> None:
    app = signed_app(access={'tenants': ['acme']})
    card = await get(app, f'/acme{CARD}')
    assert {interface.get('tenant') for interface in card['supportedInterfaces']} == {'acme', None}
    await verify_card(app, card, 'ES256')


@in_no_version('no request is sent')
def test_unsignable_card_is_refused_at_startup() -> None:
    with pytest.raises(TypeError, match=r'Access\.signing needs url=: a signed card has the URL of the agent'):
        to_a2a(Agent('test'), access=Access(signing=[private_pem()]))
    with pytest.raises(TypeError, match=r"Access\.signing needs '1\.0' among Access\.versions\."):
        signed_app(access={'versions': ['0.3']})
    with pytest.raises(ValueError, match='url takes an https or http URL'):
        to_a2a(Agent('test'), url='ftp://x', access=Access(signing=[private_pem()]))
    with pytest.raises(ValueError, match=r'Access\.signing\[0\] cannot be read'):
        signed_app('key')
    with pytest.raises(ValueError, match=r'because securitySchemes\.mtls\.mtlsSecurityScheme is empty'):
        signed_app(security_schemes={'mtls': {'mtls_security_scheme': {}}})
    with pytest.raises(ValueError, match='because description is empty'):
        signed_app(auth=APIKeyAuth({KEY: 'ann'}), access={'extended_card': {'description': ''}})


@in_no_version('no request is sent')
def test_repr_of_access_hides_signing_keys() -> None:
    assert 'PRIVATE' not in repr(Access(signing=[private_pem()]))
