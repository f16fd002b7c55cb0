"""Signed push notifications: what an app sends is verified once, and nothing else is."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from jwt import api_jws, decode
from jwt.algorithms import ECAlgorithm
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pydantic_ai_a2a import (
    Access,
    NotificationRefused,
    NotificationVerifier,
    Push,
    RemoteUnavailable,
    TrustedKeys,
    to_a2a,
)
from pydantic_ai_a2a.client import notification_verifier
from pydantic_ai_a2a.client.notification_verifier import Remembered
from pydantic_ai_a2a.wire.signing.app_signer import AppSigner

from ..constants import with_constants
from ..server.auth.issuer import Key, issuer
from ..serving import serving
from ..webhooks import webhook
from ..wire.signing.signing_keys import private_pem, public_pem

URL, HOOK = 'https://agent.example.com/', 'https://client.example.com'
HEADER = 'x-a2a-notification-signature'
BODY = b'{"statusUpdate":{"taskId":"t"}}'
TRUSTED = TrustedKeys(keys=[public_pem()])
SIGNER = AppSigner([private_pem()], 'Push.signing', URL, f'{URL}.well-known/jwks.json')


def verifier(trusted: TrustedKeys = TRUSTED, **options: Any) -> NotificationVerifier:
    arguments: dict[str, Any] = {'issuer': URL, 'audience': f'{HOOK}/hook', **options}
    return NotificationVerifier(trusted, **arguments)


def signed(url: str = f'{HOOK}/hook?key=secret', body: bytes = BODY, *, ago: float = 0.0) -> dict[str, str]:
    return {HEADER: SIGNER.sign_push(url, 'notification-1', body, int((time.time() - ago) * 1000))}


def signed_claims(alg: str = 'ES256', **changes: Any) -> dict[str, str]:
    """Headers with a token that is signed properly, and has other claims; None takes one away."""
    now = int(time.time())
    usual = {
        'iss': URL,
        'aud': HOOK,
        'iat': now,
        'exp': now + 300,
        'jti': 'one',
        'webhook_id': 'n',
        'request_body_sha256': sha256(BODY).hexdigest(),
    }
    claims = {name: value for name, value in (usual | changes).items() if value is not None}
    key: Any = private_pem() if alg == 'ES256' else 'x' * 64
    return {HEADER: api_jws.encode(json.dumps(claims).encode(), key, alg, headers={'kid': SIGNER.keys[0].kid})}


async def refusal_reason(headers: Mapping[str, str], body: bytes = BODY, **options: Any) -> str:
    with pytest.raises(NotificationRefused) as error:
        await verifier(**options).verify(headers, body)
    return str(error.value)


async def test_signed_push_notifications_of_server_are_verified() -> None:
    push = Push(private_hosts=['127.0.0.1'], signing=[private_pem(), public_pem('2048')])
    async with webhook() as hook, serving(Agent('test'), url=URL, push=push) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        received = await hook.got(3)
        keys = (await client.get('/.well-known/jwks.json')).json
        verify = verifier(TrustedKeys(keys=[keys]), audience=hook.url)
        verified = [await verify.verify(each.headers, each.body) for each in received]
    assert len(keys['keys']) == 2
    assert [each.content for each in verified] == [each.json for each in received]
    assert [each.id for each in verified] == [each.headers['webhook-id'] for each in received]
    assert {each.issuer for each in verified} == {URL}
    claims = decode(received[0].headers[HEADER], options={'verify_signature': False})
    assert {*claims} == {'iss', 'aud', 'iat', 'exp', 'jti', 'webhook_id', 'request_body_sha256'}
    assert claims['exp'] - claims['iat'] == 300
    assert claims['aud'] == hook.url.partition('/hook')[0]


async def test_webhook_retry_has_new_signature_and_same_notification_id() -> None:
    push = with_constants(Push, private_hosts=['127.0.0.1'], backoff=0.0001, signing=[private_pem()])
    access = Access(signing=[private_pem('2048')])
    async with webhook(500, 200) as hook, serving(Agent('test'), url=URL, push=push, access=access) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        first, second = (await hook.got(2))[:2]
        assert len((await client.get('/.well-known/jwks.json')).json['keys']) == 2
    verify = verifier(audience=hook.url)
    verified = [await verify.verify(each.headers, each.body) for each in (first, second)]
    assert verified[0].id == verified[1].id
    assert first.headers[HEADER] != second.headers[HEADER]


def test_card_and_push_keys_need_distinct_ids() -> None:
    keys = [{**ECAlgorithm.to_jwk(Key().private, as_dict=True), 'kid': 'key-1'} for _ in range(2)]
    to_a2a(Agent('test'), url=URL, push=Push(signing=keys[:1]), access=Access(signing=keys[:1]))
    with pytest.raises(
        ValueError, match="have different keys or algorithms with the id 'key-1': give each key a `kid`"
    ):
        to_a2a(Agent('test'), url=URL, push=Push(signing=keys[1:]), access=Access(signing=keys[:1]))


async def test_push_notification_without_signing_keys_is_unsigned() -> None:
    async with webhook() as hook, serving(Agent('test'), push=Push(private_hosts=['127.0.0.1'])) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        [first, *_] = await hook.got(1)
    assert HEADER not in first.headers
    assert (
        await refusal_reason(first.headers, first.body)
        == 'The notification has no X-A2A-Notification-Signature, or several.'
    )


def test_push_signing_needs_agent_url_and_readable_key() -> None:
    with pytest.raises(TypeError, match=r'Push\.signing needs url='):
        to_a2a(Agent('test'), push=Push(signing=[private_pem()]))
    with pytest.raises(ValueError, match=r'Push\.signing\[0\] cannot be read'):
        to_a2a(Agent('test'), url=URL, push=Push(signing=['x']))
    assert 'PRIVATE' not in repr(Push(signing=[private_pem()]))


async def test_replayed_notification_is_refused_but_retry_is_accepted() -> None:
    verify, headers = verifier(), signed()
    assert (await verify.verify(headers, BODY)).id == 'notification-1'
    with pytest.raises(NotificationRefused, match='is repeated'):
        await verify.verify(headers, BODY)
    assert (await verify.verify(signed(), BODY)).id == 'notification-1'


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clocks of the signatures and of their receiver stand."""
    now = time.time()
    monkeypatch.setattr(time, 'time', lambda: now)
    monkeypatch.setattr(notification_verifier, 'time', lambda: now)


