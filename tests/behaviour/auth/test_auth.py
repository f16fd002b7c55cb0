"""Authentication as a client meets it: what it is asked for, what it is told, what of it stands in the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from fasta2a.schema import HttpSecurityScheme, SecurityScheme
from inline_snapshot import snapshot
from pydantic_ai import Agent
from starlette.requests import Request
from starlette.types import Message

from pydantic_ai_a2a import (
    Access,
    AllOf,
    APIKeyAuth,
    Authenticator,
    BearerAuth,
    Caller,
    InvalidCredentials,
    JWTAuth,
    RequestInfo,
    hash_key,
    to_a2a,
)
from pydantic_ai_a2a.audit import LOGGER
from pydantic_ai_a2a.errors import OverloadedError

from ...auth.issuer import AUDIENCE, ISSUER, SECRET, Key, bearer, issuer, shared
from ...client import Client, Exchange, lifespan, message, rpc
from ..refused import refusal, send, untouched
from ..stage import audited, serving

ANN, BOB, CAROL = 'the-token-of-ann-1234', 'the-key-of-bob-1234', 'the-key-of-carol-1234'
READER, WRITER = frozenset({'read'}), frozenset({'read', 'write'})
TOKENS = BearerAuth({hash_key(ANN): Caller(id='ann', scopes=READER), CAROL: Caller(id='carol', scopes=WRITER)})
KEYS = APIKeyAuth({BOB: 'bob'})
JWT = JWTAuth(ISSUER, AUDIENCE, secret=SECRET)


class Silent(Exchange):
    """A request whose body nobody may ask for."""

    async def _receive(self) -> Message:
        raise AssertionError('the body was read')


@pytest.mark.parametrize('credentials', [{}, bearer('wrong'), bearer(ANN)], ids=['none', 'wrong', 'scope'])
async def test_nobody_is_refused_only_after_the_body_is_read(credentials: dict[str, str]) -> None:
    async with untouched(auth=TOKENS, access=Access(scopes={'*': 'admin'})) as client:
        answer = await Silent(client.app, 'POST', '/', {**client.headers, **credentials}, b'').answer()
    refusal(answer, status=403 if ANN in str(credentials) else 401, id=None)


@pytest.mark.parametrize(
    ('credentials', 'challenge'),
    [
        (dict, 'Bearer realm="a2a", ApiKey realm="a2a", in="header", name="X-API-Key"'),
        (
            lambda: bearer('wrong'),
            'Bearer realm="a2a", error="invalid_token", ApiKey realm="a2a", in="header", name="X-API-Key"',
        ),
        (
            lambda: {'X-API-Key': 'wrong'},
            'Bearer realm="a2a", ApiKey realm="a2a", in="header", name="X-API-Key", error="invalid_token"',
        ),
        (
            lambda: bearer(shared(exp=1)),
            'Bearer realm="a2a", error="invalid_token", error_description="The token has expired", '
            'ApiKey realm="a2a", in="header", name="X-API-Key"',
        ),
    ],
    ids=['none', 'token', 'key', 'expired'],
)
async def test_a_refusal_says_what_would_do(credentials: Callable[[], dict[str, str]], challenge: str) -> None:
    async with untouched(auth=[TOKENS, KEYS, JWT]) as client:
        answer = await client.post(send(), credentials())
    refusal(answer, status=401, id=None)
    assert answer.headers['www-authenticate'] == challenge


@pytest.mark.parametrize(
    ('credentials', 'owner'),
    [
        (lambda: bearer(ANN), 'ann'),
        (lambda: {'X-API-Key': BOB}, 'bob'),
        (lambda: bearer(shared(sub='dora')), 'dora'),
        (lambda: bearer('wrong') | {'X-API-Key': BOB}, 'bob'),
        (lambda: bearer(ANN) | {'X-API-Key': BOB}, 'ann'),
    ],
    ids=['token', 'key', 'jwt', 'wrong and right', 'two'],
)
async def test_any_of_several_ways_will_do(credentials: Callable[[], dict[str, str]], owner: str) -> None:
    app = to_a2a(Agent('test'), auth=[TOKENS, KEYS, JWT])
    async with lifespan(app):
        task = await Client(app, headers=credentials()).send()
        assert [each['id'] for each in await app.list_tasks(caller=Caller(id=owner))] == [task['id']]


async def test_all_of_several_ways_may_be_needed_at_once() -> None:
    app = to_a2a(Agent('test'), auth=AllOf(TOKENS, KEYS))
    async with lifespan(app):
        client = Client(app)
        for credentials in ({}, bearer(ANN), {'X-API-Key': BOB}, bearer(ANN) | {'X-API-Key': 'wrong'}):
            refusal(await client.post(send(), credentials), status=401, id=None)
        task = await Client(app, headers=bearer(ANN) | {'X-API-Key': BOB}).send()
        assert [each['id'] for each in await app.list_tasks(caller=Caller(id='ann'))] == [task['id']]


async def test_the_card_declares_what_is_enforced() -> None:
    auth = [TOKENS, AllOf(JWT, KEYS), BearerAuth({CAROL: 'carol'})]
    async with untouched(auth=auth, access=Access(scopes={'*': ['b', 'a']})) as client:
        card = (await client.get('/.well-known/agent-card.json')).json
        assert (await client.get('/health/live')).status == 200
    security = {name: card[name] for name in ('securitySchemes', 'securityRequirements', 'security')}
    assert security == snapshot(
        {
            'securitySchemes': {
                'bearer': {'httpAuthSecurityScheme': {'scheme': 'Bearer'}, 'type': 'http', 'scheme': 'Bearer'},
                'jwt': {
                    'httpAuthSecurityScheme': {'scheme': 'Bearer', 'bearerFormat': 'JWT'},
                    'type': 'http',
                    'scheme': 'Bearer',
                    'bearerFormat': 'JWT',
                },
                'apiKey': {
                    'apiKeySecurityScheme': {'name': 'X-API-Key', 'location': 'header'},
                    'type': 'apiKey',
                    'name': 'X-API-Key',
                    'in': 'header',
                },
            },
            'securityRequirements': [
                {'schemes': {'bearer': {'list': ['a', 'b']}}},
                {'schemes': {'jwt': {'list': ['a', 'b']}, 'apiKey': {'list': ['a', 'b']}}},
            ],
            'security': [{'bearer': ['a', 'b']}, {'jwt': ['a', 'b'], 'apiKey': ['a', 'b']}],
        }
    )


@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage', 'GetTask', 'SubscribeToTask', 'CancelTask'])
async def test_what_is_not_named_needs_the_scopes_of_what_does_the_same(method: str) -> None:
    scopes = {'SendMessage': 'write', 'GetTask': ['read'], '*': {'read', 'admin'}}
    async with serving(Agent('test'), auth=TOKENS, access=Access(scopes=scopes)) as client:
        request = rpc(method, {'id': 'no-such-task', 'message': message()})
        answers = [await client.post(request, bearer(who)) for who in (ANN, CAROL)]
        allowed = ['error="insufficient_scope"' not in each.headers.get('www-authenticate', '') for each in answers]
    assert allowed == {'GetTask': [True, True], 'SubscribeToTask': [True, True], 'CancelTask': [False, False]}.get(
        method, [False, True]
    )


async def test_keys_that_cannot_be_checked_are_not_wrong(caplog: pytest.LogCaptureFixture) -> None:
    key = Key()
    async with issuer(key) as server, untouched(auth=[JWTAuth(server.url, AUDIENCE), KEYS]) as client:
        server.status = b'500 Oops'
        answer = await client.post(send(), bearer(key.sign(iss=server.url)))
        refusal(await client.post(send()), status=401, id=None)
    error = refusal(answer, status=503, id=None)
    assert error.code == -32000
    assert 1 < int(answer.headers['retry-after']) <= 30  # since the attempt began; 1 stands for unknown
    assert 'www-authenticate' not in answer.headers
    assert [each['event'] for each in audited(caplog)] == ['authentication-unavailable']


def nobody(_: Request) -> None:
    return None


async def test_a_function_says_who_calls_and_the_card_what_the_user_says() -> None:
    schemes = {'basic': SecurityScheme(http_auth_security_scheme=HttpSecurityScheme(scheme='Basic'))}
    async with untouched(auth=nobody, security_schemes=schemes) as client:
        answer = await client.post(send())
        card = (await client.get('/.well-known/agent-card.json')).json
    refusal(answer, status=401, id=None)
    assert answer.headers['www-authenticate'] == 'Basic realm="a2a"'
    assert card['securitySchemes'].keys() == {'basic'}


async def test_callers_of_two_issuers_are_kept_apart() -> None:
    other = JWTAuth('other', AUDIENCE, secret=SECRET, id_prefix='other:')
    named = JWTAuth('third', AUDIENCE, secret=SECRET, caller=lambda claims: Caller(id=f'third {claims["sub"]}'))
    async with serving(Agent('test'), auth=[JWT, other, named]) as client:
        task = await Client(client.app, headers=bearer(shared())).send()
        for iss in ('other', 'third'):
            answer = await client.post(rpc('GetTask', {'id': task['id']}), bearer(shared(iss=iss)))
            assert refusal(answer).code == -32001


async def test_nothing_breaks_out_of_a_challenge() -> None:
    odd = Stamp()
    odd.schemes = {'odd': SecurityScheme(api_key_security_scheme={'name': 'X-"Odd"\r\n', 'location': 'header'})}
    async with untouched(auth=odd) as client:
        answer = await client.post(send(), {'X-Stamp': 'bad'})
    refusal(answer, status=401, id=None)
    assert answer.headers['www-authenticate'] == snapshot(
        'ApiKey realm="a2a", in="header", name="X-Odd", error="invalid_token", error_description="no xX: 1"'
    )


class Stamp(Authenticator):
    """A way of the user's own, which no card can declare."""

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        stamp = request.header('x-stamp')
        if stamp == 'busy':
            raise OverloadedError
        if stamp == 'bad':
            raise InvalidCredentials('smudged', 'no "x"\r\nX: 1')
        return None if stamp is None else Caller(id=stamp)


