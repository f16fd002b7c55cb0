"""Authentication as a client meets it: what it is asked for, what it is told, what of it stands in the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from fasta2a.schema import HttpSecurityScheme, SecurityScheme
from fastapi import FastAPI
from fastapi import HTTPException as FastAPIException
from inline_snapshot import snapshot
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.types import Message

from pydantic_ai_a2a import (
    Access,
    AllOf,
    APIKeyAuth,
    Authenticator,
    BearerAuth,
    CallContext,
    Caller,
    InvalidCredentials,
    JWTAuth,
    Push,
    RequestInfo,
    StarletteAuth,
    hash_key,
    mount,
    to_a2a,
)
from pydantic_ai_a2a.errors import OverloadedError
from pydantic_ai_a2a.server.audit import LOGGER

from ...app_client import Client, Exchange, lifespan, message, rpc, state_of
from ...logs import audit_records
from ...server.auth.issuer import AUDIENCE, ISSUER, SECRET, Key, bearer, hs256_token, issuer
from ...serving import list_tasks, serving
from ..refusals import error_of_answer, send_body, serving_without_runs

ANN, BOB, CAROL = 'the-token-of-ann-1234', 'the-key-of-bob-1234', 'the-key-of-carol-1234'
READER, WRITER = frozenset({'read'}), frozenset({'read', 'write'})
TOKENS = BearerAuth({hash_key(ANN): Caller(id='ann', scopes=READER), CAROL: Caller(id='carol', scopes=WRITER)})
KEYS = APIKeyAuth({BOB: 'bob'})
JWT = JWTAuth(ISSUER, AUDIENCE, secret=SECRET)
BASIC = {'basic': SecurityScheme(http_auth_security_scheme=HttpSecurityScheme(scheme='Basic'))}


class UnreadBody(Exchange):
    """A request whose body nobody may ask for."""

    async def _receive(self) -> Message:
        raise AssertionError('the body was read')


@pytest.mark.parametrize('credentials', [{}, bearer('wrong'), bearer(ANN)], ids=['none', 'wrong', 'scope'])
async def test_unauthorized_request_is_refused_before_its_body_is_read(credentials: dict[str, str]) -> None:
    async with serving_without_runs(auth=TOKENS, access=Access(scopes={'*': 'admin'})) as client:
        answer = await UnreadBody(client.app, 'POST', '/', {**client.headers, **credentials}, b'').answer()
    error_of_answer(answer, status=403 if ANN in str(credentials) else 401, id=None)


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
            lambda: bearer(hs256_token(exp=1)),
            'Bearer realm="a2a", error="invalid_token", error_description="The token has expired", '
            'ApiKey realm="a2a", in="header", name="X-API-Key"',
        ),
    ],
    ids=['none', 'token', 'key', 'expired'],
)
async def test_401_has_a_challenge_for_every_scheme(credentials: Callable[[], dict[str, str]], challenge: str) -> None:
    async with serving_without_runs(auth=[TOKENS, KEYS, JWT]) as client:
        answer = await client.post(send_body(), credentials())
    error_of_answer(answer, status=401, id=None)
    assert answer.headers['www-authenticate'] == challenge


@pytest.mark.parametrize(
    ('credentials', 'owner'),
    [
        (lambda: bearer(ANN), 'ann'),
        (lambda: {'X-API-Key': BOB}, 'bob'),
        (lambda: bearer(hs256_token(sub='dora')), 'dora'),
        (lambda: bearer('wrong') | {'X-API-Key': BOB}, 'bob'),
        (lambda: bearer(ANN) | {'X-API-Key': BOB}, 'ann'),
    ],
    ids=['token', 'key', 'jwt', 'wrong and right', 'two'],
)
async def test_any_of_several_authenticators_is_enough(credentials: Callable[[], dict[str, str]], owner: str) -> None:
    async with serving(Agent('test'), auth=[TOKENS, KEYS, JWT], headers=credentials()) as client:
        task = await client.send()
        assert [each['id'] for each in await list_tasks(client, caller=Caller(id=owner))] == [task['id']]


async def test_all_of_requires_valid_credentials_for_every_scheme() -> None:
    async with serving(Agent('test'), auth=AllOf(TOKENS, KEYS)) as client:
        for credentials in ({}, bearer(ANN), {'X-API-Key': BOB}, bearer(ANN) | {'X-API-Key': 'wrong'}):
            error_of_answer(await client.post(send_body(), credentials), status=401, id=None)
        task = await Client(client.app, headers=bearer(ANN) | {'X-API-Key': BOB}).send()
        assert [each['id'] for each in await list_tasks(client, caller=Caller(id='ann'))] == [task['id']]


async def test_agent_card_declares_the_enforced_security() -> None:
    auth = [TOKENS, AllOf(JWT, KEYS), BearerAuth({CAROL: 'carol'})]
    async with serving_without_runs(auth=auth, access=Access(scopes={'*': ['b', 'a']})) as client:
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
async def test_operation_without_scopes_uses_its_equivalent_or_default(method: str) -> None:
    scopes = {'SendMessage': 'write', 'GetTask': ['read'], '*': {'read', 'admin'}}
    async with serving(Agent('test'), auth=TOKENS, access=Access(scopes=scopes)) as client:
        request = rpc(method, {'id': 'no-such-task', 'message': message()})
        answers = [await client.post(request, bearer(who)) for who in (ANN, CAROL)]
        allowed = ['error="insufficient_scope"' not in each.headers.get('www-authenticate', '') for each in answers]
    assert allowed == {'GetTask': [True, True], 'SubscribeToTask': [True, True], 'CancelTask': [False, False]}.get(
        method, [False, True]
    )


async def test_failing_jwt_issuer_gives_503_with_retry_after(caplog: pytest.LogCaptureFixture) -> None:
    key = Key()
    async with issuer(key) as server, serving_without_runs(auth=[JWTAuth(server.url, AUDIENCE), KEYS]) as client:
        server.status = b'500 Oops'
        answer = await client.post(send_body(), bearer(key.sign(iss=server.url)))
        error_of_answer(await client.post(send_body()), status=401, id=None)
    error = error_of_answer(answer, status=503, id=None)
    assert error.code == -32000
    assert int(answer.headers['retry-after']) in range(1, 31)  # since the attempt began
    assert 'www-authenticate' not in answer.headers
    assert [each['event'] for each in audit_records(caplog)] == ['authentication-unavailable']


def no_caller(_: Request) -> None:
    return None


async def test_auth_function_is_described_by_given_security_schemes() -> None:
    async with serving_without_runs(auth=no_caller, security_schemes=BASIC) as client:
        answer = await client.post(send_body())
        card = (await client.get('/.well-known/agent-card.json')).json
    error_of_answer(answer, status=401, id=None)
    assert answer.headers['www-authenticate'] == 'Basic realm="a2a"'
    assert card['securitySchemes'].keys() == {'basic'}


OPERATIONS: dict[str, dict[str, Any] | None] = {
    'SendMessage': {'message': message()},
    'SendStreamingMessage': {'message': message()},
    'GetTask': {'id': 'unknown'},
    'GetExtendedAgentCard': None,
    'CreateTaskPushNotificationConfig': {'taskId': 'unknown', 'url': 'https://example.com/'},
}


@pytest.mark.parametrize('kind', [HTTPException, FastAPIException])
@pytest.mark.parametrize('as_class', [False, True])
async def test_status_of_http_exception_decides_auth_refusal(
    kind: type[HTTPException], as_class: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def current_user(request: Request) -> Caller:
        raise kind(int(request.headers['x-status']), 'detail-1234', {'www-authenticate': 'Bearer'})

    class Users(Authenticator):
        async def authenticate(self, request: RequestInfo) -> Caller | None:
            return await current_user(request.starlette())

    auth = AllOf(KEYS, Users()) if as_class else current_user
    access = Access(extended_card={})
    async with serving_without_runs(auth=auth, access=access, push=Push()) as client:
        for operation, params in OPERATIONS.items():
            missing, denied, failed = [
                await client.post(rpc(operation, params), {'X-Status': str(status), 'X-API-Key': BOB})
                for status in (401, 403, 418)
            ]
            assert error_of_answer(missing, status=401, id=None).code == -32000
            assert ('ApiKey' in missing.headers['www-authenticate']) is as_class
            assert as_class or missing.headers['www-authenticate'] == 'Bearer'
            assert error_of_answer(denied, status=403, id=None).code == -32000
            assert b'detail-1234' not in missing.body + denied.body + failed.body
            assert error_of_answer(failed, id=None).code == -32603
    events = [record['event'] for record in audit_records(caplog)]
    assert events == ['authentication-missing', 'forbidden'] * len(OPERATIONS)


async def test_next_authenticator_is_tried_after_http_exception_401() -> None:
    class Users(Authenticator):
        async def authenticate(self, request: RequestInfo) -> Caller | None:
            raise HTTPException(401)

    async with serving(Agent('test'), auth=[Users(), KEYS]) as client:
        error_of_answer(await client.post(send_body()), status=401, id=None)
        assert state_of(await Client(client.app, headers={'X-API-Key': BOB}).send()) == 'COMPLETED'


async def test_same_subject_of_two_jwt_issuers_is_two_owners() -> None:
    other = JWTAuth('other', AUDIENCE, secret=SECRET, id_prefix='other:')
    named = JWTAuth('third', AUDIENCE, secret=SECRET, caller=lambda claims: Caller(id=f'third {claims["sub"]}'))
    async with serving(Agent('test'), auth=[JWT, other, named]) as client:
        task = await Client(client.app, headers=bearer(hs256_token())).send()
        for iss in ('other', 'third'):
            answer = await client.post(rpc('GetTask', {'id': task['id']}), bearer(hs256_token(iss=iss)))
            assert error_of_answer(answer).code == -32001


async def test_challenge_strips_quotes_and_line_breaks() -> None:
    odd = Stamp()
    odd.schemes = {'odd': SecurityScheme(api_key_security_scheme={'name': 'X-"Odd"\r\n', 'location': 'header'})}
    async with serving_without_runs(auth=odd) as client:
        answer = await client.post(send_body(), {'X-Stamp': 'bad'})
    error_of_answer(answer, status=401, id=None)
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
async def test_custom_authenticator_decides_without_declared_schemes(
    stamp: str | None, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Agent('test'), auth=Stamp()) as client:
        answer = await client.post(send_body(), {} if stamp is None else {'X-Stamp': stamp})
        card = (await client.get('/.well-known/agent-card.json')).json
    assert (answer.status, 'www-authenticate' in answer.headers) == (status, False)
    assert card.keys().isdisjoint({'securitySchemes', 'securityRequirements', 'security'})
    reasons = [each['reasons'] for each in audit_records(caplog) if 'reasons' in each]
    assert reasons == ([{'Stamp': 'smudged'}] if stamp == 'bad' else [])


async def test_auth_refusals_are_audited_without_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    unsigned = hs256_token('c' * 40)
    async with serving_without_runs(auth=[TOKENS, JWT, KEYS], access=Access(scopes={'SendMessage': 'write'})) as client:
        answers = [
            await client.post(send_body()),
            await client.post(send_body(), bearer(unsigned)),
            await client.post(
                send_body(), bearer(hs256_token(exp=1)) | {'X-API-Key': 'wrong\x85\u2028'.encode().decode('latin-1')}
            ),
            await client.post(send_body(), bearer(ANN)),
            await client.post(send_body(), bearer(hs256_token(sub='eve\u2028', tenant='t'))),
        ]
    records = audit_records(caplog)
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


async def test_audit_records_respect_the_logger_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, 'pydantic_ai_a2a.audit')
    async with serving_without_runs(auth=TOKENS) as client:
        error_of_answer(await client.post(send_body(), bearer('wrong')), status=401, id=None)
    assert audit_records(caplog) == []


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
def test_contradicting_auth_options_are_rejected(
    options: dict[str, Any], kind: type[Exception], complaint: str
) -> None:
    with pytest.raises(kind, match=complaint):
        to_a2a(Agent('test'), **options)


def test_all_of_rejects_schemes_of_same_name() -> None:
    with pytest.raises(ValueError, match='have the same name'):
        AllOf(KEYS, APIKeyAuth({BOB: 'bob'}, query='key'))


# --- users of Starlette's own authentication, around the app or around its parent -----------------------------------


class Nameless(SimpleUser):
    """A user of a Starlette whose `SimpleUser` has no identity."""

    @property
    def identity(self) -> str:
        raise NotImplementedError


class Backend(AuthenticationBackend):
    """Lets in whoever says a name, and knows what bob may do."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        name = conn.headers.get('x-user')
        if name is None:
            return None
        user = Nameless(name) if name.startswith('old') else SimpleUser(name)
        return AuthCredentials(['authenticated', 'write'] if name == 'bob' else ['authenticated']), user