@pytest.mark.usefixtures('stopped_clock')
async def test_notification_too_old_or_from_future_is_refused() -> None:
    assert (await verifier().verify(signed(ago=325), BODY)).id == 'notification-1'
    assert 'is late' in await refusal_reason(signed(ago=335))
    assert 'is late' in await refusal_reason(signed(ago=95), max_age=60)
    assert 'in the future' in await refusal_reason(signed(ago=-60))


async def test_host_of_webhook_may_have_capitals() -> None:
    url = 'https://Client.Example.com/hook'
    audience = decode(signed(url)[HEADER], options={'verify_signature': False})['aud']
    assert audience == 'https://client.example.com'  # receivers may compare it as text
    for verifying in (verifier(), verifier(audience=url)):
        assert (await verifying.verify(signed(url), BODY)).id == 'notification-1'


@pytest.mark.usefixtures('stopped_clock')
async def test_notification_from_clock_slightly_ahead_is_accepted() -> None:
    assert (await verifier().verify(signed(ago=-29), BODY)).id == 'notification-1'
    assert 'in the future' in await refusal_reason(signed(ago=-32))


async def test_changed_byte_in_body_or_signature_is_refused() -> None:
    headers = signed()
    for n in range(len(BODY)):
        changed = BODY[:n] + bytes([BODY[n] ^ 1]) + BODY[n + 1 :]
        assert await refusal_reason(headers, changed) == 'The body of the notification was changed.'
    token = headers[HEADER]
    for n, character in enumerate(token):
        await refusal_reason({HEADER: token[:n] + ('A' if character != 'A' else 'B') + token[n + 1 :]})


@pytest.mark.parametrize(
    ('headers', 'reason'),
    [
        ({}, 'has no X-A2A-Notification-Signature'),
        ({HEADER: 'x', HEADER.title(): 'x'}, 'or several'),
        ({HEADER: ''}, 'The signature of the notification is malformed.'),
        ({HEADER: 'x' * 30_000}, 'is malformed'),
        ({HEADER: '..'}, 'has a malformed header'),
        ({HEADER: 'a.=.a'}, 'has a malformed payload'),
        ({HEADER: 'eyJhbGciOiJub25lIn0.e30.'}, 'has an algorithm that is not accepted'),
    ],
)
async def test_missing_or_malformed_signature_is_refused(headers: dict[str, str], reason: str) -> None:
    assert reason in await refusal_reason(headers)


@pytest.mark.parametrize(
    ('changes', 'reason'),
    [
        ({'alg': 'HS256'}, 'has an algorithm that is not accepted'),
        ({'iss': 'https://other.example.com/'}, 'is of another agent'),
        ({'iss': None}, 'is of another agent'),
        ({'aud': 'https://other.example.com'}, 'is for another receiver'),
        ({'aud': None}, 'is for another receiver'),
        ({'request_body_sha256': None}, 'was changed'),
        ({'request_body_sha256': 'é'}, 'was changed'),
        ({'iat': None}, 'has no times'),
        ({'exp': True}, 'has no times'),
        ({'exp': 1e300}, 'has no times'),
        ({'exp': 1}, 'is late'),
        ({'jti': None}, 'has no jti'),
        ({'jti': 'x' * 300}, 'has no jti'),
        ({'webhook_id': 1}, 'has no webhook_id'),
    ],
)
async def test_signature_with_wrong_claims_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert reason in await refusal_reason(signed_claims(**changes))