@pytest.mark.parametrize(('stamp', 'status'), [('ann', 200), ('bad', 401), ('busy', 503), (None, 401)])
async def test_a_class_may_say_who_calls(stamp: str | None, status: int, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), auth=Stamp()) as client:
        answer = await client.post(send(), {} if stamp is None else {'X-Stamp': stamp})
        card = (await client.get('/.well-known/agent-card.json')).json
    assert (answer.status, 'www-authenticate' in answer.headers) == (status, False)
    assert card.keys().isdisjoint({'securitySchemes', 'securityRequirements', 'security'})
    reasons = [each['reasons'] for each in audited(caplog) if 'reasons' in each]
    assert reasons == ([{'Stamp': 'smudged'}] if stamp == 'bad' else [])


async def test_every_refusal_is_in_the_audit_log_and_no_credential_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    unsigned = shared('c' * 40)
    async with untouched(auth=[TOKENS, JWT, KEYS], access=Access(scopes={'SendMessage': 'write'})) as client:
        answers = [
            await client.post(send()),
            await client.post(send(), bearer(unsigned)),
            await client.post(
                send(), bearer(shared(exp=1)) | {'X-API-Key': 'wrong\x85\u2028'.encode().decode('latin-1')}
            ),
            await client.post(send(), bearer(ANN)),
            await client.post(send(), bearer(shared(sub='eve\u2028', tenant='t'))),
        ]
    records = audited(caplog)
    assert [each.pop('correlation_id') for each in records] == [each.headers['x-correlation-id'] for each in answers]
    assert [each.levelname for each in caplog.records if each.name == LOGGER] == ['INFO', *['WARNING'] * 4]
    assert records == snapshot(
        [
            {'event': 'authentication-missing', 'remote': 'testclient'},
            {
                'event': 'authentication-failed',
                'remote': 'testclient',
                'reasons': {'bearer': 'unknown', 'jwt': 'signature'},
            },
            {
                'event': 'authentication-failed',
                'remote': 'testclient',
                'reasons': {'bearer': 'unknown', 'jwt': 'expired', 'apiKey': 'unknown'},
            },
            {
                'event': 'forbidden',
                'remote': 'testclient',
                'operation': 'SendMessage',
                'needed': ['write'],
                'caller': 'ann',
            },
            {
                'event': 'authentication-failed',
                'remote': 'testclient',
                'reasons': {'bearer': 'unknown', 'jwt': 'claim sub'},
            },
        ]
    )
    assert not any(secret in caplog.text for secret in (ANN, BOB, SECRET, unsigned, 'wrong', hash_key(ANN)[7:]))


