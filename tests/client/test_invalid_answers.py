"""Answers that are wrong, hostile or late: each is a typed error that names the URL, and holds no credential."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx2
import pytest
from starlette.responses import RedirectResponse, Response, StreamingResponse

from pydantic_ai_a2a import A2AClient, A2AError, RemoteProtocolError, RemoteUnavailable
from pydantic_ai_a2a.client import followed_task, transport
from pydantic_ai_a2a.errors import (
    InternalError,
    MethodNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    QuotaExceededError,
    TaskNotFoundError,
    UnauthenticatedError,
)
from pydantic_ai_a2a.wire.extensions.own_extensions import REPLAY

from ..bounds import LIMIT
from ..cases import each_case
from .canned_agent import (
    CARD,
    TASK,
    WORKING,
    CannedAgent,
    agent_message,
    artifact_update,
    canned_client,
    card_with_interface,
    error_response,
    result_response,
    status_update,
    stream_response,
    task_in_state,
    timeout_after_few_requests,
)


def _event(value: Any) -> str:
    return f'data: {json.dumps({"jsonrpc": "2.0", "id": 1, "result": value})}\n\n'


def plain_response(body: str, status: int = 200, kind: str = 'text/html', **headers: str) -> Response:
    return Response(body, status, headers, media_type=kind)


@pytest.mark.parametrize(
    ('answer', 'text'),
    [
        (plain_response('<html>'), 'not JSON but text/html'),
        (Response(b'{"jsonrpc"', media_type='application/json'), 'the answer is broken JSON'),
        (Response(b'hello'), 'not JSON but no media type'),
        (Response(b'[]', media_type='application/json'), 'no JSON-RPC response'),
        (Response(b'', media_type='application/json'), 'no JSON-RPC response'),
        (result_response([]), 'valid dictionary'),
        (result_response({'id': 't', 'status': {'state': 'TASK_STATE_ODD'}}), 'status.state: must be a state'),
        (RedirectResponse('http://elsewhere.example/?token=secret-token'), 'HTTP 307 redirects'),
    ],
)
async def test_invalid_answer_is_protocol_error(answer: Response, text: str) -> None:
    async with canned_client(CannedAgent(answer)) as client:
        with pytest.raises(RemoteProtocolError, match=text) as refused:
            await client.get('t')
    assert 'http://agent.example/rpc' in str(refused.value)
    assert 'secret' not in str(refused.value)


@pytest.mark.parametrize(
    ('answer', 'kind'),
    [
        (plain_response('', 401, **{'WWW-Authenticate': 'Bearer'}), UnauthenticatedError),
        (plain_response('<html>', 403), PermissionDeniedError),
        (plain_response('{}', 500, 'application/json'), A2AError),
        (error_response(-32603, 'Broken.', 500), InternalError),
        (error_response(-32001, 'Gone.'), TaskNotFoundError),
        (error_response(-32001, 'Gone.', 404), TaskNotFoundError),
    ],
)
async def test_refusal_raises_error_of_its_code_or_http_status(answer: Response, kind: type[A2AError]) -> None:
    answer.headers['x-correlation-id'] = 'the-name'
    async with canned_client(CannedAgent(answer)) as client:
        with pytest.raises(kind) as refused:
            await client.get('t')
    assert type(refused.value) is kind
    assert refused.value.correlation_id == 'the-name'
    assert refused.value.headers.get('Www-Authenticate') == answer.headers.get('www-authenticate')


@each_case(
    'status, kind',
    [
        (401, UnauthenticatedError),
        (403, PermissionDeniedError),
        (418, A2AError),
        (429, QuotaExceededError),
        (500, A2AError),
        (503, OverloadedError),
    ],
)
@each_case('wait, seconds', [(None, None), ('86400', 86400.0), ('Tue, 24 Nov 2026 10:00:00 GMT', None), ('-1', None)])
@pytest.mark.parametrize('binding', ['JSONRPC', 'HTTP+JSON'])
async def test_refusal_without_body_has_status_and_retry_after(
    binding: str, status: int, kind: type[A2AError], wait: str | None, seconds: float | None
) -> None:
    refusal = Response(status_code=status, headers={} if wait is None else {'retry-after': wait})
    canned = CannedAgent(refusal, card=card_with_interface(protocolBinding=binding))
    async with canned_client(canned) as client:
        with pytest.raises(kind, match=rf'http://agent.example/rpc has answered with HTTP {status}\.') as refused:
            await client.get('t')
    assert refused.value.retry_after == seconds
    assert len(canned.requests) == 2


async def test_missing_result_of_deleted_webhook_is_null() -> None:
    gone = Response(b'{"jsonrpc": "2.0", "id": 1}', media_type='application/json')
    async with canned_client(CannedAgent(gone)) as client:
        await client.delete_push_config('t', 'c')
        with pytest.raises(RemoteProtocolError, match='valid dictionary'):
            await client.get('t')


async def test_missing_method_of_0_3_is_called_once() -> None:
    canned = CannedAgent(error_response(-32601), result_response(TASK), card=card_with_interface(protocolVersion='0.3'))
    async with canned_client(canned) as client:
        with pytest.raises(MethodNotFoundError):
            await client.get('t')
    assert canned.methods == ['tasks/get']


PROBLEM = {'type': 'about:blank', 'title': 'Forbidden', 'detail': 'Not on Sundays.'}
FIELDS = {'detail': [{'loc': ['body', 'params'], 'msg': 'Field required', 'type': 'missing'}]}
REASONS: dict[str, tuple[Response, str]] = {
    'FastAPI': (plain_response('{"detail": "Agent not found"}', 404, 'application/json'), 'HTTP 404. Agent not found'),
    'FastAPI, fields': (plain_response(json.dumps(FIELDS), 422, 'application/json'), 'HTTP 422. Field required'),
    'problem': (plain_response(json.dumps(PROBLEM), 403, 'application/problem+json'), 'HTTP 403. Not on Sundays.'),
    'OAuth 2': (
        plain_response('{"error": "invalid_token", "error_description": "Expired."}', 401, 'application/json'),
        'Expired.',
    ),
    'text': (plain_response(' No room\n for you.\x1b[2J ', 418, 'text/plain'), 'HTTP 418. No room  for you. [2J'),
    'long text': (plain_response('x' * 9_000, 418, 'text/plain'), 'x' * 900),
    'page': (plain_response('<html>', 418, 'text/html'), 'http://agent.example/rpc has answered with HTTP 418.'),
    'nothing': (plain_response('{"detail": {"a": [[], {}, 3]}}', 418, 'application/json'), 'HTTP 418.'),
}


@each_case('binding', ['JSONRPC', 'HTTP+JSON'])
async def test_refusal_reason_is_shown_in_single_line(binding: str) -> None:
    card = card_with_interface(protocolBinding=binding)
    for answer, text in REASONS.values():
        async with canned_client(CannedAgent(answer, card=card)) as client:
            with pytest.raises(A2AError) as refused:
                await client.get('t')
        assert text in str(refused.value)
        assert len(str(refused.value)) <= 1_000
        assert not {'\n', '\x1b'} & {*str(refused.value)}


@each_case(
    ('error', 'text'),
    [
        ({'code': -32603, 'message': 'Internal error', 'data': 'Model is busy'}, 'Internal error: Model is busy'),
        ({'code': -32603, 'message': 'Failed', 'data': {'error': {'message': 'No quota'}}}, 'Failed: No quota'),
        ({'code': -32603, 'message': 'Failed', 'data': [{'reason': 'X'}]}, 'Failed'),
        ({'code': -32603, 'message': 'Failed', 'data': {'detail': 'Model is busy'}}, 'Model is busy'),
        ('boom', 'boom'),
    ],
)
async def test_json_rpc_error_data_is_part_of_reason(error: Any, text: str) -> None:
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'error': error})
    async with canned_client(CannedAgent(plain_response(body, kind='application/json'))) as client:
        with pytest.raises(A2AError) as refused:
            await client.get('t')
    assert str(refused.value) == text


async def test_busy_agent_is_retried_until_task_completes() -> None:
    busy = error_response(-32000, 'Busy.', 503, {'retry-after': '0'})
    many = error_response(-32000, 'Too many.', 429)
    closed = error_response(-32004, 'This agent lets nobody subscribe.')
    canned = CannedAgent(
        busy, many, stream_response({'task': WORKING}), many, result_response(WORKING), closed, result_response(TASK)
    )
    async with canned_client(canned) as client:
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] == 'completed'
    assert canned.methods == ['SendStreamingMessage'] * 3 + ['GetTask'] * 2 + ['SubscribeToTask', 'GetTask']
    first, second, third = canned.messages
    assert first == second == third


async def test_first_long_retry_pause_is_logged_with_reason(caplog: pytest.LogCaptureFixture) -> None:
    short, long = (error_response(-32000, 'Busy.', 503, {'retry-after': wait}) for wait in ('0', '1'))
    async with canned_client(CannedAgent(short, long, long, stream_response({'task': TASK})), timeout=LIMIT) as client:
        await client.send('hello')
    [text] = [text for text in caplog.messages if 'repeated' in text]
    assert re.fullmatch(r'The request is repeated for up to \d+ seconds: Busy\.', text)


async def test_long_retry_after_is_quota_exceeded_error() -> None:
    async with canned_client(CannedAgent(error_response(-32000, 'Tomorrow.', 429, {'retry-after': '86400'}))) as client:
        with pytest.raises(QuotaExceededError) as refused:
            await client.send('hello')
    assert refused.value.retry_after == 86400


@each_case('streaming', [True, False])
@each_case('status', [502, 504])
async def test_long_retry_after_of_gateway_is_kept(status: int, streaming: bool) -> None:
    gone = Response(status_code=status, headers={'retry-after': '86400'})
    card = {**CARD, 'capabilities': {'streaming': streaming}}
    for answers, methods in (([gone], 1), ([result_response({'task': WORKING}), gone], 2)):
        canned = CannedAgent(*answers, card=card)
        async with canned_client(canned) as client:
            with pytest.raises(RemoteUnavailable) as refused:
                await client.send('hello', resend=True)
        assert (refused.value.retry_after, len(canned.methods)) == (86400, methods)


async def test_always_busy_agent_is_given_up_after_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    canned = CannedAgent(error_response(-32000, 'Busy.', 503))
    async with canned_client(canned, timeout=timeout_after_few_requests(canned, monkeypatch)) as client:
        with pytest.raises(OverloadedError):
            await client.send('hello')


@pytest.mark.parametrize(
    ('answer', 'kind', 'text'),
    [
        (plain_response('data: x', 200, 'text/html'), RemoteProtocolError, 'not JSON but text/html'),
        (result_response({}), RemoteProtocolError, 'exactly one of task'),
        (stream_response('data: nonsense\n\n'), RemoteProtocolError, 'not JSON but text/event-stream'),
        (stream_response({'task': {}}), RemoteProtocolError, 'task.id'),
        (stream_response('data: {"error": {"code": -32004, "message": "No."}}\n\n'), A2AError, 'No.'),
        (error_response(-32602, 'Bad.'), A2AError, 'Bad.'),
    ],
)
async def test_invalid_stream_answer_raises_typed_error(answer: Response, kind: type[Exception], text: str) -> None:
    async with canned_client(CannedAgent(answer)) as client:
        with pytest.raises(kind, match=text):
            async for _ in client.stream('hello'):
                pass


def task_with_artifacts(count: int) -> Any:
    artifacts: list[Any] = [{'artifactId': f'a{n}', 'parts': []} for n in range(count)]
    return {'task': {**WORKING, 'artifacts': artifacts}}


CHARACTERS = ('MAX_ANSWER', 5_000, 'more than 5000 characters')
ENTRIES = ('MOST_ENTRIES', 20, 'more than 20 artifacts and keys of metadata')
GROWING: dict[str, tuple[Callable[[int], Any], tuple[str, int, str]]] = {
    'text of an artifact': (lambda n: artifact_update('x' * 50, append=True), CHARACTERS),
    'text of artifacts': (lambda n: artifact_update('x' * 50, artifact_id=f'a{n}'), CHARACTERS),
    'text of metadata': (lambda n: status_update('WORKING', metadata={f'key {n}': 'x' * 50}), CHARACTERS),
    'artifacts': (lambda n: artifact_update('', artifact_id=f'a{n}'), ENTRIES),
    'artifacts of the task': (task_with_artifacts, ENTRIES),
    'keys of metadata': (lambda n: status_update('WORKING', metadata={f'key {n}': ''}), ENTRIES),
}


@pytest.mark.parametrize(('update', 'limit'), GROWING.values(), ids=GROWING)
async def test_endlessly_growing_task_is_refused(
    update: Callable[[int], Any], limit: tuple[str, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, value, text = limit
    monkeypatch.setattr(followed_task, name, value)
    sent = 0

    async def endless() -> AsyncGenerator[str]:
        nonlocal sent
        yield _event({'task': WORKING})
        while True:
            sent += 1
            yield _event(update(sent))

    async with canned_client(CannedAgent(StreamingResponse(endless(), media_type='text/event-stream'))) as client:
        with pytest.raises(RemoteProtocolError, match=f'http://agent.example/rpc .* {text}'):
            _ = [update async for update in client.stream('hello')]
    assert sent < 100


async def test_replaced_content_does_not_count_toward_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_task, 'MAX_ANSWER', 5_000)
    status = status_update('WORKING', metadata={'key': 'x' * 50})
    updates = [artifact_update('x' * 50), status, {'task': WORKING}] * 100
    async with canned_client(CannedAgent(stream_response({'task': WORKING}, *updates, {'task': TASK}))) as client:
        assert len([update async for update in client.stream('hello')]) == 302


async def test_cut_stream_resumes_after_last_event_id() -> None:
    begin = [{'task': {**WORKING, 'metadata': {'a': 1}}}, artifact_update('one '), ': keep-alive\n\n']
    rest = [artifact_update('two', append=True), status_update('COMPLETED', metadata={'b': 2})]
    canned = CannedAgent(stream_response(*begin, ids=True), stream_response(*rest, ids=True))
    async with canned_client(canned) as client:
        updates = [update async for update in client.stream('hello')]
    assert updates[-1].task == {
        'id': 't',
        'context_id': 'c',
        'status': {'state': 'completed'},
        'artifacts': [{'artifact_id': 'a', 'parts': [{'text': 'one two'}]}],
        'metadata': {'a': 1, 'b': 2},
    }
    assert canned.methods == ['SendStreamingMessage', 'SubscribeToTask']
    assert canned.requests[-1][2]['last-event-id'] == '2'


async def test_subscribe_with_last_event_id_assembles_later_events() -> None:
    pieces = [artifact_update({'url': 'http://x.example'}), artifact_update('b', append=True)]
    status = status_update('INPUT_REQUIRED')
    canned = CannedAgent(stream_response(*pieces, status, ids=True))
    async with canned_client(canned) as client:
        updates = [update async for update in client.subscribe('t', last_event_id=7)]
    assert updates[-1].task == {
        'id': 't',
        'context_id': 'c',
        'status': {'state': 'input-required'},
        'artifacts': [{'artifact_id': 'a', 'parts': [{'url': 'http://x.example'}, {'text': 'b'}]}],
    }
    async with canned_client(CannedAgent(stream_response(status, ids=True))) as client:
        [update] = [update async for update in client.subscribe('t', last_event_id=9)]
        assert update.task == {'id': 't', 'context_id': 'c', 'status': {'state': 'input-required'}}


def _shown(artifact: Any) -> str:
    contents = [str(part.get('text', part.get('data'))) for part in artifact['parts']]
    return ' '.join([artifact['artifact_id'], *contents])


async def test_earlier_updates_do_not_change_with_later_events() -> None:
    def chunk(artifact_id: str, *parts: Any) -> Any:
        return artifact_update(*parts, artifact_id=artifact_id, append=True)

    named = chunk('a', '3', {'text': '4', 'mediaType': 'text/plain'})
    named['artifactUpdate']['artifact']['name'] = 'answer'
    events: list[Any] = [
        {'task': {**WORKING, 'artifacts': [{'artifactId': 'a', 'parts': [{'text': '1'}]}]}},
        chunk('a', '2'),
        chunk('b', 'b', {'data': 1}),
        named,
        status_update('WORKING'),
        chunk('a', {'text': '5', 'mediaType': 'text/plain'}),
        artifact_update('1'),
        chunk('a', '6'),
        chunk('c'),
        chunk('c', 'c'),
        {'task': WORKING},
        {'task': {**TASK, 'artifacts': []}},
    ]
    async with canned_client(CannedAgent(stream_response(*events))) as client:
        seen = [(update.task, update) async for update in client.stream('hello')]
    assert [update.task for _, update in seen] == [task for task, _ in seen]
    texts = [[_shown(artifact) for artifact in (task or {}).get('artifacts', ())] for task, _ in seen]
    assert texts == [
        ['a 1'],
        ['a 12'],
        ['a 12', 'b b 1'],
        ['a 123 4', 'b b 1'],
        ['a 123 4', 'b b 1'],
        ['a 123 45', 'b b 1'],
        ['a 1', 'b b 1'],
        ['a 16', 'b b 1'],
        ['a 16', 'b b 1', 'c'],
        ['a 16', 'b b 1', 'c c'],
        ['a 16', 'b b 1', 'c c'],
        [],
    ]
    event, task = seen[1][1]
    assert (event, task) == (seen[1][1].event, seen[1][0])


@pytest.mark.parametrize('state', ['completed', 'failed', 'canceled', 'rejected', 'input-required', 'auth-required'])
async def test_task_is_followed_until_terminal_or_interrupted_state(state: str) -> None:
    task = task_in_state(state.upper().replace('-', '_'))
    for capabilities, answers in (
        ({'streaming': True}, [stream_response({'task': WORKING}, {'task': task})]),
        ({}, [result_response({'task': WORKING}), result_response(task)]),
    ):
        async with canned_client(CannedAgent(*answers, card={**CARD, 'capabilities': capabilities})) as client:
            states = [update.state async for update in client.stream('hello')]
        assert states == ['working', state]


async def test_agent_without_streaming_is_polled() -> None:
    card: dict[str, Any] = {**CARD, 'capabilities': {}}
    canned = CannedAgent(
        result_response({'task': WORKING}),
        result_response(WORKING),
        result_response(WORKING),
        result_response(TASK),
        card=card,
    )
    async with canned_client(canned) as client:
        updates = [update async for update in client.stream('hello')]
        assert [list(update.event) for update in updates] == [['task'], ['task']]
    assert canned.methods == ['SendMessage', 'GetTask', 'GetTask', 'GetTask']
    assert canned.params[0]['configuration'] == {'returnImmediately': True}
    canned = CannedAgent(result_response({'task': WORKING}), result_response(TASK), card=card)
    async with canned_client(canned) as client:
        task: Any = (await client.send('hello')).outcome
        assert task['status']['state'] == 'completed'


REPLAYING: dict[str, Any] = {**CARD, 'capabilities': {'extensions': [REPLAY]}}
NOT_STREAMING: dict[str, Any] = {**CARD, 'capabilities': {}}


@each_case(
    'card, message_id, options, is_resent',
    [
        pytest.param(REPLAYING, None, {}, True, id='agent with replay'),
        pytest.param(REPLAYING, 'm' * 16, {}, True, id='own message id'),
        pytest.param(REPLAYING, 'm' * 15, {}, False, id='own short message id'),
        pytest.param(NOT_STREAMING, None, {}, False, id='agent without replay'),
        pytest.param(NOT_STREAMING, None, {'resend': True}, True, id='option'),
    ],
)
async def test_lost_message_is_resent_only_with_replay_or_option(
    card: Any, message_id: str | None, options: Any, is_resent: bool
) -> None:
    canned = CannedAgent(plain_response('', 504), plain_response('', 502), result_response({'task': TASK}), card=card)
    content: Any = {'role': 'user', 'parts': [{'text': 'hello'}], 'message_id': message_id} if message_id else 'hello'
    async with canned_client(canned) as client:
        if is_resent:
            await client.send(content, **options)
        else:
            with pytest.raises(RemoteUnavailable, match=r'started\. `resend=True` sends the message again'):
                await client.send(content, **options)
    first, *others = canned.params
    assert others == [first, first] * is_resent


async def test_method_not_found_does_not_affect_later_requests() -> None:
    card = {**CARD, 'capabilities': {'extendedAgentCard': True}}
    canned = CannedAgent(
        error_response(-32601),
        error_response(-32601),
        error_response(-32601),
        result_response({'task': TASK}),
        card=card,
    )
    async with canned_client(canned) as client:
        with pytest.raises(MethodNotFoundError):
            await client.extended_card()
        with pytest.raises(MethodNotFoundError):
            await client.get('t')
        await client.send('hello', return_immediately=True)
    assert canned.methods == ['GetExtendedAgentCard', 'GetTask', 'tasks/get', 'SendMessage']


async def test_http_json_tenant_is_first_path_segment() -> None:
    card: dict[str, Any] = {**card_with_interface(protocolBinding='HTTP+JSON', tenant='a/b'), 'capabilities': {}}
    canned = CannedAgent(plain_response(json.dumps({'task': TASK}), kind='application/json'), card=card)
    async with canned_client(canned) as client:
        await client.send('hello')
        canned.answers = [plain_response(json.dumps(TASK), kind='application/json')]
        await client.get('t')
    (_, send, _, body), (_, get, _, _) = canned.requests[1:]
    assert (send, get) == ('/rpc/a/b/message:send', '/rpc/a/b/tasks/t')  # Starlette shows %2F as /
    assert 'tenant' not in body


async def test_unauthenticated_error_includes_challenge_description() -> None:
    challenge = 'Bearer error="invalid_token", error_description="The token has expired"'
    canned = CannedAgent(error_response(-32000, 'Authentication is required.', 401, {'WWW-Authenticate': challenge}))
    async with canned_client(canned) as client:
        with pytest.raises(UnauthenticatedError) as refused:
            await client.get('t')
    assert refused.value.message == str(refused.value) == 'Authentication is required. The token has expired'


async def test_json_message_is_sent_and_unknown_fields_are_refused() -> None:
    wire: Any = {'role': 'ROLE_USER', 'messageId': 'm', 'parts': [{'raw': 'AA==', 'mediaType': 'image/png'}]}
    canned = CannedAgent(result_response({'task': TASK}))
    async with canned_client(canned) as client:
        await client.send(wire)
        refused: list[Any] = [{'role': 'user', 'kind': 'message', 'parts': []}, {**wire, 'text': 'hello'}]
        for unknown in refused:
            with pytest.raises(ValueError, match=r"A message has no field '(kind|text)': give a Message, or the JSON"):
                await client.send(unknown)
    assert canned.messages[-1] == wire


async def test_request_has_version_extensions_tenant_and_credentials() -> None:
    canned = CannedAgent(result_response({'task': TASK}), card=card_with_interface(tenant='acme'))
    async with canned_client(canned) as client:
        await client.send(
            {'parts': [{'data': 3}], 'role': 'user', 'message_id': 'm'},
            task_id='t',
            context_id='c',
            metadata={'a': 1},
            accepted_output_modes=['text/plain'],
            extensions=['https://x.example/a', 'https://x.example/b'],
            history_length=2,
            push={'url': 'https://me.example', 'authentication': {'scheme': 'Bearer', 'credentials': 'x'}},
            return_immediately=True,
        )
    _, path, headers, body = canned.requests[-1]
    assert path == '/rpc'
    assert headers['a2a-version'] == '1.0'
    assert headers['a2a-extensions'] == 'https://x.example/a, https://x.example/b'
    assert headers['authorization'] == 'Bearer secret-token'
    assert body['params'] == {
        'tenant': 'acme',
        'message': {'messageId': 'm', 'taskId': 't', 'contextId': 'c', 'role': 'ROLE_USER', 'parts': [{'data': 3}]},
        'configuration': {
            'acceptedOutputModes': ['text/plain'],
            'historyLength': 2,
            'returnImmediately': True,
            'taskPushNotificationConfig': {
                'url': 'https://me.example',
                'authentication': {'scheme': 'Bearer', 'credentials': 'x'},
            },
        },
        'metadata': {'a': 1},
    }


async def test_webhooks_are_created_listed_over_pages_and_deleted() -> None:
    config: dict[str, Any] = {'id': 'a', 'taskId': 't', 'url': 'https://me.example'}
    canned = CannedAgent(
        result_response(config),
        result_response(config),
        result_response({'configs': [config], 'nextPageToken': 'next'}),
        result_response({'configs': [{**config, 'id': 'b'}]}),
        result_response({}),
    )
    async with canned_client(canned) as client:
        created = await client.create_push_config('t', {'url': 'https://me.example'})
        assert created == {'id': 'a', 'task_id': 't', 'url': 'https://me.example'}
        assert await client.get_push_config('t', 'a') == created
        assert [config.get('id') for config in await client.list_push_configs('t')] == ['a', 'b']
        await client.delete_push_config('t', 'a')


async def test_webhook_credentials_without_scheme_are_refused() -> None:
    config: Any = {'url': 'https://me.example', 'authentication': {'credentials': 'secret'}}
    canned = CannedAgent()
    async with canned_client(canned) as client:
        with pytest.raises(KeyError, match='scheme'):
            await client.create_push_config('t', config)


async def test_endless_task_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, 'MOST_PAGES', 3)
    canned = CannedAgent(result_response({'tasks': [TASK], 'nextPageToken': 'again'}))
    async with canned_client(canned) as client:
        with pytest.raises(RemoteProtocolError, match='more than 3 pages'):
            _ = [task async for task in client.list()]
    assert [params.get('pageToken') for params in canned.params] == [None, 'again', 'again']


async def test_event_of_another_task_is_refused() -> None:
    events: list[Any] = [
        status_update('WORKING', taskId='other'),
        artifact_update('x', taskId='other'),
        {'task': {**WORKING, 'id': 'other'}},
        {'message': agent_message(taskId='other')},
    ]
    for event in events:
        async with canned_client(CannedAgent(stream_response({'task': WORKING}, event))) as client:
            with pytest.raises(
                RemoteProtocolError, match=r'http://agent.example/rpc .* an event is of another task than t'
            ):
                _ = [update async for update in client.stream('hello')]


@pytest.mark.parametrize('charset', ['hex', 'idna', 'undefined'])
async def test_invalid_event_ids_and_charsets_are_ignored(charset: str) -> None:
    answer = stream_response(f'id: {"9" * 5000}\ndata: {json.dumps({"result": {"task": TASK}})}\n\n')
    answer.headers['content-type'] = f'text/event-stream; charset={charset}'
    async with canned_client(CannedAgent(answer)) as client:
        task: Any = (await client.send('hello')).outcome
        assert task['id'] == 't'


async def test_subscribe_to_ended_task_returns_task() -> None:
    async with canned_client(CannedAgent(result_response(TASK))) as client:
        [update] = [update async for update in client.subscribe('t')]
        assert update.task is not None
        assert update.task['status']['state'] == 'completed'


async def test_in_process_app_with_http_client_is_refused() -> None:
    async with httpx2.AsyncClient() as http:
        with pytest.raises(TypeError, match='needs no HTTP'):
            A2AClient(CannedAgent(result_response(TASK)).app, http_client=http)
