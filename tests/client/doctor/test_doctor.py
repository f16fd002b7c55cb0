"""Each fault of a server is named, and none where there is none."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_ai_a2a import BearerAuth, Results, serve, to_a2a
from pydantic_ai_a2a.client.doctor.card_steps import interfaces
from pydantic_ai_a2a.client.doctor.examination import examine
from pydantic_ai_a2a.client.doctor.findings import Finding
from pydantic_ai_a2a.client.doctor.interface_probe import Probe
from pydantic_ai_a2a.client.http_connections import HttpConnections
from pydantic_ai_a2a.client.interfaces import Interface
from pydantic_ai_a2a.clock import Clock
from pydantic_ai_a2a.errors import RemoteUnavailable
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.types import SendParams
from pydantic_ai_a2a.wire.protocol.received_cards import read_card

from ...bounds import LIMIT
from ...clocks import HOUR, SetClock
from ...commands.command import run_command
from ...suites import READER_LAG
from ..canned_agent import (
    TASK,
    WORKING,
    CannedAgent,
    agent_message,
    card_with_interface,
    error_response,
    result_response,
    serve_canned,
    stream_response,
    task_in_state,
)
from ..servers import WaitingAgent, sdk_server

TOKEN = 'a-token-of-ann-1234'
NOT_FOUND = error_response(-32001, 'Gone.')
INVALID_PARAMS = error_response(-32602, 'Bad.')
NO_METHOD = error_response(-32601, 'No method.')
NOT_CANCELABLE = error_response(-32002, 'Too late.')
DONE = result_response({'task': TASK})


async def findings(url: str, token: str | None = None, patience: float = LIMIT) -> list[Finding]:
    async with asyncio.timeout(LIMIT):
        connections = HttpConnections(headers={}, auth=token, client=None, timeout=patience)
        return [finding async for finding in examine(url, connections)]


def problems(found: list[Finding]) -> list[str]:
    """The findings that are neither good nor left out."""
    return [f'{finding.level} {finding.step}' for finding in found if finding.level not in ('ok', 'not checked')]


class StandingClock(Clock):
    """A wall clock on which all events of a stream have one time: no proxy can seem to collect them."""

    def now(self) -> int:
        return HOUR


def plain_app(**options: Any) -> Any:
    backend = MemoryBackend('plain', reader_lag=READER_LAG, clock=StandingClock())
    return to_a2a(Agent(TestModel(), name='plain'), backend=backend, **options)


def mounted() -> Any:
    return Starlette(routes=[Mount('/agent', app=plain_app())])


@pytest.mark.parametrize(('make', 'path'), [(plain_app, ''), (mounted, 'agent')])
async def test_doctor_finds_no_fault_in_own_server(make: Callable[[], Any], path: str) -> None:
    with serve(make(), anonymous=True) as server:
        found = await findings(f'{server.url}{path}')
    assert {*problems(found)} == {'hint security', 'hint live text'}
    steps = [finding.step for finding in found if finding.level == 'ok']
    assert steps[:2] == ['card', 'interface']
    assert steps.count('repeated message') == steps.count('stream') == steps.count('ended task') == 3


async def test_stream_setting_mark_gives_no_live_text_hint() -> None:
    with serve(plain_app(results=Results(stream='mark'))) as server:
        found = await findings(server.url)
    assert {*problems(found)} == {'hint security'}


async def test_doctor_warns_only_if_token_is_missing() -> None:
    with serve(plain_app(auth=BearerAuth({TOKEN: 'ann'}))) as server:
        with_token = await findings(server.url, TOKEN)
        without = await findings(server.url)
    assert {*problems(with_token)} == {'hint live text'}
    assert {*problems(without)} == {'warning security'}


class BufferingProxy:
    """A proxy that collects an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, collect)
        for message in messages:
            await send(message)