AROUND = Middleware(AuthenticationMiddleware, backend=Backend())


@pytest.mark.parametrize('name', ['ann', 'old-ann'])
async def test_starlette_user_is_the_caller(name: str) -> None:
    async with serving(
        Agent('test'), auth=StarletteAuth(tenant='acme'), middleware=[AROUND], headers={'X-User': name}
    ) as client:
        task = await client.send()
        owned = await list_tasks(client, caller=Caller(id=name, tenant='acme'))
    assert [each['id'] for each in owned] == [task['id']]


async def test_starlette_auth_takes_claims_from_the_user() -> None:
    calls: list[CallContext] = []
    async with serving(
        Agent('test'),
        auth=StarletteAuth(claims=lambda user: {'name': user.display_name}),
        middleware=[AROUND],
        deps_factory=calls.append,
        headers={'X-User': 'ann'},
    ) as client:
        await client.send()
    assert [call.caller.claims for call in calls] == [{'name': 'ann'}]


@pytest.mark.parametrize('parent', [Starlette, FastAPI])
async def test_starlette_auth_uses_middleware_of_parent_app(parent: type[Starlette]) -> None:
    outer = parent(middleware=[AROUND])
    app = to_a2a(Agent('test'), auth=StarletteAuth(), access=Access(scopes={'SendMessage': 'write'}))
    mount(outer, '/agent', app)
    async with lifespan(outer):
        for path in ('/agent', '/agent/'):
            await Client(outer, path=path, headers={'X-User': 'bob'}).send()
            answer = await Client(outer, path=path).post(send_body(), {'X-User': 'ann'})
            assert error_of_answer(answer, status=403).message.startswith(
                'The operation needs credentials with the scope: write'
            )
        assert len(await app.list_tasks(caller=Caller(id='bob'))) == 2


async def test_unauthenticated_starlette_user_gets_401() -> None:
    async with serving_without_runs(auth=StarletteAuth(BASIC), middleware=[AROUND]) as client:
        answer = await client.post(send_body())
        card = (await client.get('/.well-known/agent-card.json')).json
    error_of_answer(answer, status=401, id=None)
    assert answer.headers['www-authenticate'] == 'Basic realm="a2a"'
    assert card['security'] == [{'basic': []}]


async def test_starlette_user_without_name_is_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_without_runs(auth=StarletteAuth(), middleware=[AROUND]) as client:
        assert error_of_answer(await client.post(send_body(), {'X-User': ''}), id=None).code == -32603
    assert 'no identity and no display_name' in caplog.text


async def test_starlette_auth_without_middleware_refuses_the_request(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_without_runs(auth=StarletteAuth()) as client:
        assert error_of_answer(await client.post(send_body(), {'X-User': 'ann'}), id=None).code == -32603
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert "needs Starlette's AuthenticationMiddleware" in str(record.exc_info[1])
