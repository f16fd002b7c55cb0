"""What is answered to JSON that is no request of A2A's, or that has params which nobody can serve."""

from __future__ import annotations

import json

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent

from pydantic_ai_a2a import to_a2a

from ..client import Client, RpcError, lifespan, message
from .refused import refusal, rpc, send, untouched
from .rows import covers


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
async def test_what_is_not_json_is_a_parse_error_without_id(body: bytes) -> None:
    async with untouched() as client:
        error = refusal(await client.post(body), id=None)
    assert (error.code, error.reason) == (-32700, 'PARSE_ERROR')


@covers('`42`, `[]` / batch, no `jsonrpc`, wrong id type')
@pytest.mark.parametrize(
    ('body', 'id'),
    [
        pytest.param(b'42', None, id='42'),
        pytest.param(b'null', None, id='null'),
        pytest.param(b'[]', None, id='empty batch'),
        pytest.param(b'[%s]' % send(), None, id='batch'),
        pytest.param(json.dumps({'id': 'r-1', 'method': 'ListTasks'}).encode(), 'r-1', id='no jsonrpc'),
        pytest.param(rpc('ListTasks', jsonrpc='1.0'), 'r-1', id='other jsonrpc'),
        pytest.param(json.dumps({'jsonrpc': '2.0', 'id': 'r-1'}).encode(), 'r-1', id='no method'),
        pytest.param(rpc(42), 'r-1', id='method that is no string'),
        pytest.param(rpc('ListTasks', id={}), None, id='id is an object'),
        pytest.param(rpc('ListTasks', id=[1]), None, id='id is a list'),
        pytest.param(rpc('ListTasks', id=True), None, id='id is a bool'),
        pytest.param(rpc('ListTasks', id=1.5), None, id='id is a fraction'),
        pytest.param(rpc('ListTasks', id='x' * 10_000), None, id='overlong id'),
        pytest.param(rpc('ListTasks', id='\ud800'), None, id='id is a lone surrogate'),
    ],
)
async def test_json_that_is_no_request_is_an_invalid_request(body: bytes, id: object) -> None:
    async with untouched() as client:
        error = refusal(await client.post(body), id=id)
    assert (error.code, error.reason) == (-32600, 'INVALID_REQUEST')


@pytest.mark.parametrize('id', ['text', '', 0, -7, 2**63, None])
async def test_an_answer_has_the_id_of_its_request(id: object) -> None:
    async with untouched() as client:
        answer = await client.post(rpc('ListTasks', id=id))
    assert answer.json == {
        'jsonrpc': '2.0',
        'id': id,
        'result': {'tasks': [], 'nextPageToken': '', 'pageSize': 50, 'totalSize': 0},
    }


@covers('unknown method')
@pytest.mark.parametrize('method', ['NoSuchMethod', 'sendmessage', 'message/send', '', '__class__', 'send_message'])
async def test_a_method_that_there_is_not_is_not_found(method: str) -> None:
    async with untouched() as client:
        error = refusal(await client.post(rpc(method, {'message': message()})))
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


@WRONG_PARAMS
@pytest.mark.parametrize(
    ('body', 'fields'),
    [
        pytest.param(rpc('SendMessage'), ['params'], id='missing'),
        pytest.param(rpc('SendMessage', ['message']), ['params'], id='wrong'),
        pytest.param(rpc('SendMessage', {}), ['message'], id='no message'),
        pytest.param(rpc('SendMessage', {'message': 'hello'}), ['message'], id='message that is text'),
        pytest.param(send(messageId=None), ['message.messageId'], id='no messageId'),
        pytest.param(send(messageId=''), ['message.messageId'], id='empty messageId'),
        pytest.param(send(role='ROLE_AGENT'), ['message.role'], id='role agent'),
        pytest.param(send(role='user'), ['message.role'], id='bad role'),
        pytest.param(send(role=None), ['message.role'], id='no role'),
        pytest.param(send(parts=None), ['message.parts'], id='parts missing'),
        pytest.param(send(parts=[]), ['message.parts'], id='no parts'),
        pytest.param(send(parts=[{'text': 'a', 'url': 'b'}]), ['message.parts[0]'], id='two contents'),
        pytest.param(send(parts=[{'text': 'a'}, {'filename': 'b'}]), ['message.parts[1]'], id='no content'),
        pytest.param(send(parts=[{'text': 'half \ud800'}]), ['message.parts[0].text'], id='lone surrogate in text'),
        pytest.param(send(parts=[{'text': 'nul\0'}]), ['message.parts[0].text'], id='NUL in text'),
        pytest.param(send(parts=[{'data': ['\0']}]), ['message.parts[0].data'], id='NUL in data'),
        pytest.param(send(parts=[{'raw': '!'}]), ['message.parts[0].raw'], id='bad base64'),
        pytest.param(send(metadata=[]), ['message.metadata'], id='metadata that is a list'),
        pytest.param(
            rpc('SendMessage', {'message': message(), 'configuration': {'historyLength': -1}}),
            ['configuration.historyLength'],
            id='historyLength -1 of a send',
        ),
        pytest.param(
            rpc('SendMessage', {'message': message(), 'configuration': {'returnImmediately': 'yes'}}),
            ['configuration.returnImmediately'],
            id='returnImmediately that is text',
        ),
        pytest.param(rpc('GetTask', {'id': 't', 'historyLength': -1}), ['historyLength'], id='historyLength -1'),
        pytest.param(rpc('GetTask', {}), ['id'], id='no id'),
        pytest.param(rpc('ListTasks', {'pageSize': 0}), ['pageSize'], id='pageSize 0'),
        pytest.param(rpc('ListTasks', {'pageSize': 150}), ['pageSize'], id='pageSize 150'),
        pytest.param(rpc('ListTasks', {'pageToken': 'nonsense'}), ['pageToken'], id='pageToken'),
        pytest.param(rpc('ListTasks', {'status': 'WORKING'}), ['status'], id='status'),
        pytest.param(rpc('ListTasks', {'statusTimestampAfter': 'today'}), ['statusTimestampAfter'], id='timestamp'),
        pytest.param(
            rpc('ListTasks', {'statusTimestampAfter': '2026-01-01T00:00:00'}),
            ['statusTimestampAfter'],
            id='timestamp without offset',
        ),
        pytest.param(
            send(role='ROLE_AGENT', parts=[], taskId='\0'),
            ['message.taskId', 'message.role', 'message.parts'],
            id='several',
        ),
    ],
)
async def test_wrong_params_are_refused_by_their_names(body: bytes, fields: list[str]) -> None:
    async with untouched() as client:
        error = refusal(await client.post(body))
    assert (error.code, error.reason) == (-32602, 'INVALID_PARAMS')
    assert error.fields == fields
    assert all(field in error.message for field in fields)


@WRONG_PARAMS
@BAD_ID
@pytest.mark.parametrize('field', ['messageId', 'taskId', 'contextId'])
async def test_a_bad_id_in_a_message_is_refused(field: str, bad: object) -> None:
    async with untouched() as client:
        error = refusal(await client.post(send(**{field: bad})))
    assert (error.code, error.fields) == (-32602, [f'message.{field}'])


@WRONG_PARAMS
@BAD_ID
@pytest.mark.parametrize('method', ['GetTask', 'CancelTask', 'SubscribeToTask'])
async def test_a_bad_task_id_is_refused(method: str, bad: object) -> None:
    async with untouched() as client:
        error = refusal(await client.post(rpc(method, {'id': bad})))
    assert (error.code, error.fields) == (-32602, ['id'])


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