@pytest.mark.parametrize('is_collected', [True, False])
async def test_proxy_buffering_stream_is_reported(is_collected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, arrived = SetClock(), Event()

    def arrive() -> float:
        at = clock.wall / 1000
        arrived.set()
        return at

    async def slow(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'One, '
        if not is_collected:
            await asyncio.to_thread(arrived.wait, LIMIT)
        clock.wall += HOUR
        yield 'two.'

    monkeypatch.setattr('pydantic_ai_a2a.client.doctor.interface_probe.time', SimpleNamespace(monotonic=arrive))
    backend = MemoryBackend('agent', reader_lag=READER_LAG, clock=clock)
    agent = Agent(FunctionModel(_quick, stream_function=slow))
    app = to_a2a(agent, backend=backend, results=Results(stream='mark'))
    with serve(BufferingProxy(app) if is_collected else app, anonymous=True) as server:
        found = await findings(server.url)
    [finding, *_] = [finding for finding in found if finding.step == 'live stream']
    assert finding.level == ('warning' if is_collected else 'ok'), finding


def _quick(messages: list[ModelMessage], info: AgentInfo) -> Any:
    return ModelResponse([TextPart('One.')])


def answers(**changed: Response) -> list[Response]:
    """The answers of a sound server to each request of an examination."""
    sound = {
        'unknown': NOT_FOUND,
        'anonymous': NOT_FOUND,
        'bad': INVALID_PARAMS,
        'nonsense': NO_METHOD,
        'message': DONE,
        'cancel': NOT_CANCELABLE,
        'again': DONE,
        'stream': stream_response({'task': TASK}, ids=True),
    }
    return [{**sound, **changed}[name] for name in sound]


def card_at(url: str, **changed: Any) -> dict[str, Any]:
    return {**card_with_interface(url=url), **changed}


async def examined(canned: CannedAgent, card: Callable[[str], Any] = card_at) -> list[Finding]:
    """Serve canned answers with the card for the URL of their server, and examine the server."""
    with serve(canned.app, anonymous=True) as server:
        canned.card = card(server.url)
        return await findings(server.url)


async def test_each_request_has_tenant_of_interface() -> None:
    canned = CannedAgent(*answers())
    await examined(canned, lambda url: card_at(url, supportedInterfaces=[{**interface(url), 'tenant': 'acme'}]))
    assert [params.get('tenant') for params in canned.params if params] == ['acme'] * 6


def html(status: int) -> Response:
    return Response('<html>', status, media_type='text/html')


@pytest.mark.parametrize(
    ('changed', 'finding', 'text'),
    [
        ({}, 'hint security', 'Everybody may call the agent'),
        ({'unknown': html(404)}, 'fault interface', 'JSONRPC 1.0 is declared and not served'),
        ({'unknown': NO_METHOD}, 'fault interface', 'JSONRPC 1.0 is declared and not served'),
        ({'unknown': html(500)}, 'fault unknown task', 'not the error -32001'),
        ({'unknown': html(500)}, 'fault content type', 'text/html'),
        ({'unknown': error_response(-32603, 'Oops.')}, 'fault unknown task', 'not the error -32001'),
        ({'anonymous': html(401)}, 'fault security', 'the card does not say so'),
        ({'bad': error_response(-32603, 'Oops.', 500)}, 'fault bad params', 'not the error -32602'),
        ({'nonsense': NOT_FOUND}, 'fault unknown method', 'not the error -32601'),
        ({'message': html(500)}, 'fault message', 'not answered with a task or a message'),
        ({'message': result_response({'task': {**TASK, 'contextId': ''}})}, 'fault context', 'no contextId'),
        ({'message': result_response({'task': task_in_state('FAILED')})}, 'warning message', 'is failed'),
        ({'cancel': result_response(TASK)}, 'fault ended task', 'Canceling an ended task'),
        ({'again': result_response({'task': {**TASK, 'id': 'other'}})}, 'hint repeated message', 'runs twice'),
        ({'stream': error_response(-32004, 'No streams.')}, 'fault stream', 'Streaming is declared'),
        ({'stream': stream_response('data: nonsense\n\n')}, 'fault stream', 'Streaming is declared'),
        ({'stream': stream_response({'task': TASK})}, 'hint event ids', 'cannot resume'),
    ],
)
async def test_each_fault_of_server_is_reported(changed: dict[str, Response], finding: str, text: str) -> None:
    found = await examined(CannedAgent(*answers(**changed)))
    named = [one for one in found if f'{one.level} {one.step}' == finding]
    assert named, problems(found)
    assert text in named[0].text
    assert named[0].sent.startswith('POST http://127.0.0.1:')


async def test_live_text_is_hinted_only_if_card_declares_it() -> None:
    assert 'hint live text' not in problems(await examined(CannedAgent(*answers())))


EVENT = f'data: {json.dumps({"result": {"task": WORKING}})}\n\n'
ENDLESS: dict[str, str] = {
    'events': EVENT,
    'comments': ':\n' * 1_000,
    'one event': 'data: ' + 'x' * 100_000,
    'values': f'data: {json.dumps({"result": {"task": {**WORKING, "metadata": {"a": [0] * 9_000}}}})}\n\n' + EVENT,
}


@pytest.mark.parametrize('name', ENDLESS)
async def test_doctor_stops_reading_endless_stream(name: str) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[str]:
        nonlocal sent
        yield EVENT
        while True:
            sent += len(ENDLESS[name])
            yield ENDLESS[name]
            await asyncio.sleep(0)  # the server sees that its client has left

    found = await examined(CannedAgent(*answers(stream=StreamingResponse(pieces(), media_type='text/event-stream'))))
    [named] = [finding for finding in found if finding.step == 'stream']
    assert (named.level, named.text[:19]) == ('warning', 'The stream was left')
    assert 'more than 10000000 bytes' in named.text
    assert sent < 50_000_000


async def test_doctor_stops_reading_stream_after_timeout() -> None:
    async def pieces() -> AsyncIterator[str]:
        while True:
            yield ':\n'
            await asyncio.sleep(0.01)

    canned = CannedAgent(StreamingResponse(pieces(), media_type='text/event-stream'))
    with serve_canned(canned) as server:
        connections = HttpConnections(timeout=0.2)
        async with asyncio.timeout(LIMIT):
            params = SendParams(message={'role': 'user', 'parts': [], 'message_id': 'm'})
            probe = Probe(Interface(server.url, 'JSONRPC', '1.0'), connections)
            answer = await probe.ask('SendStreamingMessage', params, streams=True)
            await connections.close()
    assert isinstance(answer.error, RemoteUnavailable)


async def test_cut_stream_is_reported() -> None:
    async def pieces() -> AsyncIterator[str]:
        yield EVENT
        raise ConnectionError

    found = await examined(CannedAgent(*answers(stream=StreamingResponse(pieces(), media_type='text/event-stream'))))
    [named] = [finding for finding in found if finding.step == 'stream']
    assert (named.level, 'has cut the connection' in named.text) == ('warning', True)


def test_at_most_20_interfaces_are_examined() -> None:
    entries = [interface(f'http://agent.example/{n}') for n in range(1_000)]
    card = read_card(card_at('http://agent.example/', supportedInterfaces=entries))
    *examined, rest = interfaces(card, 'http://agent.example/')
    assert len(examined) == 20
    assert isinstance(rest, Finding)
    assert (rest.level, rest.text) == ('not checked', 'The card names 980 more interfaces, which are not examined.')


def interface(url: str, binding: str = 'JSONRPC') -> dict[str, str]:
    return {'url': url, 'protocolBinding': binding, 'protocolVersion': '1.0'}


SECURED: dict[str, Any] = {
    'securitySchemes': {'bearer': {'httpAuthSecurityScheme': {'scheme': 'Bearer'}}},
    'securityRequirements': [{'schemes': {'bearer': {'list': []}}}],
}
CARDS: list[tuple[Callable[[str], Any], str, str]] = [
    (lambda url: html(404), 'fault card', 'no agent card'),
    (lambda url: Response('{}'), 'fault card', 'no agent card'),
    (lambda url: card_at(url, supportedInterfaces=[]), 'fault interface', 'names no interface'),
    (
        lambda url: card_at(url, supportedInterfaces=[interface('https://other.example')]),
        'fault interface',
        'another origin',
    ),
    (
        lambda url: card_at(url, supportedInterfaces=[interface('127.0.0.1:50051', 'GRPC')]),
        'hint interface',
        'GRPC 1.0 can be called, and is not examined',
    ),
    (
        lambda url: card_at(url, supportedInterfaces=[interface('other.example:50051', 'GRPC')]),
        'fault interface',
        'another origin',
    ),
    (
        lambda url: card_at(url, supportedInterfaces=[interface(url, 'SOAP')]),
        'not checked interface',
        'SOAP 1.0 is a binding that is not examined',
    ),
    (
        lambda url: card_at(url, supportedInterfaces=[interface(url, 'SOAP')]),
        'fault interface',
        'names no interface that clients can call',
    ),
    (
        lambda url: card_at(
            url,
            **SECURED,
        ),
        'fault security',
        'requests without credentials are served',
    ),
    (lambda url: card_at(url, capabilities={}), 'not checked stream', 'declares no streaming'),
]


@pytest.mark.parametrize(('change', 'finding', 'text'), CARDS)
async def test_each_fault_of_card_is_reported(change: Callable[[str], Any], finding: str, text: str) -> None:
    found = await examined(CannedAgent(*answers()), change)
    named = [one for one in found if f'{one.level} {one.step}' == finding]
    assert named, found
    assert text in named[0].text


@pytest.mark.parametrize('status', [401, 403])
async def test_refused_credentials_are_named(status: int) -> None:
    canned = CannedAgent(*answers(unknown=html(status), anonymous=html(401)))
    found = await examined(canned, lambda url: card_at(url, **SECURED))
    [finding] = [finding for finding in found if finding.step == 'security']
    assert (finding.level, finding.text) == ('warning', 'The agent has refused the credentials, or got none.')


def test_doctor_exits_with_1_after_fault(capsys: pytest.CaptureFixture[str]) -> None:
    canned = CannedAgent(*answers(bad=error_response(-32603, 'Oops.', 500)))
    with serve_canned(canned) as server:
        written = run_command(capsys, 'doctor', server.url, '--json')
    levels = [json.loads(line)['level'] for line in written.out.splitlines()]
    assert (written.code, levels.count('fault'), levels[-1]) == (1, 1, 'not checked')


def test_loopback_url_on_remote_card_is_reported() -> None:
    card = read_card(card_at('http://localhost:8000/'))
    [finding] = interfaces(card, 'https://agent.example/.well-known/agent-card.json')
    assert isinstance(finding, Finding)
    assert finding.level == 'fault'
    assert 'only the machine of the agent can reach' in finding.text
    [chosen] = interfaces(card, 'http://127.0.0.1:8000/.well-known/agent-card.json')
    assert isinstance(chosen, Interface)


@pytest.mark.parametrize(
    ('step', 'answer', 'came'),
    [
        ('message', stream_response({'task': TASK}), 'not JSON but text/event-stream'),
        ('stream', stream_response('data: ' + 'x' * 10_000_001), 'more than 10000000 bytes'),
    ],
    ids=['events in place of an answer', 'a long event'],
)
async def test_unreadable_answer_is_shown_in_finding(step: str, answer: Response, came: str) -> None:
    found = await examined(CannedAgent(*answers(**{step: answer})))
    [finding] = [finding for finding in found if finding.step == step]
    assert finding.level == 'fault'
    assert came in finding.came


async def test_unreachable_or_silent_agent_is_reported() -> None:
    assert problems(await findings('http://127.0.0.1:9')) == ['fault card']
    canned = CannedAgent()

    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http' and scope['method'] == 'POST':
            while (await receive())['type'] != 'http.disconnect':
                pass
            return
        await canned.app(scope, receive, send)

    with serve(silent, anonymous=True) as server:
        canned.card = card_at(server.url)
        async with asyncio.timeout(LIMIT):
            found = await findings(server.url, patience=0.2)
            while len(found) < 2:  # a slow machine needs longer for the card
                found = await findings(server.url, patience=0.2)
    _, finding = found
    assert finding.text == 'JSONRPC 1.0 is declared and cannot be reached.'


async def test_running_tasks_of_examination_are_canceled() -> None:
    message = {'message': agent_message('Hi.')}
    working = result_response({'task': {**WORKING, 'id': 'first'}})
    second = result_response({'task': {**WORKING, 'id': 'second'}})
    third = stream_response({'task': {**WORKING, 'id': 'third'}})
    canceled = result_response(task_in_state('CANCELED'))
    canned = CannedAgent(
        NOT_FOUND, NOT_FOUND, INVALID_PARAMS, NO_METHOD, working, canceled, second, canceled, third, canceled
    )
    await examined(canned)
    ids = [body['params']['id'] for _, _, _, body in canned.requests if body and body['method'] == 'CancelTask']
    assert ids == ['first', 'second', 'third']
    direct = CannedAgent(NOT_FOUND, NOT_FOUND, INVALID_PARAMS, NO_METHOD, result_response(message))
    assert problems(await examined(direct)) == ['hint security']
    streamed = CannedAgent(
        NOT_FOUND,
        NOT_FOUND,
        INVALID_PARAMS,
        NO_METHOD,
        DONE,
        NOT_CANCELABLE,
        DONE,
        stream_response('data:\n\n', message),
    )
    assert problems(await examined(streamed)) == ['hint security', 'hint event ids']


async def test_card_at_older_path_is_warning() -> None:
    canned = CannedAgent(*answers())

    async def older(scope: Scope, receive: Receive, send: Send) -> None:
        newer = scope['type'] == 'http' and scope['path'].endswith('agent-card.json')
        await (Response(status_code=404) if newer else canned.app)(scope, receive, send)

    with serve(older, anonymous=True) as server:
        canned.card = card_at(server.url)
        assert 'warning card' in problems(await findings(server.url))


class CardAtServerUrl:
    """An app whose card names the URL that it is called at."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http' or not scope['path'].endswith('agent-card.json'):
            await self._app(scope, receive, send)
            return
        body = b''

        async def change(message: Message) -> None:
            nonlocal body
            body += message.get('body', b'')

        await self._app(scope, receive, change)
        host, port = scope['server']
        card = re.sub(r'http://localhost(:\d+)?', f'http://{host}:{port}', body.decode())
        await Response(card, media_type='application/json')(scope, receive, send)


async def test_official_sdk_server_has_hints_but_no_faults() -> None:
    with serve(CardAtServerUrl(sdk_server(WaitingAgent(), 'JSONRPC', '1.0')), anonymous=True) as server:
        found = await findings(server.url)
    assert [one.text for one in found if one.level == 'fault'] == []
    assert {'hint security', 'hint repeated message', 'hint event ids'} <= {*problems(found)}


async def test_fasta2a_has_faults_in_bad_params_and_unknown_method() -> None:
    with serve(
        CardAtServerUrl(agent_to_a2a(Agent(TestModel()), url='http://localhost:8000')), anonymous=True
    ) as server:
        found = await findings(server.url)
    assert [one for one in problems(found) if one.startswith('fault')] == ['fault bad params', 'fault unknown method']


def test_doctor_command_prints_steps_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(plain_app()) as server:
        written = run_command(capsys, 'doctor', server.url)
        assert written.code == 0
        assert written.out.startswith('ok          card: The card of plain is valid. (§8.2)\n')
        assert '            sent: POST http://127.0.0.1:' in written.out
        assert run_command(capsys, 'doctor', server.url, '--json').lines[0]['step'] == 'card'
    written = run_command(capsys, 'doctor', 'http://127.0.0.1:9')
    assert written.code == 1
    assert 'fault       card: No agent answers at the URL.' in written.out
