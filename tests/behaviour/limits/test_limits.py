"""What a request may hold at most: what is more is refused by its field, before anything is stored."""

from __future__ import annotations

import base64
import json
from itertools import product
from typing import Any

import pytest
from a2a.types import StreamResponse
from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic_ai import Agent

from pydantic_ai_a2a import Limits

from ...agents import GatedAgent, scripted_model
from ...app_client import message, rpc, state_of
from ...constants import with_constants
from ...serving import serving, wait_until_ended
from ..refusals import error_of_answer, send_body, serving_without_runs

SMALL = with_constants(Limits, parts=3, part=100, files=2, metadata=100, depth=5)
TEXT = {'text': 'hello'}
FILE = {'raw': base64.b64encode(b'x' * 30).decode(), 'mediaType': 'text/plain'}


def nested(depth: int) -> Any:
    return json.loads('{"a":' * (depth - 1) + '{}' + '}' * (depth - 1))


OVER: dict[str, tuple[dict[str, Any], str]] = {
    'parts': ({'parts': [TEXT] * 4}, 'message.parts'),
    'text': ({'parts': [TEXT, {'text': 'x' * 101}]}, 'message.parts[1].text'),
    'data': ({'parts': [{'data': {'a': 'x' * 100}}]}, 'message.parts[0].data'),
    'depth': ({'parts': [{'data': nested(6)}]}, 'message.parts[0].data'),
    'files': ({'parts': [FILE] * 3}, 'message.parts'),
    'metadata': ({'metadata': {'a': 'x' * 100}}, 'message.metadata'),
    'depth of metadata': ({'metadata': nested(6)}, 'message.metadata'),
    'metadata of a part': ({'parts': [{'text': '', 'metadata': {'a': 'x' * 100}}]}, 'message.parts[0].metadata'),
    'line: URL': ({'parts': [{'url': f'https://example.com/{"a" * 8192}.png'}]}, 'message.parts[0].url'),
    'line: file name': ({'parts': [{**FILE, 'filename': 'a' * 8193}]}, 'message.parts[0].filename'),
    'extensions': ({'extensions': ['x' * 50, 'y' * 50]}, 'message.extensions'),
    'line: extension': ({'extensions': ['x' * 8193]}, 'message.extensions[0]'),
}


async def test_field_over_limit_is_named_in_refusal(subtests: pytest.Subtests) -> None:
    async with serving_without_runs(limits=SMALL) as client:
        for (case, (fields, field)), method in product(OVER.items(), ['SendMessage', 'SendStreamingMessage']):
            with subtests.test(f'{method}: {case}'):
                error = error_of_answer(await client.post(rpc(method, {'message': message() | fields})))
                assert (error.code, error.fields) == (-32602, [field])


async def test_message_at_every_limit_is_served() -> None:
    parts = [{'text': 'x' * 100}, {'data': nested(5), 'metadata': nested(5)}, FILE]
    async with serving(Agent('test'), limits=SMALL) as client:
        params = {'message': message(parts=parts, metadata=nested(5)), 'metadata': nested(5)}
        answer = await client.call('SendMessage', params)
    assert state_of(answer['task']) == 'COMPLETED'


async def test_data_at_depth_limit_is_readable_by_official_sdk() -> None:
    async with serving(Agent('test')) as client:
        task = await client.send(message(parts=[{'data': nested(Limits().depth)}]))
    read = StreamResponse.FromString(ParseDict({'task': task}, StreamResponse()).SerializeToString())
    assert MessageToDict(read)['task']['history'][0]['parts'] == [{'data': nested(Limits().depth)}]


@pytest.mark.parametrize('metadata', [{'a': 'x' * 100}, nested(6)])
@pytest.mark.parametrize('method', ['SendMessage', 'CancelTask'])
async def test_request_metadata_over_limit_is_refused(method: str, metadata: Any) -> None:
    async with serving_without_runs(limits=SMALL) as client:
        params = {'message': message()} if method == 'SendMessage' else {'id': 't'}
        within = {'id': 't', 'metadata': {'a': 1}}
        error = error_of_answer(await client.post(rpc(method, params | {'metadata': metadata})))
        assert error_of_answer(await client.post(rpc('CancelTask', within))).code == -32001
    assert (error.code, error.fields) == (-32602, ['metadata'])


@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
async def test_output_modes_over_limit_are_refused(method: str) -> None:
    configuration = {'acceptedOutputModes': ['text/plain'] * 10}
    async with serving_without_runs(limits=SMALL) as client:
        error = error_of_answer(await client.post(rpc(method, {'message': message(), 'configuration': configuration})))
    assert (error.code, error.fields) == (-32602, ['configuration.acceptedOutputModes'])


@pytest.mark.parametrize('token', ['x' * 8193, 'nul\0'])
async def test_overlong_or_nul_page_token_is_refused(token: str) -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(rpc('ListTasks', {'pageToken': token})))
    assert (error.code, error.fields) == (-32602, ['pageToken'])


