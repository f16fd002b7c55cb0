"""What is answered below and beside the operations: bodies, content types, versions, capabilities, errors."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Mapping
from itertools import product
from urllib.parse import quote

import httpx
import pytest
from fasta2a.schema import AgentExtension
from inline_snapshot import snapshot
from pydantic_ai import Agent
from starlette.requests import Request
from starlette.types import ASGIApp, Message

from pydantic_ai_a2a import Caller, Limits, serve
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS

from ...app_client import LIMIT, Exchange, message, rpc, state_of
from ...dialects import DIALECTS, METHODS, Dialect, current_dialect, in_no_version, json_rpc, only_in
from ...serving import serving
from ..promised_behaviours import covers
from ..refusals import error_of_answer, send_body, serving_without_runs

PUSH = [name for name in OPERATIONS if 'PushNotificationConfig' in name]
LISTS = 'ListTasks'
SERVED = [name for name, operation in OPERATIONS.items() if operation.capability in (None, 'streaming')]


class EndlessUpload(Exchange):
    """A request with a body that has no end, in chunks of 1 MB."""

    chunks = 0
    chunks_before_answer = 0

    async def _receive(self) -> Message:
        self.chunks += 1
        return {'type': 'http.request', 'body': b' ' * 1_000_000, 'more_body': True}

    async def _send(self, message: Message) -> None:
        if message['type'] == 'http.response.start':
            self.chunks_before_answer = self.chunks
        await super()._send(message)


def upload(app: ASGIApp, headers: Mapping[str, str] | None = None) -> EndlessUpload:
    return EndlessUpload(app, 'POST', '/', {'Content-Type': 'application/json', **(headers or {})}, b'')


@covers('50 MB body')
@json_rpc('the bodies are JSON-RPC')
async def test_oversized_content_length_is_refused_unread() -> None:
    async with serving_without_runs() as client:
        exchange = upload(client.app, {**client.headers, 'Content-Length': '50000000'})
        error = error_of_answer(await exchange.answer(), status=413, id=None)
    assert (exchange.chunks_before_answer, exchange.chunks) == (0, 64)  # what is discarded is bounded
    assert (error.code, error.message) == (
        -32600,
        current_dialect().text('The request body is larger than 10000000 bytes.'),
    )


@covers('50 MB body')
@json_rpc('the bodies are JSON-RPC')
async def test_chunked_body_is_not_read_past_limit() -> None:
    async with serving_without_runs() as client:
        exchange = upload(client.app, client.headers)
        error_of_answer(await exchange.answer(), status=413, id=None)
    assert exchange.chunks == 11


@covers('50 MB body')
async def test_body_limit_is_configurable() -> None:
    fits, longer = rpc('CancelTask', {'id': 't'}), rpc('CancelTask', {'id': 't', 'metadata': {}})
    async with serving_without_runs(limits=Limits(body=len(fits))) as client:
        assert error_of_answer(await client.post(fits)).code == -32001
        assert error_of_answer(await client.post(longer), status=413, id=None).code == -32600


@covers('`text/plain` from a foreign Origin')
@pytest.mark.parametrize(
    'content_type',
    [
        pytest.param(None, id='none'),
        'text/plain',
        'text/plain; application/json',
        'application/x-www-form-urlencoded',
        'multipart/form-data; boundary=x',
        'application/jsonp',
    ],
)
@json_rpc('HTTP+JSON takes one more media type')
async def test_cross_origin_post_without_json_type_is_refused(content_type: str | None) -> None:
    headers = {'Origin': 'https://evil.example'} | ({'Content-Type': content_type} if content_type else {})
    async with serving_without_runs() as client:
        answer = await Exchange(client.app, 'POST', '/', client.headers | headers, send_body()).answer()
    error = error_of_answer(answer, status=415, id=None)
    assert (error.code, error.message) == (-32600, current_dialect().text('The request body must be application/json.'))
    assert 'access-control-allow-origin' not in answer.headers


COMPRESSED = 'The request body must not be compressed: send it without Content-Encoding.'


@pytest.mark.parametrize('encoding', ['gzip', 'br', 'Deflate', 'zstd', 'identity, gzip', 'unknown'])
async def test_a_compressed_body_is_refused(encoding: str) -> None:
    async with serving_without_runs() as client:
        answer = await client.post(send_body(), {'Content-Encoding': encoding})
    error = error_of_answer(answer, status=415, id=None)
    assert (error.code, error.message) == (-32600, current_dialect().text(COMPRESSED))
    assert answer.headers['accept-encoding'] == 'identity'


@pytest.mark.parametrize('encoding', ['', ' Identity '])
async def test_identity_content_encoding_is_accepted(encoding: str) -> None:
    async with serving(Agent('test')) as client:
        assert (await client.post(send_body(), {'Content-Encoding': encoding})).status == 200


@in_no_version('the paths of both bindings')
async def test_refused_compressed_body_closes_connection() -> None:
    body, headers = gzip.compress(b'{}'), {'Content-Type': 'application/json', 'Content-Encoding': 'gzip'}
    with serve(Agent('test')) as server:
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=LIMIT) as client:
            for path in (
                '/',
                '/message:send',
                '/message:stream',
                '/tasks/t:cancel',
                '/tasks/t/pushNotificationConfigs',
            ):
                answer = await client.post(path, content=body)
                assert (answer.status_code, answer.headers['accept-encoding']) == (415, 'identity'), path
                assert answer.headers['connection'] == 'close'  # the body was not read
                assert answer.json()['error']['message'] == COMPRESSED
            assert (await client.get('/health/live')).status_code == 200


@in_no_version('no operation is called')
@covers('`text/plain` from a foreign Origin')
async def test_preflight_is_refused_without_cors() -> None:
    asks = {
        'Origin': 'https://evil.example',
        'Access-Control-Request-Method': 'POST',
        'Access-Control-Request-Headers': 'content-type',
    }
    async with serving_without_runs() as client:
        answer = await client.get('/', asks, method='OPTIONS')
    assert answer.status == 405
    assert [name for name in answer.headers if name.startswith('access-control')] == []


@pytest.mark.parametrize(
    'content_type', ['application/json; charset=utf-8', 'Application/JSON', 'application/json ;q=1']
)
async def test_json_content_type_is_accepted_in_any_spelling(content_type: str) -> None:
    async with serving_without_runs() as client:
        answer = await client.post(rpc('GetTask', {'id': 't'}), {'Content-Type': content_type})
    assert error_of_answer(answer).code == -32001


@in_no_version('the version is none')
@covers('`A2A-Version: 9.9`')
async def test_unsupported_version_is_refused_in_every_operation(subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        for where, method in product(['header', 'query'], [*OPERATIONS, *METHODS.values()]):
            with subtests.test(f'{method} in the {where}'):
                client.headers = {'A2A-Version': '9.9'} if where == 'header' else {}
                path = '/' if where == 'header' else '/?A2A-Version=9.9'
                error = error_of_answer(await client.post(rpc(method, {'message': message(), 'id': 't'}), path=path))
                assert (error.code, error.reason) == (-32009, 'VERSION_NOT_SUPPORTED')
                assert error.message == "A2A version '9.9' is not supported; use 1.0 or 0.3."
                assert error.data[0]['metadata']['supportedVersions'] == '1.0, 0.3'


NAMES_OF_VERSIONS: dict[str, list[str | None]] = {
    '1.0': ['1.0', '1.0.7', '1', ' 1.0 ', '', None],
    '0.3': ['0.3', '0.3.0', '0.3.26', ' 0.3 ', '', None],
}


@pytest.mark.parametrize('version', NAMES_OF_VERSIONS, indirect=True)
async def test_version_is_recognized_by_major_minor_or_method(version: Dialect, subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        for named, where in product(NAMES_OF_VERSIONS[version.version], ['header', 'query']):
            with subtests.test(where, named=named):
                client.headers = {} if named is None or where == 'query' else {'A2A-Version': named}
                path = '/' if named is None or where == 'header' else f'/?A2A-Version={quote(named)}'
                error = error_of_answer(await client.post(rpc('GetTask', {'id': 't'}), path=path))
                assert error.code == -32001


@only_in('1.0', 'the refusal is in the form of 1.0')
@pytest.mark.parametrize(
    ('headers', 'query'),
    [({'A2A-Version': '1.0, 0.3'}, ''), ({'A2A-Version': '0.3,1.0'}, ''), ({}, '?A2A-Version=1.0&A2A-Version=0.3')],
)
async def test_request_naming_several_versions_is_refused(headers: dict[str, str], query: str) -> None:
    async with serving_without_runs() as client:
        client.headers = headers
        answer = await client.post(rpc('GetTask', {'id': 't'}), path=f'/{query}')
        assert error_of_answer(answer).code == -32600


@pytest.mark.parametrize('method', PUSH)
async def test_push_config_operations_are_unsupported_by_default(method: str) -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(rpc(method, {'taskId': 't'})))
    assert (error.code, error.reason) == (-32003, 'PUSH_NOTIFICATION_NOT_SUPPORTED')


@pytest.mark.parametrize('url', ['https://example.com', ''], ids=['valid', 'invalid'])
@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
async def test_send_with_webhook_is_unsupported_by_default(method: str, url: str) -> None:
    configuration = {'taskPushNotificationConfig': {'url': url}}
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(rpc(method, {'message': message(), 'configuration': configuration})))
    assert (error.code, error.reason) == (-32003, 'PUSH_NOTIFICATION_NOT_SUPPORTED')


@pytest.mark.parametrize('method', ['GetTask', 'CancelTask', 'SubscribeToTask'])
async def test_unknown_task_is_not_found(method: str) -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(rpc(method, {'id': 'no-such-task'})))
    assert (error.code, error.reason) == (-32001, 'TASK_NOT_FOUND')


@only_in('1.0', '0.3 has no details')
@json_rpc('HTTP+JSON describes errors in another way')
async def test_error_carries_google_rpc_error_info() -> None:
    async with serving_without_runs() as client:
        answer = await client.post(rpc('GetTask', {'id': 'no-such-task'}))
    error = answer.json['error']
    assert error['data'][0]['metadata'].pop('correlationId') == answer.headers['x-correlation-id']
    assert error == snapshot(
        {
            'code': -32001,
            'message': 'Task not found.',
            'data': [
                {
                    '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
                    'reason': 'TASK_NOT_FOUND',
                    'domain': 'a2a-protocol.org',
                    'metadata': {},
                }
            ],
        }
    )


async def test_unexpected_error_is_logged_but_not_exposed(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Request) -> Caller:
        raise RuntimeError('the secret of the house')

    async with serving_without_runs(auth=broken) as client:
        answer = await client.post(send_body())
    error = error_of_answer(answer, id=None)
    assert (error.code, error.reason, error.message) == (
        -32603,
        'INTERNAL_ERROR',
        current_dialect().text('Internal error.'),
    )
    assert b'secret' not in answer.body
    [record] = [record for record in caplog.records if record.name == 'pydantic_ai_a2a']
    assert record.levelno == logging.ERROR
    assert answer.headers['x-correlation-id'] in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == 'the secret of the house'


@pytest.mark.parametrize(
    ('version', 'method'),
    [(version, name) for version, dialect in DIALECTS.items() for name in SERVED if dialect.has_lists or name != LISTS],
    indirect=['version'],
)
async def test_every_operation_returns_http_200_json_or_stream(version: Dialect, method: str) -> None:
    async with serving(Agent('test')) as client:
        task = await client.send()
        params = {'message': message(), 'id': task['id']}
        answer = await client.post(rpc(method, params))
    assert answer.status == 200
    assert state_of(task) == 'COMPLETED'
    stream = method == 'SendStreamingMessage' or (method == 'SubscribeToTask' and not version.refuses_ended)
    assert answer.headers['content-type'] == ('text/event-stream' if stream else 'application/json')


class DisconnectingClient(Exchange):
    """A request whose client goes away in the middle of its body."""

    async def _receive(self) -> Message:
        if not self._given:
            self._given = True
            return {'type': 'http.request', 'body': b'{"jsonrpc":', 'more_body': True}
        return {'type': 'http.disconnect'}


async def test_disconnect_during_request_body_gets_no_response() -> None:
    async with serving_without_runs() as client:
        exchange = DisconnectingClient(client.app, 'POST', '/', {'Content-Type': 'application/json'}, b'')
        with pytest.raises(AssertionError, match='without finishing its answer'):
            await exchange.next()


async def test_request_without_required_extension_is_refused() -> None:
    required, name = 'https://example.com/required', current_dialect().extensions_header
    async with serving_without_runs(extensions=[AgentExtension(uri=required, required=True)]) as client:
        none = error_of_answer(await client.post(send_body()))
        other = error_of_answer(await client.post(send_body(), {name: 'https://example.com/other'}))
        read = error_of_answer(await client.post(rpc('GetTask', {'id': 'no-such-task'})))
    if current_dialect().version == '1.0':
        assert [error.reason for error in (none, other, read)] == ['EXTENSION_SUPPORT_REQUIRED'] * 3
        assert none.data[0]['metadata']['requiredExtensions'] == required
    else:
        assert [error.reason for error in (none, other, read)] == ['INVALID_REQUEST'] * 2 + ['TASK_NOT_FOUND']
    assert none.message.removesuffix('.').endswith(f'does not declare in {name}')


@pytest.mark.parametrize(
    ('asked', 'active'),
    [
        (None, None),
        ('https://example.com/other', None),
        ('https://example.com/a, https://example.com/other', 'https://example.com/a'),
    ],
)
async def test_response_header_names_active_extensions(asked: str | None, active: str | None) -> None:
    name = current_dialect().extensions_header
    headers = {name: asked} if asked else {}
    async with serving(Agent('test'), extensions=[AgentExtension(uri='https://example.com/a')]) as client:
        answer = await client.post(send_body(), headers)
        error = await client.post(rpc('GetTask', {'id': 'no-such-task'}), headers)
        body = rpc('SendStreamingMessage', {'message': message()})
        stream = await client.post(body, headers)
    assert [each.headers.get(name.lower()) for each in (answer, stream)] == [active, active]
    assert error_of_answer(error).code == -32001


@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
async def test_extensions_header_of_other_version_is_ignored(method: str) -> None:
    [other] = {'A2A-Extensions', 'X-A2A-Extensions'} - {current_dialect().extensions_header}
    async with serving(Agent('test'), extensions=[AgentExtension(uri='https://example.com/a')]) as client:
        answer = await client.post(rpc(method, {'message': message()}), {other: 'https://example.com/a'})
    assert {'a2a-extensions', 'x-a2a-extensions'}.isdisjoint(answer.headers)


async def test_message_metadata_extensions_and_references_are_stored() -> None:
    async with serving(Agent('test')) as client:
        params = {
            'tenant': 'acme',
            'message': message(metadata={'a': 1}, extensions=['https://example.com/a'], referenceTaskIds=['t']),
            'configuration': {'acceptedOutputModes': ['text/plain']},
            'metadata': {'b': 2},
        }
        task = (await client.call('SendMessage', params))['task']
    assert state_of(task) == 'COMPLETED'
    sent = task['history'][0]
    assert (sent['metadata'], sent['extensions'], sent['referenceTaskIds']) == (
        {'a': 1},
        ['https://example.com/a'],
        ['t'],
    )


async def test_missing_extension_error_names_active_extensions() -> None:
    name = current_dialect().extensions_header
    extensions = [AgentExtension(uri='urn:example:a'), AgentExtension(uri='urn:example:b', required=True)]
    async with serving_without_runs(extensions=extensions) as client:
        some = await client.post(send_body(), {name: 'urn:example:a'})
        none = await client.post(send_body())
    assert some.headers[name.lower()] == 'urn:example:a'
    assert name.lower() not in none.headers
