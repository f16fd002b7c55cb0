"""What is answered to JSON that is no request of A2A's, or that has params which nobody can serve."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.protocol.operations import OPERATIONS

from ...client import Client, RpcError, lifespan, message, rpc
from ...dialects import DIALECTS, METHODS, Dialect, json_rpc, only
from ...tables import each_case
from ..refused import refusal, send, sending, untouched
from ..rows import covers


@covers('malformed JSON, empty, bad UTF-8, 100k-deep array')
@pytest.mark.parametrize(
    'body',
    [
        pytest.param(b'{"jsonrpc": "2.0",', id='malformed'),
        pytest.param(b'', id='empty'),
        pytest.param(b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}', id='bad UTF-8'),
        pytest.param(b'[' * 100_000 + b']' * 100_000, id='100k-deep array'),
        pytest.param(b'{"a":' * 100_000 + b'1' + b'}' * 100_000, id='100k-deep object'),
        pytest.param(b'{"jsonrpc": "2.0", "id": NaN}', id='NaN'),
    ],
)
@json_rpc('HTTP+JSON has no envelope')
async def test_what_is_not_json_is_a_parse_error_without_id(body: bytes) -> None:
    async with untouched() as client:
        error = refusal(await client.post(body), id=None)
    assert (error.code, error.reason) == (-32700, 'PARSE_ERROR')


@covers('`42`, `[]` / batch, no `jsonrpc`, wrong id type')
@pytest.mark.parametrize('body', [b'42', b'null', b'[]', b'"text"'])
@json_rpc('HTTP+JSON has no envelope')
async def test_json_that_is_no_object_is_an_invalid_request(body: bytes) -> None:
    async with untouched() as client:
        error = refusal(await client.post(body), id=None)
    assert (error.code, error.reason) == (-32600, 'INVALID_REQUEST')


@covers('`42`, `[]` / batch, no `jsonrpc`, wrong id type')
@json_rpc('HTTP+JSON has no envelope')
async def test_a_batch_is_an_invalid_request() -> None:
    async with untouched() as client:
        error = refusal(await client.post(b'[%s]' % send()), id=None)
    assert (error.code, error.reason) == (-32600, 'INVALID_REQUEST')


@covers('`42`, `[]` / batch, no `jsonrpc`, wrong id type')
@pytest.mark.parametrize(
    ('fields', 'id'),
    [
        pytest.param({'jsonrpc': ...}, 'r-1', id='no jsonrpc'),
        pytest.param({'jsonrpc': '1.0'}, 'r-1', id='other jsonrpc'),
        pytest.param({'method': ...}, 'r-1', id='no method'),
        pytest.param({'method': 42}, 'r-1', id='method that is no string'),
        pytest.param({'id': {}}, None, id='id is an object'),
        pytest.param({'id': [1]}, None, id='id is a list'),
        pytest.param({'id': True}, None, id='id is a bool'),
        pytest.param({'id': 1.5}, None, id='id is a fraction'),
        pytest.param({'id': 'x' * 10_000}, None, id='overlong id'),
        pytest.param({'id': '\ud800'}, None, id='id is a lone surrogate'),
    ],
)
@json_rpc('HTTP+JSON has no envelope')
async def test_an_object_that_is_no_request_is_an_invalid_request(fields: dict[str, Any], id: object) -> None:
    """Fields that are `...` are left out."""
    request = json.loads(rpc('GetTask', {'id': 't'})) | fields
    body = json.dumps({name: value for name, value in request.items() if value is not ...}).encode()
    async with untouched() as client:
        error = refusal(await client.post(body), id=id)
    assert (error.code, error.reason) == (-32600, 'INVALID_REQUEST')


@pytest.mark.parametrize('id', ['text', '', 0, -7, 2**63, None])
async def test_an_answer_has_the_id_of_its_request(id: object) -> None:
    async with untouched() as client:
        answer = await client.post(rpc('GetTask', {'id': 't'}, id=id))
    assert refusal(answer, id=id).code == -32001


@covers('unknown method')
@pytest.mark.parametrize(
    ('version', 'method'),
    [
        *((version, method) for version in DIALECTS for method in ('NoSuchMethod', 'sendmessage', '', '__class__')),
        *(('1.0', method) for method in METHODS.values()),
        *(('0.3', method) for method in OPERATIONS),
        *(('0.3', method) for method in ('tasks/list', 'tasks/pushNotification/set')),
    ],
    indirect=['version'],
)
async def test_a_method_that_the_version_does_not_have_is_not_found(version: Dialect, method: str) -> None:
    body = json.dumps({'jsonrpc': '2.0', 'id': 'r-1', 'method': method, 'params': {'message': message()}}).encode()
    async with untouched() as client:
        error = refusal(await client.post(body))
    assert (error.code, error.reason) == (-32601, 'METHOD_NOT_FOUND')


# Wrong params.

BAD_ID = pytest.mark.parametrize(
    'bad',
    [
        pytest.param('nul\0', id='NUL'),
        pytest.param('x' * 257, id='overlong'),
        pytest.param('half \ud800', id='lone surrogate'),
        pytest.param(42, id='number'),
    ],
)
WRONG_PARAMS = covers(
    'wrong or missing params, bad role or role agent, no parts, two contents in one part, `historyLength: -1`, '
    'NUL or overlong ids, lone surrogates'
)


def request(method: str, **params: object) -> tuple[str, dict[str, object]]:
    return method, params


WRONG = [
    pytest.param(('SendMessage', None), ['params'], id='missing'),
    pytest.param(('SendMessage', ['message']), ['params'], id='wrong'),
    pytest.param(request('SendMessage'), ['message'], id='no message'),
    pytest.param(('SendMessage', {'message': 'hello'}), ['message'], id='message that is text'),
    pytest.param(sending(messageId=None), ['message.messageId'], id='no messageId'),
    pytest.param(sending(messageId=''), ['message.messageId'], id='empty messageId'),
    pytest.param(sending(role='ROLE_AGENT'), ['message.role'], id='role agent'),
    pytest.param(sending(role='ROLE_SYSTEM'), ['message.role'], id='bad role'),
    pytest.param(sending(role=None), ['message.role'], id='no role'),
    pytest.param(sending(parts=None), ['message.parts'], id='parts missing'),
    pytest.param(sending(parts=[]), ['message.parts'], id='no parts'),
    pytest.param(sending(parts=[{'text': 'a'}, {'filename': 'b'}]), ['message.parts[1]'], id='no content'),
    pytest.param(sending(parts=[{'text': 'half \ud800'}]), ['message.parts[0].text'], id='lone surrogate in text'),
    pytest.param(sending(parts=[{'text': 'nul\0'}]), ['message.parts[0].text'], id='NUL in text'),
    pytest.param(sending(parts=[{'data': ['\0']}]), ['message.parts[0].data'], id='NUL in data'),
    pytest.param(sending(parts=[{'raw': '!'}]), ['message.parts[0].raw'], id='bad base64'),
    pytest.param(sending(metadata=[]), ['message.metadata'], id='metadata that is a list'),
    pytest.param(
        ('SendMessage', {'message': message(), 'configuration': {'historyLength': -1}}),
        ['configuration.historyLength'],
        id='historyLength -1 of a send',
    ),
    pytest.param(
        ('SendMessage', {'message': message(), 'configuration': {'returnImmediately': 'yes'}}),
        ['configuration.returnImmediately'],
        id='returnImmediately that is text',
    ),
    pytest.param(('GetTask', {'id': 't', 'historyLength': -1}), ['historyLength'], id='historyLength -1'),
    pytest.param(request('GetTask'), ['id'], id='no id'),
    pytest.param(
        sending(role='ROLE_AGENT', parts=[], taskId='\0'),
        ['message.taskId', 'message.role', 'message.parts'],
        id='several',
    ),
]
"""Requests with wrong params, and the fields that are wrong, whatever a version calls them."""

ONLY_1_0 = [
    pytest.param(sending(role='user'), ['message.role'], id='role of 0.3'),
    pytest.param(sending(parts=[{'text': 'a', 'url': 'b'}]), ['message.parts[0]'], id='two contents'),
    pytest.param(('ListTasks', {'pageSize': 0}), ['pageSize'], id='pageSize 0'),
    pytest.param(('ListTasks', {'pageSize': 150}), ['pageSize'], id='pageSize 150'),
    pytest.param(('ListTasks', {'pageToken': 'nonsense'}), ['pageToken'], id='pageToken'),
    pytest.param(('ListTasks', {'status': 'WORKING'}), ['status'], id='status'),
    pytest.param(('ListTasks', {'statusTimestampAfter': 'today'}), ['statusTimestampAfter'], id='timestamp'),
    pytest.param(
        ('ListTasks', {'statusTimestampAfter': '2026-01-01T00:00:00'}),
        ['statusTimestampAfter'],
        id='timestamp without offset',
    ),
]
"""What 0.3 has no wrong params for: lists, and parts that say only by what is in them what they are."""


@WRONG_PARAMS
@pytest.mark.parametrize(
    ('version', 'request_', 'fields'),
    [
        pytest.param(version, *case.values, id=f'{version}-{case.id}')
        for version, cases in {'1.0': [*WRONG, *ONLY_1_0], '0.3': WRONG}.items()
        for case in cases
    ],
    indirect=['version'],
)
async def test_wrong_params_are_refused_by_their_names(
    version: Dialect, request_: tuple[str, Any], fields: list[str]
) -> None:
    async with untouched() as client:
        error = refusal(await client.post(rpc(*request_)))
    assert (error.code, error.reason) == (-32602, 'INVALID_PARAMS')
    assert error.fields == fields
    if version.has_details:
        assert all(field in error.message for field in fields)


@WRONG_PARAMS
@BAD_ID
@each_case('field', ['messageId', 'taskId', 'contextId'])
async def test_a_bad_id_in_a_message_is_refused(field: str, bad: object) -> None:
    async with untouched() as client:
        error = refusal(await client.post(send(**{field: bad})))
    assert (error.code, error.fields) == (-32602, [f'message.{field}'])


@WRONG_PARAMS
@BAD_ID
@each_case('method', ['GetTask', 'CancelTask', 'SubscribeToTask'])
@json_rpc('a path has ids that are text')
async def test_a_bad_task_id_is_refused(method: str, bad: object) -> None:
    async with untouched() as client:
        error = refusal(await client.post(rpc(method, {'id': bad})))
    assert (error.code, error.fields) == (-32602, ['id'])


@only('1.0', '0.3 has no details')
@WRONG_PARAMS
async def test_the_refusal_of_wrong_params_says_what_would_be_right_and_repeats_nothing() -> None:
    async with untouched() as client:
        answer = await client.post(send(role='ROLE_SECRET', parts=[{'text': 'hidden', 'url': 'hidden'}]))
    error = refusal(answer)
    assert error.data[1] == snapshot(
        {
            '@type': 'type.googleapis.com/google.rpc.BadRequest',
            'fieldViolations': [
                {'field': 'message.role', 'description': 'must be ROLE_USER: clients speak as users'},
                {'field': 'message.parts[0]', 'description': 'must hold exactly one of text, raw, url and data'},
            ],
        }
    )
    assert b'SECRET' not in answer.body
    assert b'hidden' not in answer.body


@only('1.0', '0.3 has no lists')
async def test_a_page_token_serves_only_the_list_that_gave_it() -> None:
    app = to_a2a(Agent('test'))
    async with lifespan(app):
        client = Client(app)
        for _ in range(2):
            await client.send(message(contextId='c'))
        page = await client.call('ListTasks', {'pageSize': 1})
        rest = await client.call('ListTasks', {'pageSize': 1, 'pageToken': page['nextPageToken']})
        with pytest.raises(RpcError) as refused:
            await client.call('ListTasks', {'contextId': 'c', 'pageToken': page['nextPageToken']})
    assert (refused.value.code, refused.value.fields) == (-32602, ['pageToken'])
    assert rest['nextPageToken'] == ''
    assert {task['id'] for task in (*page['tasks'], *rest['tasks'])} == {
        task['id'] for task in (await client.call('ListTasks'))['tasks']
    }
