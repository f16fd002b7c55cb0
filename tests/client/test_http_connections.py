"""Connections of a client: silence, broken bytes and TLS, an app of this process, several event loops, and traces."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest
from fasta2a.schema import AgentCard
from opentelemetry import baggage
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.models.test import TestModel
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_ai_a2a import A2AClient, ClientCredentials, RemoteProtocolError, RemoteUnavailable, serve, to_a2a
from pydantic_ai_a2a.client.http_connections import NotConnected
from pydantic_ai_a2a.errors import MethodNotFoundError
from pydantic_ai_a2a.testing import A2ATestClient
from pydantic_ai_a2a.wire.extensions.own_extensions import REPLAY
from pydantic_ai_a2a.wire.protocol.received_cards import read_card

from ..app_client import lifespan
from ..bounds import LIMIT
from ..cases import each_case
from ..sizes import short_or_long
from .canned_agent import (
    CARD,
    TASK,
    WORKING,
    CannedAgent,
    artifact_update,
    canned_client,
    card_with_interface,
    error_response,
    result_response,
    serve_canned,
    silent_response,
    stream_response,
    timeout_after_few_requests,
)
from .cutting_proxy import cutting_proxy
from .servers import ANSWER, WaitingAgent, fasta2a_server, own_server, sdk_server, text_of


async def test_in_process_agent_is_served_by_its_client() -> None:
    async with asyncio.timeout(LIMIT), A2AClient(WaitingAgent().agent) as client:
        assert text_of((await client.send('hello')).outcome) == ANSWER


async def test_to_a2a_method_of_agent_is_not_called() -> None:
    class Foreign(WrapperAgent[Any, Any]):
        def to_a2a(self) -> None:
            raise AssertionError

    async with asyncio.timeout(LIMIT), A2AClient(Foreign(WaitingAgent().agent)) as client:
        assert text_of((await client.send('hello')).outcome) == ANSWER


async def test_running_app_stays_open_after_client_closes() -> None:
    app = to_a2a(WaitingAgent().agent)
    async with asyncio.timeout(LIMIT), lifespan(app):
        for _ in range(2):
            async with A2AClient(app) as client:
                assert text_of((await client.send('hello')).outcome) == ANSWER


async def test_client_entered_twice_starts_its_app_once() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        steps.append('start')
        yield
        steps.append('end')

    client = A2AClient(Starlette(routes=CannedAgent(result_response(TASK)).app.routes, lifespan=lifespan))
    async with asyncio.timeout(LIMIT), client:
        async with client:
            assert (await client.get('t')).task_id == 't'
        assert (await client.get('t')).task_id == 't'
        assert steps == ['start']
    assert steps == ['start', 'end']


@each_case('kind', [A2AClient, A2ATestClient], ids=['client', 'test client'])
async def test_client_has_connection_for_each_of_300_calls(kind: type[A2AClient]) -> None:
    canned, waiting, all_here = CannedAgent(result_response(TASK)), 0, asyncio.Event()

    async def together(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal waiting
        if scope['type'] == 'http' and scope['method'] == 'POST':
            waiting += 1
            if waiting == 300:
                all_here.set()
            await all_here.wait()
        await canned.app(scope, receive, send)

    with serve_canned(canned, together) as server:
        async with asyncio.timeout(LIMIT), kind(server.url, timeout=LIMIT) as client:
            await client.card()
            results = await asyncio.gather(*(client.get('t') for _ in range(300)))
    assert [result.task_id for result in results] == ['t'] * 300


async def test_full_pool_of_http_client_is_named() -> None:
    canned = CannedAgent(silent_response())
    with serve_canned(canned) as server:
        limits = httpx2.Limits(max_connections=1)
        async with asyncio.timeout(LIMIT), httpx2.AsyncClient(limits=limits) as http:
            card = read_card(card_with_interface(url=server.url))
            client = A2AClient(card, http_client=http, timeout=0.1)
            async with http.stream('GET', server.url + '/.well-known/agent-card.json'):
                with pytest.raises(NotConnected, match='all connections of `http_client` were in use'):
                    await client.get('t')


@each_case('numbered', [False, True])
async def test_task_with_silent_stream_is_polled(numbered: bool) -> None:
    number = 'id: 1\n' if numbered else ''
    event = json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': {'task': WORKING}})

    def silent_stream(*events: str) -> Response:
        async def body() -> AsyncGenerator[str]:
            for event in events:
                yield event
            raise httpx2.ReadTimeout('silent')

        return StreamingResponse(body(), media_type='text/event-stream')

    streams = [silent_stream(f'{number}data: {event}\n\n'), *([silent_stream()] if numbered else [])]
    canned = CannedAgent(*streams, result_response(WORKING), result_response(TASK))
    async with canned_client(canned) as client:
        updates = [update async for update in client.stream('hello')]
    assert [update.state for update in updates] == ['working', 'completed']
    subscribed = ['SubscribeToTask'] if numbered else []
    assert canned.methods == ['SendStreamingMessage', *subscribed, 'GetTask', 'GetTask']


async def test_socks_proxy_without_its_package_names_variable_and_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('all_proxy', 'socks5://127.0.0.1:1')
    monkeypatch.setitem(sys.modules, 'socksio', None)
    tokens = ClientCredentials('https://issuer.example', 'id', 'secret')
    async with asyncio.timeout(LIMIT), A2AClient('http://agent.example') as client:
        for call in (client.card(), tokens.token()):
            with pytest.raises(RemoteUnavailable, match='all_proxy names a SOCKS proxy, which needs the package soc'):
                await call


async def test_dead_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('http_proxy', 'http://ann:secret@127.0.0.1:9')
    async with asyncio.timeout(LIMIT), A2AClient('http://agent.example', timeout=0.2) as client:
        with pytest.raises(RemoteUnavailable, match=r'through the proxy http://127\.0\.0\.1:9 of http_proxy') as error:
            await client.card()
    assert 'secret' not in str(error.value)
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    for url in ('http://127.0.0.1:9', 'http://bob:secret@127.0.0.1:9'):
        async with asyncio.timeout(LIMIT), A2AClient(url, timeout=0.2) as client:
            with pytest.raises(RemoteUnavailable, match='cannot be reached: no connection'):
                await client.card()


def test_http_client_of_httpx_is_refused() -> None:
    other: Any = httpx.AsyncClient()
    with pytest.raises(TypeError, match='takes an AsyncClient of httpx2 or None, not an AsyncClient of httpx'):
        A2AClient('http://agent.example', http_client=other)


async def test_broken_gzip_answer_is_protocol_error() -> None:
    broken = Response(b'no gzip', headers={'content-encoding': 'gzip'}, media_type='application/json')
    async with A2AClient(CannedAgent(broken).app) as client:
        with pytest.raises(RemoteProtocolError, match='has sent an answer that cannot be read'):
            await client.get('t')


async def test_https_to_server_without_tls_is_remote_unavailable() -> None:
    with serve(Agent(TestModel())) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url.replace('http://', 'https://')) as client:
            with pytest.raises(RemoteUnavailable, match='If the server has no certificate, write http://'):
                await client.card()


async def test_requests_carry_traceparent_of_caller() -> None:
    canned = CannedAgent(result_response(TASK))
    tracer = TracerProvider().get_tracer('caller')
    async with A2AClient(canned.app) as client:
        with tracer.start_as_current_span('outer') as span:
            await client.get('t')
        trace = f'{span.get_span_context().trace_id:032x}'
        assert [headers['traceparent'].split('-')[1] for _, _, headers, _ in canned.requests] == [trace] * 2
        await client.get('t')
    assert 'traceparent' not in canned.requests[-1][2]


async def test_requests_carry_baggage_without_pydantic_ai_entries() -> None:
    canned = CannedAgent(result_response(TASK))
    noted = baggage.set_baggage('gen_ai.agent.name', 'travel')
    async with A2AClient(canned.app) as client:
        await client.get('t')
        token = attach(baggage.set_baggage('team', 'blue', noted))
        await client.get('t')
        detach(token)
    assert [headers.get('baggage') for _, _, headers, _ in canned.requests] == [None, None, 'team=blue']


@each_case('auth, sent', [('the-token', 'Bearer the-token'), (('ann', 'secret'), 'Basic YW5uOnNlY3JldA==')])
async def test_requests_carry_credentials_and_headers(auth: Any, sent: str) -> None:
    canned = CannedAgent(result_response(TASK))
    async with A2AClient(canned.app, auth=auth, headers={'x-team': 'blue'}) as client:
        await client.get('t')
    assert [headers['authorization'] for _, _, headers, _ in canned.requests] == [sent] * 2
    assert [headers['x-team'] for _, _, headers, _ in canned.requests] == ['blue'] * 2


async def test_stream_at_server_without_streams_is_method_not_found() -> None:
    async with A2AClient(
        CannedAgent(error_response(-32601), card=card_with_interface(protocolVersion='0.3')).app
    ) as client:
        with pytest.raises(MethodNotFoundError):
            async for _ in client.stream('hello'):
                pass


async def test_empty_events_are_ignored_and_artifacts_replaced_by_id() -> None:
    pieces = (('one', 'a'), ('two', 'b'), ('three', 'b'))
    events = [artifact_update(text, artifact_id=artifact_id) for text, artifact_id in pieces]
    canned = CannedAgent(stream_response({'task': WORKING}, 'event: ping\ndata:\n\n', *events, {'task': TASK}))
    async with A2AClient(canned.app) as client:
        updates = [update async for update in client.stream('hello')]
    tasks: list[Any] = [update.task for update in updates]
    assert [text_of({'artifacts': [artifact]}) for artifact in tasks[-2]['artifacts']] == ['one', 'three']


async def test_in_process_app_ending_without_response_is_error() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise LookupError('inside')

    async def mute(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    async with A2AClient(broken) as client:
        with pytest.raises(LookupError, match='inside'):
            await client.card()
    async with A2AClient(mute) as client:
        with pytest.raises(RemoteUnavailable, match='has cut the connection'):
            await client.card()


async def test_closing_stream_ends_in_process_app() -> None:
    canned = CannedAgent(result_response(TASK))
    ended = asyncio.Event()
    event = b'data: ' + json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': {'task': WORKING}}).encode() + b'\n\n'

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if scope['method'] == 'GET':
            await canned.app(scope, receive, send)
            return
        headers = [(b'content-type', b'text/event-stream')]
        await send({'type': 'http.response.start', 'status': 200, 'headers': headers})
        try:
            while True:
                await send({'type': 'http.response.body', 'body': event, 'more_body': True})
        finally:
            ended.set()

    async with asyncio.timeout(LIMIT), A2AClient(endless) as client:
        async with aclosing(client.stream('hello')) as updates:
            assert (await anext(updates)).task is not None
        assert ended.is_set()


async def test_lifespan_error_of_in_process_app_is_raised() -> None:
    @asynccontextmanager
    async def broken(app: Starlette) -> AsyncGenerator[None]:
        raise LookupError('no database')
        yield

    client = A2AClient(Starlette(lifespan=broken))
    with pytest.raises(LookupError, match='no database'):
        await client.__aenter__()


async def test_read_timeout_resends_message_and_polls_task() -> None:
    card = {**CARD, 'capabilities': {'extensions': [REPLAY]}}
    canned = CannedAgent(result_response({'task': WORKING}), result_response(TASK), card=card)
    silences: list[str] = []

    async def silent_at_first(scope: Scope, receive: Receive, send: Send) -> None:
        if scope['method'] == 'POST' and not silences:
            silences.append(scope['path'])
            raise httpx2.ReadTimeout('silent')
        await canned.app(scope, receive, send)

    async with A2AClient(silent_at_first, timeout=LIMIT) as client:
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] == 'completed'
    assert canned.methods == ['SendMessage', 'GetTask']
    assert canned.params[0]['configuration'] == {'returnImmediately': True}


@pytest.mark.parametrize(
    'options',
    [
        {'headers': {'x-key': 'secret\nx-admin: 1'}},
        {'headers': {'x-key': 'sécret'}},
        {'headers': {'x key': 'secret'}},
        {'auth': 'secret\n'},
    ],
)
def test_invalid_header_is_refused_at_construction(options: Any) -> None:
    with pytest.raises(ValueError, match='has characters that HTTP does not allow in a header') as refused:
        A2AClient('http://agent.example', **options)
    assert 'secret' not in str(refused.value)


@pytest.mark.parametrize('auth', ['secret', ClientCredentials('https://issuer.example', 'id', 'secret')], ids=repr)
def test_authorization_header_together_with_auth_is_refused(auth: Any) -> None:
    for name in ('Authorization', 'authorization'):
        with pytest.raises(ValueError, match='Leave one out') as refused:
            A2AClient('http://agent.example', headers={name: 'Bearer secret'}, auth=auth)
        assert 'secret' not in str(refused.value)


class BadAuth(httpx2.Auth):
    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        request.headers['authorization'] = 'Bearer secret\n'
        yield request


async def test_invalid_header_added_by_auth_is_value_error() -> None:
    with serve(WaitingAgent().agent) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url, auth=BadAuth()) as client:
            with pytest.raises(
                ValueError, match='HTTP does not allow a header that `auth` or `http_client` adds'
            ) as bad:
                await client.card()
    assert server.url in str(bad.value)
    assert bad.value.__suppress_context__


async def test_in_process_app_ignoring_cancellation_does_not_block_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr('pydantic_ai_a2a.client.asgi_transport.STOP_TIME', 0.0)
    released, ended = asyncio.Event(), asyncio.Event()
    canned = CannedAgent(result_response(TASK))

    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        if scope['method'] == 'GET':
            await canned.app(scope, receive, send)
            return
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        ended.set()

    async with asyncio.timeout(LIMIT), A2AClient(stubborn, timeout=0.1) as client:
        await fetch_card(client)
        with pytest.raises(RemoteUnavailable, match='was silent'):
            await client.get('t')
        assert 'An app in this process goes on with POST /rpc although its caller has left.' in caplog.text
        released.set()
        await ended.wait()


# --- connections that are cut at random places: every artifact is complete and comes once, and no task runs twice


async def send_and_wait(client: A2AClient, n: int, *, stream: bool, resend: bool = False) -> Any:
    """The task of one message, by a stream for each second one."""
    if not stream:
        return (await client.send(f'hello {n}')).outcome
    task: Any = None
    async for update in client.stream(f'hello {n}', resend=resend):
        task = update.task
    return task


async def fetch_card(client: A2AClient) -> None:
    """Fetch the card, over cut connections or on a slow machine."""
    while True:
        try:
            await client.card()
        except RemoteUnavailable:
            continue
        return


@pytest.mark.long
async def test_tasks_run_once_and_complete_over_cut_connections() -> None:
    tasks = short_or_long(40, 500)
    talker = WaitingAgent()
    app = own_server(talker)
    with serve(app) as server:
        async with asyncio.timeout(LIMIT), cutting_proxy(server.url, share=0.6, seed=1) as (url, cutter):
            async with A2AClient(url, timeout=LIMIT) as client:
                await fetch_card(client)
                answered = [await send_and_wait(client, n, stream=n % 2 == 0) for n in range(tasks)]
                assert cutter.cuts > tasks / 3
            assert [text_of(task) for task in answered] == [ANSWER] * tasks
            assert len({task['id'] for task in answered}) == tasks
        async with A2AClient(server.url) as client:
            assert len([task async for task in client.list()]) == tasks


async def card_through_proxy(url: str, server_url: str) -> AgentCard:
    """The card of a server, with the proxy in the place of the server."""
    async with A2AClient(server_url) as client:
        card = await client.card()
    [interface, *_] = card.get('supported_interfaces', [])
    interface['url'] = url + urlsplit(interface['url']).path.removeprefix('/')
    return card


def official_at_root(talker: WaitingAgent) -> ASGIApp:
    return sdk_server(talker, 'JSONRPC', '1.0')


@pytest.mark.long
@pytest.mark.parametrize('app', [official_at_root, fasta2a_server], ids=['official', 'fasta2a'])
async def test_tasks_of_foreign_servers_are_complete_over_cut_connections(app: Any) -> None:
    tasks = short_or_long(20, 100)
    with serve(app(WaitingAgent()), anonymous=True) as server:
        async with asyncio.timeout(LIMIT), cutting_proxy(server.url, share=0.6, seed=2) as (url, cutter):
            card = await card_through_proxy(url, server.url)
            answered: list[Any] = []
            lost = 0
            async with A2AClient(card, timeout=LIMIT) as client:
                while len(answered) < tasks:
                    try:
                        answered.append(await send_and_wait(client, len(answered), stream=True))
                    except RemoteUnavailable:  # a task that may have been started
                        lost += 1
            assert cutter.cuts > lost > 0
            assert [text_of(task) for task in answered] == [ANSWER] * tasks


async def test_lost_send_without_replay_warns_of_started_task() -> None:
    with serve(official_at_root(WaitingAgent()), anonymous=True) as server:
        async with asyncio.timeout(LIMIT), cutting_proxy(server.url, share=1, seed=4) as (url, _):
            card = await card_through_proxy(url, server.url)
            async with A2AClient(card, timeout=LIMIT) as client:
                answers = await asyncio.gather(*(client.send('hello') for _ in range(20)), return_exceptions=True)
            lost = [error for error in answers if isinstance(error, RemoteUnavailable)]
            assert any('may have been started' in str(error) for error in lost)


async def test_stopped_server_is_remote_unavailable_after_timeout() -> None:
    server = serve(Agent(TestModel()))
    async with asyncio.timeout(LIMIT):
        async with A2AClient(server.url) as client:
            card = await client.card()
        server.close()
    async with asyncio.timeout(LIMIT), A2AClient(card, timeout=0.3) as client:
        with pytest.raises(RemoteUnavailable, match='cannot be reached'):
            await client.send('hello')
        with pytest.raises(RemoteUnavailable, match='cannot be reached'):
            await client.get('task')


async def test_lost_stream_error_names_task_of_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    canned = CannedAgent(stream_response({'task': WORKING}), Response('', 502))
    async with A2AClient(canned.app, timeout=timeout_after_few_requests(canned, monkeypatch)) as client:
        with pytest.raises(RemoteUnavailable, match='The task t may go on: read it with `get`') as lost:
            await client.send('Hello.')
        assert lost.value.task_id == 't'


async def test_unanswered_resend_warns_of_started_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canned = CannedAgent(Response('', 502))
    async with A2AClient(canned.app, timeout=timeout_after_few_requests(canned, monkeypatch)) as client:
        with pytest.raises(RemoteUnavailable, match=r'The task may have been started: `list` has it then\.') as lost:
            await client.send('Hello.', resend=True)
        assert lost.value.task_id is None


async def test_lost_connection_keeps_warning_of_started_task() -> None:
    answers = iter([httpx2.Response(502)])

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == 'GET':
            return httpx2.Response(200, json=CARD)
        if (arrived := next(answers, None)) is None:
            raise httpx2.ConnectError('The server is gone.')
        return arrived

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http_client:
        client = A2AClient('http://agent.example', http_client=http_client, timeout=0.3)
        with pytest.raises(RemoteUnavailable, match=r'cannot be reached.* The task may have been started'):
            await client.send('Hello.', resend=True)