async def test_a_server_does_not_write_what_nobody_reads(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, 'pydantic_ai_a2a.audit')
    async with untouched(auth=TOKENS) as client:
        refusal(await client.post(send(), bearer('wrong')), status=401, id=None)
    assert audited(caplog) == []


CONTRADICTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({'auth': []}, ValueError, 'auth= is empty'),
    ({'auth': TOKENS, 'security_schemes': {'other': {}}}, TypeError, 'gets its security_schemes'),
    ({'auth': TOKENS, 'security_requirements': [{'schemes': {}}]}, TypeError, 'gets its security_schemes'),
    ({'auth': [KEYS, APIKeyAuth({BOB: 'bob'}, query='key')]}, ValueError, "the name 'apiKey'"),
    ({'auth': [JWT, JWTAuth('other', AUDIENCE, secret=SECRET)]}, ValueError, 'an id_prefix= of its own'),
    ({'auth': [AllOf(JWT, KEYS), JWTAuth('b', 'b', secret=SECRET)]}, ValueError, 'an id_prefix= of its own'),
    ({'auth': TOKENS, 'access': Access(scopes={'Send': 'a'})}, ValueError, "'Send', which is not an operation"),
    ({'auth': TOKENS, 'access': Access(scopes={'*': 'a b'})}, ValueError, "'a b' is not a valid scope"),
    ({'auth': TOKENS, 'access': Access(scopes={'GetTask': ['a"']})}, ValueError, 'is not a valid scope'),
    ({'access': Access(scopes={'*': 'a'})}, TypeError, 'Access.scopes needs auth='),
]


@pytest.mark.parametrize(('options', 'kind', 'complaint'), CONTRADICTIONS, ids=range(len(CONTRADICTIONS)))
def test_what_contradicts_itself_is_refused(options: dict[str, Any], kind: type[Exception], complaint: str) -> None:
    with pytest.raises(kind, match=complaint):
        to_a2a(Agent('test'), **options)


def test_two_ways_that_are_needed_at_once_have_different_names() -> None:
    with pytest.raises(ValueError, match='have the same name'):
        AllOf(KEYS, APIKeyAuth({BOB: 'bob'}, query='key'))
