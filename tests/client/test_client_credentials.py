"""Tokens of an issuer for a client: discovery, renewal, hostile cards and broken issuers."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext

from pydantic_ai_a2a import (
    A2A,
    A2AApp,
    A2AClient,
    CardRefused,
    ClientCredentials,
    JWTAuth,
    RemoteProtocolError,
    RemoteUnavailable,
    TokenRefused,
    a2a,
    issuer_requests,
    serve,
    to_a2a,
)
from pydantic_ai_a2a.client import client_credentials
from pydantic_ai_a2a.errors import UnauthenticatedError

from ..bounds import LIMIT
from ..server.auth.issuer import AUDIENCE
from ..tcp_server import tcp_server
from .agents.sample_agents import calling_agent
from .canned_agent import CARD, TASK, CannedAgent, error_response, result_response, stream_response
from .servers import text_of
from .token_issuer import OAUTH, OPENID, TokenIssuer, token_issuer

SECRET = 'secret of the robot: 100 % & more'
BASIC = 'Basic ' + b64encode(b'robot:secret+of+the+robot%3A+100+%25+%26+more').decode()
GRANT = {'grant_type': 'client_credentials'}


def credentials(issuer: TokenIssuer | str, **options: Any) -> ClientCredentials:
    return ClientCredentials(issuer if isinstance(issuer, str) else issuer.url, 'robot', SECRET, **options)


def protected_app(issuer: TokenIssuer) -> A2AApp:
    """Return an app for tokens of the issuer. The agent answers with the id of its caller."""
    agent = Agent('test', name='protected')

    @agent.tool
    async def caller(ctx: RunContext) -> str:
        return a2a(ctx).caller.id

    return to_a2a(agent, auth=JWTAuth(issuer.url, AUDIENCE))


def sent_tokens(canned: CannedAgent) -> list[str | None]:
    """Return the tokens of the requests, without requests for the card."""
    return [headers.get('authorization') for verb, _, headers, _ in canned.requests if verb == 'POST']


def unauthenticated_response(status: int = 401) -> Any:
    return error_response(-32000, status=status)


async def test_token_endpoint_is_discovered_and_token_is_reused() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        with serve(protected_app(issuer)) as server:
            auth = credentials(issuer, scopes=['send', 'read'], parameters={'audience': AUDIENCE})
            async with A2AClient(server.url, auth=auth) as client:
                card = await client.card()
                assert card.get('security_schemes') == {
                    'jwt': {'open_id_connect_security_scheme': {'open_id_connect_url': f'{issuer.url}{OPENID}'}}
                }
                assert issuer.paths == []
                for _ in range(2):
                    assert text_of((await client.send('Who am I?')).outcome) == '{"caller":"robot"}'
                assert [task async for task in client.list()]
    assert issuer.granted == [({**GRANT, 'scope': 'send read', 'audience': AUDIENCE}, BASIC)]
    assert issuer.paths == [OPENID, '/token', OPENID, '/keys']


async def test_agent_calls_remote_agent_with_issuer_token() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        with serve(protected_app(issuer)) as server:
            agent = calling_agent(capabilities=[A2A(server.url, auth=credentials(issuer))])
            assert 'robot' in (await agent.run('Who am I?')).output
    assert len(issuer.granted) == 1


async def test_oauth_2_metadata_and_client_secret_post_are_supported() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        issuer.url += '/realms/one'
        issuer.metadata |= {
            'issuer': issuer.url,
            'token_endpoint_auth_methods_supported': ['client_secret_post', 'private_key_jwt'],
        }
        issuer.answers = {f'{OAUTH}/realms/one': (200, issuer.metadata)}
        canned = CannedAgent(result_response(TASK))
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            await client.get('t')
        assert issuer.paths == [f'/realms/one{OPENID}', f'{OAUTH}/realms/one', '/token']
    assert issuer.granted == [({**GRANT, 'client_id': 'robot', 'client_secret': SECRET}, None)]
    assert [str(token)[:7] for token in sent_tokens(canned)] == ['Bearer ']


@pytest.mark.parametrize(
    ('lifetime', 'last', 'next_'),
    [(3600, 3569, 3571), ('3600', 3569, 3571), (60, 53, 55), (None, 10**9, None), (0, None, 0)],
)
async def test_token_is_reused_until_shortly_before_expiry(
    lifetime: Any, last: float | None, next_: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(client_credentials, 'time', clock)
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        issuer.lifetime = lifetime
        auth = credentials(issuer)
        token = await auth.token()
        for seconds, is_first in ((last, True), (next_, False)):
            if seconds is not None:
                clock.now = 1000.0 + seconds
                assert (await auth.token() == token) is is_first


async def test_refused_token_is_renewed_once() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        canned = CannedAgent(
            result_response(TASK),
            unauthenticated_response(),
            result_response(TASK),
            unauthenticated_response(),
            unauthenticated_response(),
            result_response(TASK),
        )
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            await client.get('t')
            await client.get('t')
            assert len(issuer.granted) == 2
            with pytest.raises(UnauthenticatedError):
                await client.get('t')
            assert len(issuer.granted) == 3
            await client.get('t')
    sent = sent_tokens(canned)
    assert [sent.index(token) for token in sent] == [0, 0, 2, 2, 4, 4]
    assert len(issuer.granted) == 3


async def test_concurrent_requests_share_token_renewal() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        canned = CannedAgent(result_response(TASK), *[unauthenticated_response()] * 5, result_response(TASK))
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            await client.get('t')
            await asyncio.gather(*[client.get('t') for _ in range(5)])
    assert len(issuer.granted) == 2


async def test_card_request_refused_with_401_is_retried_with_token() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        canned = CannedAgent(result_response(TASK), card=unauthenticated_response())
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            with pytest.raises(CardRefused, match='HTTP 401'):
                await client.get('t')
        assert len(issuer.granted) == 3
    sent = [headers.get('authorization') for _, _, headers, _ in canned.requests]
    # Each of the two well-known places: without a token, with a token, and with a renewed token. Then the URL itself.
    assert [sent.index(token) for token in sent] == [0, 1, 2, 0, 2, 5, 0]


EVIL = 'https://evil.example.com'
FOREIGN_ISSUERS: dict[str, dict[str, Any]] = {
    'OpenID Connect': {'openIdConnectSecurityScheme': {'openIdConnectUrl': f'{EVIL}{OPENID}'}},
    'OAuth 2': {'oauth2SecurityScheme': {'flows': {}, 'oauth2MetadataUrl': f'{EVIL}{OAUTH}'}},
    'A2A 0.3': {'type': 'openIdConnect', 'openIdConnectUrl': f'{EVIL}{OPENID}'},
    'no URL': {'openIdConnectSecurityScheme': {'openIdConnectUrl': 'http://[nonsense'}},
}


@pytest.mark.parametrize('scheme', FOREIGN_ISSUERS.values(), ids=FOREIGN_ISSUERS)
async def test_card_naming_another_issuer_gets_no_token(scheme: dict[str, Any]) -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        canned = CannedAgent(result_response(TASK), card={**CARD, 'securitySchemes': {'theirs': scheme}})
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            with pytest.raises(CardRefused, match='asks for tokens of another issuer than') as error:
                await client.send('hello')
        assert issuer.paths == []
    assert SECRET not in str(error.value)
    assert sent_tokens(canned) == []


async def test_card_with_plain_bearer_scheme_gets_token() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        schemes = {'theirs': FOREIGN_ISSUERS['OpenID Connect'], 'any': {'httpAuthSecurityScheme': {'scheme': 'Bearer'}}}
        canned = CannedAgent(result_response(TASK), card={**CARD, 'securitySchemes': schemes})
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            await client.get('t')
    assert len(sent_tokens(canned)) == 1


async def test_token_endpoint_named_by_card_gets_no_secret() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer, token_issuer() as evil:
        flows = {'clientCredentials': {'tokenUrl': f'{evil.url}/token', 'scopes': {'all': 'Everything'}}}
        card = {**CARD, 'securitySchemes': {'theirs': {'oauth2SecurityScheme': {'flows': flows}}}}
        async with A2AClient(CannedAgent(result_response(TASK), card=card).app, auth=credentials(issuer)) as client:
            await client.get('t')
        assert evil.paths == []
    assert issuer.granted == [(GRANT, BASIC)]


def metadata(**changes: Any) -> Callable[[TokenIssuer], Any]:
    return lambda issuer: issuer.metadata.update(changes)


def answer(path: str, status: int, body: Any) -> Callable[[TokenIssuer], Any]:
    return lambda issuer: issuer.answers.update({path: (status, body)})


def token(**changes: Any) -> Callable[[TokenIssuer], Any]:
    usual = {'access_token': 'the-token', 'token_type': 'bearer'}
    return answer('/token', 200, usual | changes)


INVALID_ANSWERS: dict[str, tuple[Callable[[TokenIssuer], Any], str]] = {
    'another issuer': (metadata(issuer=EVIL), 'its metadata names another issuer'),
    'no endpoint': (metadata(token_endpoint=None), "'None' is not an https URL"),
    'an endpoint without TLS': (metadata(token_endpoint='http://evil.example.com/token'), 'is not an https URL'),
    'no metadata': (answer(OPENID, 404, {}), 'HTTP 404'),
    'a redirect': (answer(OPENID, 302, {}), 'HTTP 404'),
    'metadata without JSON': (answer(OPENID, 200, b'<html>'), 'expected value'),
    'metadata in a list': (answer(OPENID, 200, []), 'the document is not a JSON object'),
    'too much': (answer(OPENID, 200, b' ' * 300_000), 'more than 262144 bytes'),
    'a token without JSON': (answer('/token', 200, b'the-token'), 'expected'),
    'no token': (token(access_token=None), 'the answer has no access token'),
    'a token with a header': (token(access_token='a\r\nX-Evil: b'), 'the answer has no access token'),
    'a long token': (token(access_token='a' * 20_000), 'the answer has no access token'),
    'another type': (token(token_type='DPoP'), 'the access token is no bearer token'),
    'no type': (token(token_type=None), 'the access token is no bearer token'),
    'a lifetime of words': (token(expires_in='soon'), 'the lifetime of the access token is no number of seconds'),
    'a lifetime in a list': (token(expires_in=[60]), 'the lifetime of the access token is no number of seconds'),
    'a negative lifetime': (token(expires_in=-1), 'the lifetime of the access token is no number of seconds'),
    'a long lifetime': (token(expires_in=10**400), 'the lifetime of the access token is no number of seconds'),
    'an endless lifetime': (token(expires_in=1e999), 'the lifetime of the access token is no number of seconds'),
}


@pytest.mark.parametrize(('change', 'reason'), INVALID_ANSWERS.values(), ids=INVALID_ANSWERS)
async def test_invalid_issuer_answer_is_protocol_error(change: Callable[[TokenIssuer], Any], reason: str) -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        change(issuer)
        canned = CannedAgent(result_response(TASK))
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            with pytest.raises(RemoteProtocolError, match='has sent no usable answer: ') as error:
                await client.send('hello')
    assert reason in str(error.value)
    assert SECRET not in repr(error.value)
    assert sent_tokens(canned) == []


async def test_unreachable_issuer_is_remote_unavailable() -> None:
    canned = CannedAgent(result_response(TASK))
    async with A2AClient(canned.app, auth=credentials('http://127.0.0.1:1')) as client:
        with pytest.raises(RemoteUnavailable, match=r'The issuer http://127\.0\.0\.1:1 cannot be reached'):
            await client.get('t')
    assert sent_tokens(canned) == []


async def test_concurrent_requests_share_timeout_of_hanging_issuer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        hanging.append(reader)

    hanging: list[asyncio.StreamReader] = []
    loop, limit = asyncio.get_running_loop(), LIMIT / 30
    time = loop.time
    monkeypatch.setattr(loop, 'time', lambda: time() + 2 * limit * bool(hanging))  # the limit is over at once
    monkeypatch.setattr(issuer_requests, 'TIME', limit)
    monkeypatch.setattr(issuer_requests, 'SILENCE', LIMIT)
    async with asyncio.timeout(LIMIT), tcp_server(hang) as port:
        auth = credentials(f'http://127.0.0.1:{port}')
        results = await asyncio.gather(*[auth.token() for _ in range(20)], return_exceptions=True)
    assert {str(result) for result in results} == {f'The issuer {auth.issuer} cannot be reached (TimeoutError).'}
    assert len(hanging) == 1


async def test_concurrent_requests_share_token_refusal_and_later_requests_retry() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        issuer.answers['/token'] = (401, {'error': 'invalid_client'})
        auth = credentials(issuer)
        results = await asyncio.gather(*[auth.token() for _ in range(20)], return_exceptions=True)
        assert [type(result) for result in results] == 20 * [TokenRefused]
        assert len(issuer.granted) == 1
        del issuer.answers['/token']
        assert await auth.token()
        assert len(issuer.granted) == 2


async def test_token_request_is_canceled_with_its_last_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        auth = credentials(issuer)
        reached = asyncio.Event()

        async def unanswered(*_: object, **__: object) -> tuple[int, bytes]:
            reached.set()
            return await asyncio.Future()

        with monkeypatch.context() as patch:
            patch.setattr(client_credentials, 'fetch', unanswered)
            patch.setattr(client_credentials, 'fetch_json', unanswered)
            calls = [asyncio.ensure_future(auth.token()) for _ in range(3)]
            await reached.wait()
            [fetch] = [task for task in asyncio.all_tasks() if 'ClientCredentials._ask' in repr(task)]
            for call in calls:
                call.cancel()
            results = await asyncio.gather(*calls, fetch, return_exceptions=True)
            assert [type(result) for result in results] == 4 * [asyncio.CancelledError]
        assert await auth.token()
        assert len(issuer.granted) == 1


async def test_concurrent_refusals_of_token_share_next_token_request() -> None:
    async def after_a_refusal(auth: ClientCredentials) -> str:
        return await auth.token(await auth.token())

    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        auth = credentials(issuer)
        [value] = {*await asyncio.gather(after_a_refusal(auth), after_a_refusal(auth), after_a_refusal(auth))}
        assert (value, len(issuer.granted)) == (await auth.token(), 2)


async def test_canceled_caller_does_not_cancel_shared_token_request() -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        auth = credentials(issuer)
        requests = [asyncio.ensure_future(auth.token()) for _ in range(3)]
        await asyncio.sleep(0)
        requests[0].cancel()
        cancelled, *values = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert values == 2 * [await auth.token()]
        assert len(issuer.granted) == 1


@pytest.mark.parametrize(
    ('body', 'code'),
    [
        ({'error': 'invalid_client', 'error_description': SECRET}, r' \(invalid_client\)\.'),
        ({'error': SECRET}, r'HTTP 401\.'),
        (b'<html>', r'HTTP 401\.'),
    ],
    ids=['code', 'text', 'HTML'],
)
async def test_issuer_refusal_shows_error_code_but_not_issuer_text(body: Any, code: str) -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        issuer.answers['/token'] = (401, body)
        canned = CannedAgent(result_response(TASK))
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            with pytest.raises(TokenRefused, match=code) as error:
                await client.send('hello')
        assert len(issuer.granted) == 1
    assert SECRET not in repr(error.value)
    assert sent_tokens(canned) == []


@pytest.mark.parametrize('path', [OPENID, '/token'])
async def test_message_is_retried_while_issuer_answers_503(path: str) -> None:
    async with asyncio.timeout(LIMIT), token_issuer() as issuer:
        issuer.busy[path] = 3
        canned = CannedAgent(stream_response({'task': TASK}))
        async with A2AClient(canned.app, auth=credentials(issuer)) as client:
            with pytest.raises(RemoteUnavailable, match='has answered with HTTP 503'):
                await client.get('t')
            assert issuer.busy == {path: 2}
            await client.send('hello')
        assert issuer.busy == {path: 0}
    assert len(sent_tokens(canned)) == 1


def test_event_loops_share_token_and_repr_hides_secret() -> None:
    canned = CannedAgent(result_response(TASK))

    async def main() -> None:
        async with asyncio.timeout(LIMIT), token_issuer() as issuer:
            auth.issuer = issuer.url
            async with A2AClient(canned.app, auth=auth) as client:
                await client.get('t')

    auth = credentials('http://127.0.0.1:1')
    asyncio.run(main())
    asyncio.run(main())
    first, second = sent_tokens(canned)
    assert first == second
    assert SECRET not in repr(auth)


@pytest.mark.parametrize(
    ('arguments', 'reason'),
    [
        (('http://login.example.com', 'robot', SECRET), 'is not an https URL'),
        (('login.example.com', 'robot', SECRET), 'is not an https URL'),
        (('https://login.example.com?realm=1', 'robot', SECRET), 'without user, query and fragment'),
        (('https://ann:secret@login.example.com', 'robot', SECRET), 'without user, query and fragment'),
        (('https://login.example.com', '', SECRET), 'needs a client_id and a client_secret'),
        (('https://login.example.com', 'robot', ''), 'needs a client_id and a client_secret'),
    ],
)
def test_invalid_issuer_url_or_empty_client_is_refused(arguments: tuple[str, str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ClientCredentials(*arguments)
