"""What is answered to JSON that is no request of A2A's, or that has params which nobody can serve."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai import Agent

from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS

from ...app_client import RpcError, message, rpc
from ...dialects import DIALECTS, METHODS, Call, Dialect, json_rpc, only_in
from ...serving import serving
from ..promised_behaviours import covers
from ..refusals import error_of_answer, send_params, serving_without_runs


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
async def test_invalid_json_is_parse_error_without_id(body: bytes) -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(body), id=None)
    assert (error.code, error.reason) == (-32700, 'PARSE_ERROR')


@covers('`42`, `[]` / batch, no `jsonrpc`, wrong id type')
@pytest.mark.parametrize('body', [b'42', b'null', b'[]', b'[{}]', b'"text"'])
async def test_non_object_json_is_invalid_request(body: bytes) -> None:
    path = rpc('SendMessage', {}).path
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(Call.to('POST', path, body)), id=None)
    assert (error.code, error.reason) == (-32600, 'INVALID_REQUEST')


NO_REQUESTS: dict[str, tuple[dict[str, Any], object]] = {
    'no jsonrpc': ({'jsonrpc': ...}, 'r-1'),
    'other jsonrpc': ({'jsonrpc': '1.0'}, 'r-1'),
    'no method': ({'method': ...}, 'r-1'),
    'method that is no string': ({'method': 42}, 'r-1'),
    'id is an object': ({'id': {}}, None),
    'id is a list': ({'id': [1]}, None),
    'id is a bool': ({'id': True}, None),
    'id is a fraction': ({'id': 1.5}, None),
    'overlong id': ({'id': 'x' * 10_000}, None),
    'id is a lone surrogate': ({'id': '\ud800'}, None),
}


@covers('`42`, `[]` / batch, no `jsonrpc`, wrong id type')
@json_rpc('HTTP+JSON has no envelope')
async def test_malformed_envelope_is_invalid_request(subtests: pytest.Subtests) -> None:
    """Fields that are `...` are left out."""
    for case, (fields, id) in NO_REQUESTS.items():
        with subtests.test(case):
            request = json.loads(rpc('GetTask', {'id': 't'})) | fields
            body = json.dumps({name: value for name, value in request.items() if value is not ...}).encode()
            async with serving_without_runs() as client:
                error = error_of_answer(await client.post(body), id=id)
            assert (error.code, error.reason) == (-32600, 'INVALID_REQUEST')


@json_rpc('HTTP+JSON has no envelope')
async def test_envelope_is_checked_before_capability() -> None:
    request = json.loads(rpc('CreateTaskPushNotificationConfig', {'taskId': 't', 'url': 'https://a.example/'}))
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(json.dumps({**request, 'jsonrpc': '1.0'}).encode()))
    assert error.reason == 'INVALID_REQUEST'


REQUEST_IDS: list[object] = ['text', '', 0, -7, 2**63, None]


async def test_response_has_id_of_request(subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        for id in REQUEST_IDS:
            with subtests.test(id=id):
                answer = await client.post(rpc('GetTask', {'id': 't'}, id=id))
                assert error_of_answer(answer, id=id).code == -32001


NO_METHODS = ['NoSuchMethod', 'sendmessage', '', '__class__']
UNKNOWN_METHODS = {
    '1.0': [*NO_METHODS, *METHODS.values()],
    '0.3': [*NO_METHODS, *OPERATIONS, 'tasks/list', 'tasks/pushNotification/set'],
}


@covers('unknown method')
@pytest.mark.parametrize('version', UNKNOWN_METHODS, indirect=True)
async def test_method_unknown_to_version_is_not_found(version: Dialect, subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        for method in UNKNOWN_METHODS[version.version]:
            with subtests.test(method):
                request = {'jsonrpc': '2.0', 'id': 'r-1', 'method': method, 'params': {'message': message()}}
                error = error_of_answer(await client.post(json.dumps(request).encode()))
                assert (error.code, error.reason) == (-32601, 'METHOD_NOT_FOUND')


# Wrong params.

WRONG_PARAMS = covers(
    'wrong or missing params, bad role or role agent, no parts, two contents in one part, `historyLength: -1`, '
    'NUL or overlong ids, lone surrogates'
)


def request(method: str, **params: object) -> tuple[str, dict[str, object]]:
    return method, params


WRONG: dict[str, tuple[tuple[str, Any], list[str]]] = {
    'missing': (('SendMessage', None), ['params']),
    'wrong': (('SendMessage', ['message']), ['params']),
    'no message': (request('SendMessage'), ['message']),
    'message that is text': (('SendMessage', {'message': 'hello'}), ['message']),
    'no messageId': (send_params(messageId=None), ['message.messageId']),
    'empty messageId': (send_params(messageId=''), ['message.messageId']),
    'role agent': (send_params(role='ROLE_AGENT'), ['message.role']),
    'bad role': (send_params(role='ROLE_SYSTEM'), ['message.role']),
    'no role': (send_params(role=None), ['message.role']),
    'parts missing': (send_params(parts=None), ['message.parts']),
    'no parts': (send_params(parts=[]), ['message.parts']),
    'no content': (send_params(parts=[{'text': 'a'}, {'filename': 'b'}]), ['message.parts[1]']),
    'lone surrogate in text': (send_params(parts=[{'text': 'half \ud800'}]), ['message.parts[0].text']),
    'NUL in text': (send_params(parts=[{'text': 'nul\0'}]), ['message.parts[0].text']),
    'NUL in data': (send_params(parts=[{'data': ['\0']}]), ['message.parts[0].data']),
    'bad base64': (send_params(parts=[{'raw': '!'}]), ['message.parts[0].raw']),
    'metadata that is a list': (send_params(metadata=[]), ['message.metadata']),
    'historyLength -1 of a send': (
        ('SendMessage', {'message': message(), 'configuration': {'historyLength': -1}}),
        ['configuration.historyLength'],
    ),
    'returnImmediately that is text': (
        ('SendMessage', {'message': message(), 'configuration': {'returnImmediately': 'yes'}}),
        ['configuration.returnImmediately'],
    ),
    'historyLength -1': (('GetTask', {'id': 't', 'historyLength': -1}), ['historyLength']),
    'no id': (request('GetTask'), ['id']),
    'overlong contextId': (send_params(contextId='x' * 257), ['message.contextId']),
    'lone surrogate in messageId': (send_params(messageId='half \ud800'), ['message.messageId']),
    'several': (
        send_params(role='ROLE_AGENT', parts=[], taskId='\0'),
        ['message.taskId', 'message.role', 'message.parts'],
    ),
}
"""Requests with wrong params, and the fields that are wrong, whatever a version calls them."""

ONLY_1_0: dict[str, tuple[tuple[str, Any], list[str]]] = {
    'role of 0.3': (send_params(role='user'), ['message.role']),
    'two contents': (send_params(parts=[{'text': 'a', 'url': 'b'}]), ['message.parts[0]']),
    'pageSize 0': (('ListTasks', {'pageSize': 0}), ['pageSize']),
    'pageSize 150': (('ListTasks', {'pageSize': 150}), ['pageSize']),
    'pageToken': (('ListTasks', {'pageToken': 'nonsense'}), ['pageToken']),
    'status': (('ListTasks', {'status': 'WORKING'}), ['status']),
    'timestamp': (('ListTasks', {'statusTimestampAfter': 'today'}), ['statusTimestampAfter']),
    'timestamp without offset': (
        ('ListTasks', {'statusTimestampAfter': '2026-01-01T00:00:00'}),
        ['statusTimestampAfter'],
    ),
}
"""What 0.3 has no wrong params for: lists, and parts that say only by what is in them what they are."""


@WRONG_PARAMS
@pytest.mark.parametrize('version', DIALECTS, indirect=True)
async def test_wrong_params_are_named_in_error(version: Dialect, subtests: pytest.Subtests) -> None:
    cases = WRONG | ONLY_1_0 if version.version == '1.0' else WRONG
    async with serving_without_runs() as client:
        for case, (request, fields) in cases.items():
            with subtests.test(case):
                error = error_of_answer(await client.post(rpc(*request)))
                assert (error.code, error.reason) == (-32602, 'INVALID_PARAMS')
                assert error.fields == fields
                if version.has_details:
                    assert all(field in error.message for field in fields)


@only_in('1.0', '0.3 has no lists')
async def test_page_token_continues_its_list() -> None:
    async with serving(Agent('test')) as client:
        for _ in range(2):
            await client.send()
        page = await client.call('ListTasks', {'pageSize': 1})
        rest = await client.call('ListTasks', {'pageSize': 1, 'pageToken': page['nextPageToken']})
        whole = await client.call('ListTasks')
    assert rest['nextPageToken'] == ''
    assert [*page['tasks'], *rest['tasks']] == whole['tasks']


@only_in('1.0', '0.3 has no lists')
@pytest.mark.parametrize(
    'other', [{'status': 'TASK_STATE_COMPLETED'}, {'statusTimestampAfter': '2026-01-01T00:00:00Z'}, {'contextId': 'c'}]
)
async def test_page_token_of_another_filter_is_refused(other: dict[str, str]) -> None:
    async with serving(Agent('test')) as client:
        for _ in range(2):
            await client.send(message(contextId='c'))
        for own, wrong in (({}, other), (other, {})):
            page = await client.call('ListTasks', {'pageSize': 1, **own})
            with pytest.raises(RpcError) as refused:
                await client.call('ListTasks', {'pageToken': page['nextPageToken'], **wrong})
            assert (refused.value.code, refused.value.fields) == (-32602, ['pageToken'])