async def test_list_pages_are_limited_in_bytes() -> None:
    async with serving(Agent('test'), limits=with_constants(Limits, page=25_000)) as client:
        sent = [(await client.send('x' * 10_000))['id'] for _ in range(5)]
        pages = [await client.call('ListTasks')]
        while token := pages[-1]['nextPageToken']:
            pages.append(await client.call('ListTasks', {'pageToken': token}))
        short = await client.call('ListTasks', {'historyLength': 0})
    assert [len(page['tasks']) for page in pages] == [2, 2, 1]
    listed = [task['id'] for page in pages for task in page['tasks']]
    assert listed == [task['id'] for task in short['tasks']]
    assert sorted(listed) == sorted(sent)


async def test_queued_messages_of_a_task_are_limited() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, limits=Limits(messages=2)) as client:
        task = await client.send('first', returnImmediately=True)
        await gates.reached('first')
        for text in ('second', 'third'):
            await client.send(message(text, taskId=task['id']), returnImmediately=True)
        answer = await client.post(rpc('SendMessage', {'message': message('fourth', taskId=task['id'])}))
        gates.open('first', 'second', 'third')
        await wait_until_ended(client, task['id'])
    assert (error_of_answer(answer, status=503).code, answer.headers['retry-after']) == (-32000, '1')
    assert gates.began == ['first', 'second', 'third']


async def test_full_memory_store_is_503_until_erasure() -> None:
    sent: list[str] = []
    async with serving(Agent(scripted_model('seen')), limits=Limits(memory=10**6)) as client:
        while (answer := await client.post(rpc('SendMessage', {'message': message('x' * 50_000)}))).status == 200:
            sent.append(answer.json['result']['task']['id'])
        assert (error_of_answer(answer, status=503).code, answer.headers['retry-after']) == (-32000, '60')
        assert 5 < len(sent) < 20
        assert state_of(await client.get_task(sent[-1])) == 'COMPLETED'
        for task_id in sent:
            context_id = (await client.get_task(task_id))['contextId']
            assert await client.a2a_app.erase_context(context_id)
        assert state_of(await client.send('y' * 50_000)) == 'COMPLETED'


async def test_limits_apply_to_requests_without_version_header(subtests: pytest.Subtests) -> None:
    """With a `/` it is FastA2A's own, whose parts have no kind."""
    async with serving_without_runs(limits=SMALL) as client:
        client.headers = {}
        for (case, (fields, field)), method in product(OVER.items(), ['SendMessage', 'message/send']):
            with subtests.test(f'{method}: {case}'):
                params = {'message': message(role='user' if '/' in method else 'ROLE_USER') | fields}
                body = {'jsonrpc': '2.0', 'id': 'r-1', 'method': method, 'params': params}
                answer = await client.post(json.dumps(body).encode())
                assert answer.json['error']['code'] == -32602
                assert f'{field}: ' in json.dumps(answer.json['error'])


@pytest.mark.parametrize('number', ['9' * 309, '-' + '9' * 400, '1e309', '-1e999', '9' * 4300])
@pytest.mark.parametrize('where', ['data', 'metadata'])
async def test_number_beyond_double_range_is_refused(where: str, number: str) -> None:
    part: dict[str, Any] = {'data': ['@'], 'metadata': {}} if where == 'data' else {'text': 'a', 'metadata': {'a': '@'}}
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(send_body(parts=[part]).replace(b'"@"', number.encode())))
    assert (error.code, error.fields) == (-32602, [f'message.parts[0].{where}'])


@pytest.mark.parametrize('number', ['9' * 308, '-0', '1.7976931348623157e308', '5e-324', '"%s"' % ('9' * 400)])
async def test_numbers_within_double_range_are_accepted(number: str) -> None:
    async with serving(Agent('test')) as client:
        body = send_body(parts=[{'data': {'value': '@'}}]).replace(b'"@"', number.encode())
        answer = await client.post(body)
    [part] = answer.json['result']['task']['history'][0]['parts']
    assert part['data'] == {'value': pytest.approx(json.loads(number))}


@pytest.mark.parametrize('body', [b'[' + b'0,' * 250_000 + b'0]', b'{"a":' * 250_001, b'[' * 5_000_000])
async def test_body_over_json_value_limit_is_refused_unparsed(body: bytes) -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(body), status=413, id=None)
    assert (error.code, error.message) == (-32600, 'The request body holds more than 250000 JSON values.')


@pytest.mark.parametrize('padding', [0, 300_000], ids=['short', 'long'])
async def test_body_with_many_oversized_numbers_is_refused(padding: int) -> None:
    numbers = b'[' + b','.join([b'7' * 4000] * 9) + b']'
    body = send_body(parts=[{'data': '@'}], metadata={'a': 'x' * padding}).replace(b'"@"', numbers)
    async with serving_without_runs(limits=with_constants(Limits, metadata=10**6)) as client:
        answer = await client.post(body)
        error = error_of_answer(answer, status=413 if padding else 200, id=None if padding else 'r-1')
    assert error.code == (-32600 if padding else -32602)


async def test_many_long_digit_strings_are_accepted_as_text() -> None:
    async with serving(Agent('test')) as client:
        assert state_of(await client.send(message(parts=[{'text': '7' * 4000}] * 90))) == 'COMPLETED'


async def test_error_for_5000_wrong_parts_omits_field_names() -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(send_body(parts=[{'text': 7}] * 5_000)))
        some = error_of_answer(await client.post(send_body(parts=[{'text': 7}] * 50)))
    assert (error.code, error.fields) == (-32602, [])
    assert 'message.parts' not in error.message
    assert 'message.parts[0]' in some.message
