"""Agents that are called over gRPC: ours, the official SDK's, and servers that answer wrongly or not at all."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from functools import partial
from typing import Any

import httpx2
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import (
    TLS,
    A2AClient,
    A2AToolset,
    Access,
    BearerAuth,
    CardRefused,
    Push,
    RemoteAgent,
    RemoteUnavailable,
    serve,
    serve_grpc,
    to_a2a,
)
from pydantic_ai_a2a.client import grpc_transport
from pydantic_ai_a2a.client.http_connections import NotConnected, Silent
from pydantic_ai_a2a.client.interfaces import choose
from pydantic_ai_a2a.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    MethodNotFoundError,
    NotFoundError,
    OverloadedError,
    PayloadTooLargeError,
    QuotaExceededError,
    RemoteProtocolError,
    TaskNotFoundError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from pydantic_ai_a2a.wire.extensions.own_extensions import EVENT_ID, EVENT_IDS_URI
from pydantic_ai_a2a.wire.protocol.received_cards import read_card

from ..bounds import LIMIT
from ..cases import each_case
from ..server.grpc.certificates import LOCAL, Authority
from ..tcp_server import tcp_server
from .agents.sample_agents import calling_agent
from .canned_agent import (
    TASK,
    WORKING,
    always_answer,
    always_refuse,
    canned_grpc_agent,
    encode_message,
    error_info,
    grpc_card,
    grpc_error,
)
from .cutting_proxy import cutting_proxy
from .servers import (
    ANSWER,
    ServerKind,
    WaitingAgent,
    client_of,
    options_for_binding,
    own_grpc_server,
    sdk_server,
    text_of,
)
from .test_client_credentials import credentials
from .token_issuer import token_issuer

TOKEN = 'the-token-of-ann-1234'


def guarded(talker: WaitingAgent) -> Any:
    push = Push(private_hosts=['127.0.0.1'])
    access = Access(extended_card={'description': 'More.'})
    auth = BearerAuth({TOKEN: 'ann'})
    return to_a2a(talker.agent, auth=auth, push=push, access=access, **options_for_binding('GRPC'))


@pytest.mark.parametrize(
    'peer',
    [
        ServerKind(guarded, {'binding': 'GRPC', 'auth': TOKEN}),
        ServerKind(partial(sdk_server, binding='GRPC', version='1.0'), {}),
    ],
    ids=['ours', 'official'],
)
async def test_webhooks_and_extended_card_work_over_grpc(peer: ServerKind) -> None:
    async with client_of(peer) as (client, _):
        task: Any = (await client.send('hello', metadata={'n': 1.5}, accepted_output_modes=['text/plain'])).outcome
        url = 'http://127.0.0.1:9/hook'
        authentication: Any = {'scheme': 'Bearer', 'credentials': 'x'}
        created = await client.create_push_config(task['id'], {'id': 'a', 'url': url, 'authentication': authentication})
        assert created == await client.get_push_config(task['id'], 'a')
        assert created.get('authentication') == authentication
        assert [config.get('id') for config in await client.list_push_configs(task['id'])] == ['a']
        await client.delete_push_config(task['id'], 'a')
        assert await client.list_push_configs(task['id']) == []
        assert (await client.extended_card())['name'] == 'talker'


async def test_grpc_interface_is_found_by_url_and_requires_token() -> None:
    talker = WaitingAgent()
    app = to_a2a(talker.agent, auth=BearerAuth({TOKEN: 'ann'}), **options_for_binding('GRPC'))
    with serve(app) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url, auth=TOKEN, binding='GRPC') as client:
            task: Any = (await client.send('hello')).outcome
            assert text_of(task) == ANSWER
            listed = [task.task_id async for task in client.list()]
        async with asyncio.timeout(LIMIT), A2AClient(server.url, binding='GRPC') as client:
            with pytest.raises(UnauthenticatedError) as refused:
                await client.get(task['id'])
    assert listed == [task['id']]
    assert refused.value.correlation_id
    assert refused.value.headers['Www-Authenticate'] == 'Bearer realm="a2a"'


async def test_remote_agents_and_tools_are_called_over_grpc() -> None:
    app = to_a2a(Agent(TestModel(custom_output_text='sunny'), name='weather'))
    async with asyncio.timeout(LIMIT), serve_grpc(app, port=0) as state:
        card = grpc_card(state['grpc_address'])
        assert (await RemoteAgent(card).run('Rome?')).output == 'sunny'
        async with RemoteAgent(card).run_stream('Rome?') as run:
            assert await run.get_output() == 'sunny'
        answered = await calling_agent(toolsets=[A2AToolset(card)]).run('Rome?')
    assert answered.output == 'sunny'


async def test_headers_and_credentials_are_sent_as_grpc_metadata() -> None:
    class Counted(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
            request.headers['X-Flow'] = 'first'
            response = yield request
            if response.status_code == 401:
                request.headers['X-Flow'] = 'second'
                yield request

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        if dict(context.invocation_metadata()).get('x-flow') == 'first':
            await context.abort(StatusCode.UNAUTHENTICATED, 'Again.')
        yield encode_message('Task', TASK)

    seen: list[dict[str, Any]] = []
    async with canned_grpc_agent(answers) as server:
        for auth in (TOKEN, ('ann', 'secret'), Counted()):
            async with A2AClient(server.card, headers={'X-Team': 'blue'}, auth=auth) as client:
                await client.get('t')
            seen.append(server.calls[-1][1])
    assert [one.pop('authorization', one.get('x-flow')) for one in seen] == [
        f'Bearer {TOKEN}',
        'Basic YW5uOnNlY3JldA==',
        'second',
    ]
    assert seen[0].keys() == {'a2a-version', 'user-agent', 'x-team'}
    assert (seen[0]['a2a-version'], seen[0]['x-team']) == ('1.0', 'blue')


async def test_refused_issuer_token_is_renewed() -> None:
    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        if len(server.calls) == 1:
            await context.abort(StatusCode.UNAUTHENTICATED, 'Expired.')
        yield encode_message('StreamResponse', {'task': TASK})

    async with (
        token_issuer() as issuer,
        canned_grpc_agent(answers) as server,
        A2AClient(server.card, auth=credentials(issuer)) as client,
    ):
        assert [update.state async for update in client.stream('hello')] == ['completed']
    tokens = [metadata['authorization'] for _, metadata in server.calls]
    assert len(issuer.granted) == len(set(tokens)) == 2


async def test_message_reaches_agent_with_tenant_and_extensions() -> None:
    requests: list[bytes] = []

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        requests.append(request)
        yield encode_message('SendMessageResponse', {'task': TASK})

    async with canned_grpc_agent(answers) as server, A2AClient(server.card | {'capabilities': {}}) as client:
        await client.send([{'text': 'hi'}, {'data': {'n': [1, None]}}], extensions=['urn:a', 'urn:b'])
        with pytest.raises(UnsupportedOperationError, match=r'SendMessageRequest has values that protobuf'):
            await client.send([{'data': 10**400}])
    [request] = requests
    message = grpc_transport.MethodMessages(grpc_transport.methods()['SendMessage'], 100).read(request)
    assert (message['tenant'], message['message']['parts'][1]) == ('blue', {'data': {'n': [1, None]}})
    assert server.calls[0][1]['a2a-extensions'] == 'urn:a, urn:b'


async def test_cut_stream_resumes_by_event_id() -> None:
    with serve(own_grpc_server(WaitingAgent())) as server:
        async with A2AClient(server.url) as client:
            card: Any = await client.card()
        [interface] = [each for each in card['supported_interfaces'] if each['protocol_binding'] == 'GRPC']
        async with (
            asyncio.timeout(LIMIT),
            cutting_proxy(f'http://{interface["url"]}', share=0.6, seed=3) as (url, cutter),
            A2AClient(card | {'supported_interfaces': [{**interface, 'url': url}]}, timeout=LIMIT) as client,
        ):
            for n in range(10):
                updates = [update async for update in client.stream(f'hello {n}')]
                assert text_of(updates[-1].task) == ANSWER
                assert 'metadata' not in str([update.event for update in updates])
        async with A2AClient(server.url) as client:
            assert len([task async for task in client.list()]) == 10
    assert cutter.cuts


@each_case('event_id', ['3', 'a\ndata: {}', 3.0, None])
async def test_event_id_is_removed_from_task_metadata(event_id: Any) -> None:
    metadata = {'team': 'blue', EVENT_IDS_URI: {EVENT_ID: event_id}}
    event = {'task': {**TASK, 'metadata': metadata}}
    async with canned_grpc_agent(always_answer('StreamResponse', event)) as server, A2AClient(server.card) as client:
        [update] = [update async for update in client.stream('hello')]
    assert update.task is not None
    assert update.task.get('metadata') == {'team': 'blue'}


# --- refusals ---------------------------------------------------------------------------------------------------------


@each_case(
    'code, text, details, error',
    [
        (StatusCode.NOT_FOUND, 'None.', [error_info('TASK_NOT_FOUND')], TaskNotFoundError),
        (StatusCode.NOT_FOUND, 'None.', [], MethodNotFoundError),
        (StatusCode.UNIMPLEMENTED, 'None.', [], MethodNotFoundError),
        (StatusCode.INVALID_ARGUMENT, 'Bad.', [error_info('INVALID_PARAMS')], InvalidParamsError),
        (StatusCode.FAILED_PRECONDITION, 'No.', [error_info('UNSUPPORTED_OPERATION')], UnsupportedOperationError),
        (StatusCode.RESOURCE_EXHAUSTED, 'Slowly.', [], QuotaExceededError),
        (StatusCode.RESOURCE_EXHAUSTED, 'Much.', [error_info('INVALID_REQUEST')], PayloadTooLargeError),
        (StatusCode.RESOURCE_EXHAUSTED, 'SERVER: Received message larger than max (5 vs. 4)', [], PayloadTooLargeError),
        (StatusCode.UNAVAILABLE, 'Busy.', [error_info('UNAVAILABLE')], OverloadedError),
        (StatusCode.INTERNAL, 'Oh.', [error_info('INTERNAL_ERROR')], InternalError),
        (StatusCode.DATA_LOSS, 'Oh.', [], A2AError),
    ],
    ids=lambda value: value.name if isinstance(value, StatusCode) else '',
)
async def test_grpc_status_raises_same_error_as_http_bindings(
    code: StatusCode, text: str, details: list[Message], error: type[A2AError]
) -> None:
    refusing = always_refuse(*grpc_error(code, text, *details))
    async with canned_grpc_agent(refusing) as server, A2AClient(server.card) as client:
        with pytest.raises(error, match=re.escape(text)) as refused:
            await client.get('t')
    assert refused.type in (error, NotFoundError)


async def test_refusal_has_field_violations_and_retry_after() -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field='id', description='Too long.')
    bad = error_details_pb2.BadRequest(field_violations=[violation])

    code, text, trailing = grpc_error(StatusCode.INVALID_ARGUMENT, 'Bad.', error_info('INVALID_PARAMS'), bad)
    refusing = always_refuse(code, text, (*trailing, ('retry-after', '7'), ('x-correlation-id', 'c-1')))
    async with canned_grpc_agent(refusing) as server, A2AClient(server.card) as client:
        with pytest.raises(InvalidParamsError) as refused:
            await client.get('t')
    assert [(each.field, each.description) for each in refused.value.violations] == [('id', 'Too long.')]
    assert (refused.value.retry_after, refused.value.correlation_id) == (7, 'c-1')


@pytest.mark.parametrize('details', [b'\xff', b'\x1a\x0a\x0a\x08a.b/none.'], ids=['broken', 'unknown'])
async def test_unreadable_status_details_are_ignored(details: bytes) -> None:
    refusing = always_refuse(StatusCode.PERMISSION_DENIED, 'Not you.', (('grpc-status-details-bin', details),))
    async with canned_grpc_agent(refusing) as server, A2AClient(server.card) as client:
        with pytest.raises(A2AError, match=r'Not you\.') as refused:
            await client.get('t')
    assert refused.value.http_status == 403


# --- lost calls -------------------------------------------------------------------------------------------------------


async def test_unreachable_server_is_named_and_reached_after_restart() -> None:
    async with (
        canned_grpc_agent(always_answer('Task', TASK)) as server,
        A2AClient(server.card, timeout=LIMIT) as client,
    ):
        await client.get('t')
        port = int(server.card['supportedInterfaces'][0]['url'].rpartition(':')[2])
    async with asyncio.timeout(LIMIT), A2AClient(server.card, timeout=LIMIT) as client:
        for _ in range(2):
            with pytest.raises(NotConnected, match=rf'grpc://127.0.0.1:{port}/GetTask cannot be reached'):
                await client.get('t')
        async with canned_grpc_agent(always_answer('Task', TASK), port=port):
            assert (await client.get('t')).task_id == 't'


async def test_server_silent_during_handshake_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.set()
        await reader.read()
        writer.close()

    taken, loop = asyncio.Event(), asyncio.get_running_loop()
    time, limit = loop.time, LIMIT / 4
    monkeypatch.setattr(loop, 'time', lambda: time() + limit * taken.is_set())  # from now on it is silent for so long
    async with (
        asyncio.timeout(LIMIT),
        tcp_server(silent) as port,
        A2AClient(grpc_card(f'127.0.0.1:{port}'), timeout=limit) as client,
    ):
        with pytest.raises(NotConnected, match='cannot be reached'):
            await client.get('t')


@each_case(
    'code, text',
    [
        (StatusCode.UNAVAILABLE, 'Socket closed'),
        (StatusCode.CANCELLED, ''),
        (StatusCode.INTERNAL, 'Received RST_STREAM with error code 2'),
    ],
)
async def test_lost_call_error_says_task_may_have_started(code: StatusCode, text: str) -> None:
    async with (
        canned_grpc_agent(always_refuse(code, text)) as server,
        A2AClient(server.card, timeout=LIMIT) as client,
    ):
        with pytest.raises(RemoteUnavailable, match=r'has cut the connection.* may have been started'):
            await client.send('hello')
    assert len(server.calls) == 1


async def test_call_deadline_is_client_timeout() -> None:
    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        remaining.append(context.time_remaining())
        yield encode_message('Task', TASK)

    remaining: list[float] = []
    async with canned_grpc_agent(answers) as server, A2AClient(server.card, timeout=LIMIT) as client:
        await client.get('t')
    assert 0 < remaining[0] < 1.1 * LIMIT  # gRPC rounds deadlines up


async def test_call_after_silence_uses_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    peers: list[str] = []
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, 'time', lambda: now)  # the deadline of gRPC ends a call, and no other timer

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        peers.append(context.peer())
        if len(peers) == 1:
            await asyncio.Event().wait()
        yield encode_message('Task', TASK)

    async with canned_grpc_agent(answers) as server, A2AClient(server.card, timeout=1.0) as client:
        with pytest.raises(Silent, match=r'silent for 1 seconds'):
            await client.get('t')
        answer = None
        while answer is None:
            with suppress(Silent):  # a slow machine is silent, too
                answer = await client.get('t')
    assert len(set(peers)) == len(peers) > 1


@pytest.fixture
async def instant_silence_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no wait for the next event last. The other limits have no end: no time passes but in gRPC itself."""
    loop = asyncio.get_running_loop()
    now, call_later = loop.time(), loop.call_later

    def call_soon(delay: float, call: Any, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        return call_later(0, call, *arguments, **options)

    monkeypatch.setattr(loop, 'time', lambda: now)
    monkeypatch.setattr(loop, 'call_later', call_soon)


@pytest.mark.usefixtures('instant_silence_timeout')
@pytest.mark.parametrize('begins', [True, False])
async def test_silent_stream_stays_open_while_health_check_answers(begins: bool) -> None:
    asked: list[None] = []
    enough = asyncio.Event()

    async def alive() -> None:
        asked.append(None)
        if len(asked) == 2:
            enough.set()

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        if begins:
            yield encode_message('StreamResponse', {'task': WORKING})
        await enough.wait()
        yield encode_message('StreamResponse', {'task': TASK})

    async with canned_grpc_agent(answers, alive) as server, A2AClient(server.card, timeout=LIMIT) as client:
        states = [update.state async for update in client.stream('hello')]
    assert states == [*(['working'] if begins else []), 'completed']
    assert [name for name, _ in server.calls] == ['SendStreamingMessage']


@pytest.mark.usefixtures('instant_silence_timeout')
async def test_silent_stream_is_given_up_when_health_check_hangs() -> None:
    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b''

    async with (
        canned_grpc_agent(answers, asyncio.Event().wait) as server,
        A2AClient(server.card, timeout=0.1) as client,
    ):
        with pytest.raises(RemoteUnavailable, match=r'silent for 0\.1 seconds.* may have been started'):
            await client.send('hello')


@pytest.mark.usefixtures('instant_silence_timeout')
async def test_stream_refused_after_silence_raises_its_error() -> None:
    asked = asyncio.Event()

    async def alive() -> None:
        asked.set()

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        await asked.wait()
        await context.abort(*grpc_error(StatusCode.INVALID_ARGUMENT, 'Bad.', error_info('INVALID_PARAMS')))
        yield b''

    async with canned_grpc_agent(answers, alive) as server, A2AClient(server.card, timeout=LIMIT) as client:
        with pytest.raises(InvalidParamsError, match=r'Bad\.'):
            await client.send('hello')


@pytest.mark.parametrize('begins', [True, False])
async def test_canceled_send_ends_grpc_call(begins: bool) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            if begins:
                yield encode_message('StreamResponse', {'task': WORKING})
            reached.set()
            await asyncio.Event().wait()
        finally:
            left.set()

    async with canned_grpc_agent(answers) as server, A2AClient(server.card) as client:
        sending = asyncio.ensure_future(client.send('hello'))
        await reached.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await left.wait()


# --- answers that are not A2A -----------------------------------------------------------------------------------------


@each_case(
    'messages, text',
    [
        ([b'\xff\xff'], 'cannot be read'),
        ([encode_message('Task', {**TASK, 'id': 'x' * 3000})], 'cannot be read'),
        ([encode_message('Task', {**TASK, 'metadata': {'n': [0] * 400}})], 'cannot be read'),
        ([encode_message('Task', {'id': 't'})], r'not answered in the form of A2A: status'),
    ],
    ids=['no message', 'too long', 'too many values', 'no task'],
)
async def test_invalid_grpc_answer_is_protocol_error(
    messages: list[bytes], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_transport, 'MAX_ANSWER', 2000)
    monkeypatch.setattr(grpc_transport, 'MAX_VALUES', 300)

    async def answers(name: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for message in messages:
            yield message

    async with canned_grpc_agent(answers) as server, A2AClient(server.card) as client:
        with pytest.raises(RemoteProtocolError, match=text):
            await client.get('t')


async def test_empty_stream_event_is_protocol_error() -> None:
    async with canned_grpc_agent(always_answer('StreamResponse', {})) as server, A2AClient(server.card) as client:
        with pytest.raises(RemoteProtocolError, match='exactly one of task'):
            await client.send('hello')


async def test_long_answer_is_read_completely() -> None:
    text = 'x' * 300_000
    artifact = {'artifactId': 'a', 'parts': [{'text': text}]}
    async with (
        canned_grpc_agent(always_answer('Task', {**TASK, 'artifacts': [artifact]})) as server,
        A2AClient(server.card) as client,
    ):
        assert text_of((await client.get('t')).outcome) == text


# --- the interface of a card ------------------------------------------------------------------------------------------


@each_case(
    'card_url, url, called',
    [
        ('http://127.0.0.1:8000/', '127.0.0.1:50051', 'grpc://127.0.0.1:50051'),
        ('http://localhost:8000/', '[::1]:50051', 'grpc://localhost:50051'),
        ('http://127.0.0.1:8000/', 'https://localhost:50051', 'grpcs://127.0.0.1:50051'),
        ('http://agent.example/', 'agent.example:50051', 'grpc://agent.example:50051'),
        ('http://agent.example/', '0.0.0.0:50051', 'grpc://agent.example:50051'),
        ('https://agent.example/', 'agent.example:50051', 'grpcs://agent.example:50051'),
        ('https://agent.example/', 'agent.example', 'grpcs://agent.example:443'),
        ('https://agent.example/', 'https://agent.example/a2a', 'grpcs://agent.example:443'),
        ('https://agent.example/', 'dns:///agent.example:50051', 'grpcs://agent.example:50051'),
        ('https://agent.example/', 'http://localhost:50051', 'grpcs://agent.example:50051'),
        ('https://agent.example/', 'grpcs://api.example:50051', 'grpcs://api.example:50051'),
        (None, 'agent.example:50051', 'grpcs://agent.example:50051'),
        (None, 'localhost:50051', 'grpc://localhost:50051'),
        (None, 'http://agent.example', 'grpc://agent.example:80'),
        (None, 'user:secret@agent.example:50051', 'grpcs://agent.example:50051'),
    ],
)
def test_interface_url_becomes_grpc_or_grpcs_url(card_url: str | None, url: str, called: str) -> None:
    chosen = choose(
        read_card(grpc_card(url)), card_url, binding=None, version=None, trusted_origins=['grpcs://api.example:50051']
    )
    assert (chosen.url, chosen.binding, chosen.version, chosen.tenant) == (called, 'GRPC', '1.0', 'blue')


@each_case(
    'card_url, url, text',
    [
        ('https://agent.example/', 'http://agent.example:50051', 'another origin, grpc://agent.example:50051'),
        ('https://agent.example/', 'api.example:50051', 'another origin, grpcs://api.example:50051'),
        ('http://agent.example/', 'api.example:50051', 'another origin, grpcs://api.example:50051'),
        ('http://127.0.0.1:8000/', '192.168.0.1:50051', 'another origin, grpcs://192.168.0.1:50051'),
        ('https://agent.example/', 'unix:/run/agent.sock', 'another origin'),
        ('https://agent.example/', 'ftp://agent.example:50051', 'another origin, ftp://agent.example:50051'),
        ('https://agent.example/', 'agent.example:port', 'another origin'),
    ],
)
def test_interface_at_another_origin_is_refused(card_url: str, url: str, text: str) -> None:
    with pytest.raises(CardRefused, match=text):
        choose(read_card(grpc_card(url)), card_url, binding=None, version=None, trusted_origins=())


def test_http_binding_is_preferred_unless_grpc_is_chosen() -> None:
    interfaces = [
        {'url': 'http://agent.example/', 'protocolBinding': binding, 'protocolVersion': version}
        for binding, version in [('GRPC', '1.0'), ('HTTP+JSON', '1.0'), ('JSONRPC', '0.3')]
    ]
    card = read_card({**grpc_card(''), 'supportedInterfaces': interfaces})
    older = read_card({**grpc_card(''), 'supportedInterfaces': [{**interfaces[0], 'protocolVersion': '0.3'}]})
    for binding, called in [(None, 'HTTP+JSON'), ('GRPC', 'GRPC')]:
        assert choose(card, None, binding=binding, version=None, trusted_origins=()).binding == called
    with pytest.raises(CardRefused, match=r'It names: GRPC 0\.3\.'):
        choose(older, None, binding=None, version=None, trusted_origins=())


async def test_http_client_with_grpc_interface_is_refused() -> None:
    async with httpx2.AsyncClient() as http, A2AClient(grpc_card('127.0.0.1:9'), http_client=http) as client:
        with pytest.raises(CardRefused, match='Leave `http_client` out'):
            await client.send('hello')


@pytest.mark.parametrize('trusted', [True, False])
async def test_tls_trusts_authorities_of_ssl_cert_file(
    trusted: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, 'authority')
    pair = authority.sign('server', *LOCAL)
    if trusted:
        monkeypatch.setenv('SSL_CERT_FILE', str(authority.file))
    tls = TLS(certificate=pair.certificate, key=pair.key)
    async with (
        asyncio.timeout(LIMIT),
        serve_grpc(Agent(TestModel()), port=0, tls=tls) as state,
        A2AClient(grpc_card(f'https://{state["grpc_address"]}'), timeout=LIMIT) as client,
    ):
        with pytest.raises(TaskNotFoundError if trusted else NotConnected) as refused:
            await client.get('t')
    assert trusted or str(refused.value).endswith('no connection could be opened, or its TLS is not accepted.')


WITHOUT = """
import asyncio, sys

sys.modules['grpc'] = None

from pydantic_ai_a2a import A2AClient, CardRefused

interface = {'url': 'agent.example:50051', 'protocolBinding': 'GRPC', 'protocolVersion': '1.0'}
try:
    asyncio.run(A2AClient({'name': 'agent', 'supportedInterfaces': [interface]}).send('hello'))
except CardRefused as error:
    print(error)
"""


def test_missing_grpc_extra_is_named_in_refusal() -> None:
    done = subprocess.run([sys.executable, '-c', WITHOUT], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout.endswith(
        "over gRPC, which needs the extra `grpc`: pip install 'pydantic-ai-a2a[grpc]', in a checkout '.[grpc]'\n"
    )