async def test_non_json_payload_or_body_is_refused() -> None:
    for payload in (b'x', b'[]'):
        token = api_jws.encode(payload, private_pem(), 'ES256', headers={'kid': 'k'})
        assert 'is of another agent' in await refusal_reason({HEADER: token})
    assert 'is not JSON' in await refusal_reason(signed(body=b'x'), b'x')


async def test_signing_key_must_be_trusted_or_of_trusted_origin() -> None:
    trusted = TrustedKeys(keys=[public_pem('2048')])
    assert 'names a key that is not trusted' in await refusal_reason(signed(), trusted=trusted)
    key = Key('key-1')
    async with issuer(key) as served:
        jku = f'{served.url}/keys'
        claims = decode(signed_claims()[HEADER], options={'verify_signature': False})
        token = key.sign(headers={'jku': jku}, sub=None, **claims)
        notification = await verifier(TrustedKeys(origins=[served.url])).verify({HEADER: token}, BODY)
        assert notification.id == 'n'
        served.status = b'500 Broken'
        with pytest.raises(RemoteUnavailable):
            await verifier(TrustedKeys(origins=[served.url])).verify({HEADER: token}, BODY)


@pytest.mark.usefixtures('stopped_clock')
async def test_first_time_function_detects_replays_across_processes() -> None:
    remembered: dict[str, float] = {}

    async def first_time(token_id: str, remaining: float) -> bool:
        is_first = token_id not in remembered
        remembered[token_id] = remaining
        return is_first

    headers = signed()
    await verifier(first_time=first_time).verify(headers, BODY)
    with pytest.raises(NotificationRefused, match='is repeated'):
        await verifier(first_time=first_time).verify(headers, BODY)
    [remaining] = remembered.values()
    assert 330 < remaining <= 360


def test_memory_of_notification_ids_is_bounded() -> None:
    remember = Remembered(2)
    assert [remember('a', -1.0), remember('b', 60.0), remember('c', 60.0)] == [True, True, True]
    assert remember('b', 60.0) is False
    with pytest.raises(RemoteUnavailable, match='More than 2 notifications'):
        remember('d', 60.0)


def test_invalid_audience_or_max_age_is_refused() -> None:
    with pytest.raises(ValueError, match=r'audience must be a URL such as https://client\.example\.com'):
        verifier(audience='client')
    for age in (0, 301):
        with pytest.raises(ValueError, match='max_age must be more than 0 and at most 300 seconds'):
            verifier(max_age=age)


def fastapi_receiver(verify: NotificationVerifier) -> ASGIApp:
    app = FastAPI()

    async def hook(notification: Any = Depends(verify)) -> dict[str, Any]:  # noqa: B008 - as FastAPI has it
        return {'id': notification.id}

    app.post('/hook')(hook)
    return app


def starlette_receiver(verify: NotificationVerifier) -> ASGIApp:
    async def hook(request: Request) -> Response:
        return JSONResponse({'id': (await verify(request)).id})

    return Starlette(routes=[Route('/hook', hook, methods=['POST'])])


@pytest.mark.parametrize('receiver', [fastapi_receiver, starlette_receiver])
async def test_webhook_receiver_answers_401_or_413_to_bad_requests(receiver: Any) -> None:
    app = receiver(verifier(max_body=100))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOOK) as http:

        async def post(headers: dict[str, str], body: Any = BODY) -> tuple[int, str]:
            answer = await http.post('/hook', headers=headers, content=body)
            return answer.status_code, answer.text

        async def chunked() -> Any:
            yield BODY

        headers = signed()
        assert await post(headers) == (200, '{"id":"notification-1"}')
        status, text = await post(headers)
        assert (status, 'is repeated' in text) == (401, True)
        assert (await post(signed(ago=400)))[0] == 401
        assert (await post(signed(), b'{}'))[0] == 401
        assert (await post(signed(), b'x' * 101))[0] == 413
        assert (await post(signed(), chunked()))[0] == 413
        assert (await post({**signed(), 'content-length': '9' * 5000}))[0] == 413


async def test_webhook_receiver_answers_503_when_keys_are_unavailable() -> None:
    app = starlette_receiver(verifier(TrustedKeys(origins=['http://127.0.0.1:9'])))
    token = api_jws.encode(b'{}', private_pem(), 'ES256', headers={'kid': 'k', 'jku': 'http://127.0.0.1:9/keys'})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOOK) as http:
        answer = await http.post('/hook', headers={HEADER: token}, content=BODY)
    assert (answer.status_code, answer.text) == (503, 'The notification cannot be verified now.')
