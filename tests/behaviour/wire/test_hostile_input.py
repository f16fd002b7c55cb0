"""What is sent to break, to confuse or to fill a server: it is refused or taken as it is, and nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any
from unicodedata import normalize

import pytest
from pydantic_ai import Agent
from starlette.requests import Request

from pydantic_ai_a2a import Caller

from ...app_client import Answer, Client, Exchange, RpcError, message, rpc, state_of
from ...dialects import Call, current_dialect, in_no_version, json_rpc, only_in
from ...serving import list_tasks, serving
from ..refusals import send_body, serving_without_runs

Change = Callable[[bytes], bytes]

LEAKS = (b'Traceback', b'Error(', b'Exception', b'.py', b'sqlite', b'pydantic', b'starlette', b'asyncio', b'0x7f')
"""What the text of an exception has, and no answer."""


def checked_json(answer: Answer) -> dict[str, Any]:
    """The answer, with an error as JSON-RPC has it, having seen that the server is fine and shows nothing of itself."""
    assert [leak for leak in LEAKS if leak in answer.body] == []
    assert all(value.isprintable() for value in answer.headers.values())
    if not current_dialect().has_envelope:
        assert answer.status < 500
        return {'error': current_dialect().error(answer.json)} if 'error' in answer.json else answer.json
    assert answer.status in {200, 413, 415, 421}
    assert answer.json['jsonrpc'] == '2.0'
    assert answer.json.get('error', {}).get('code') != -32603
    return answer.json


def metadata_value(hostile: bytes) -> Change:
    """A value of the metadata."""
    return lambda body: body.replace(b'"VALUE"', hostile)


def message_text(hostile: bytes) -> Change:
    """What is said."""
    return lambda body: body.replace(b'"TEXT"', hostile)


def envelope_member(hostile: bytes) -> Change:
    """One more member of the envelope."""
    return lambda body: b'{%s,%s' % (hostile, body[1:])


def params_member(hostile: bytes) -> Change:
    """One more member of the params."""
    return lambda body: body.replace(b'"params": {', b'"params": {%s,' % hostile)


def deep(depth: int) -> bytes:
    return b'[' * depth + b']' * depth


def deep_object(depth: int) -> bytes:
    return b'{"a":' * depth + b'1' + b'}' * depth


CORPUS: dict[str, tuple[Change, int]] = {
    'deep metadata': (metadata_value(deep(32)), -32602),
    'deep objects': (metadata_value(deep_object(32)), -32602),
    'deeper metadata': (metadata_value(deep(190)), -32602),
    'metadata as deep as no parser reads': (metadata_value(deep(500)), -32700),
    'metadata of 100,000 lists': (metadata_value(deep(100_000)), -32700),
    'deep member that nobody knows': (params_member(b'"x":' + deep(500)), -32700),
    'deep envelope': (envelope_member(b'"x":' + deep(500)), -32700),
    'too many values': (metadata_value(b'[' + b'0,' * 300_000 + b'0]'), -32600),
    'large metadata': (metadata_value(b'"' + b'x' * 200_000 + b'"'), -32602),
    'long text': (message_text(b'"' + b'x' * 1_000_001 + b'"'), -32602),
    'long key': (metadata_value(b'{"' + b'x' * 200_000 + b'":1}'), -32602),
    'NaN': (metadata_value(b'NaN'), -32700),
    'Infinity': (metadata_value(b'-Infinity'), -32700),
    'NaN in the envelope': (envelope_member(b'"x":NaN'), -32700),
    '1e999': (metadata_value(b'[1e999]'), -32602),
    '400 digits': (metadata_value(b'9' * 400), -32602),
    '400 digits after a minus': (metadata_value(b'{"a":-%s}' % (b'9' * 400)), -32602),
    '400 digits and a fraction': (metadata_value(b'9' * 400 + b'.5'), -32602),
    '1,000,000 digits': (metadata_value(b'9' * 1_000_000), -32700),
    '1,000,000 digits in the envelope': (envelope_member(b'"x":' + b'9' * 1_000_000), -32700),
    'hexadecimal': (metadata_value(b'0x10'), -32700),
    'leading zero': (metadata_value(b'007'), -32700),
    'NUL in metadata': (metadata_value(b'"\\u0000"'), -32602),
    'NUL in a key': (metadata_value(b'{"\\u0000":1}'), -32602),
    'NUL in a text': (message_text(b'"a\\u0000b"'), -32602),
    'NUL in a member that nobody knows': (params_member(b'"x":"\\u0000"'), -32602),
    'bare NUL': (message_text(b'"\x00"'), -32700),
    'bare line break': (message_text(b'"\n"'), -32700),
    'bare escape': (message_text(b'"\x1b[2J"'), -32700),
    'lone surrogate': (message_text(b'"\\ud800"'), -32602),
    'lone surrogate in metadata': (metadata_value(b'["\\udfff"]'), -32602),
    'lone surrogate in a key': (metadata_value(b'{"\\ud800":1}'), -32602),
    'surrogates in the wrong order': (message_text(b'"\\udc00\\ud800"'), -32602),
    'lone surrogate in a member that nobody knows': (params_member(b'"x":"\\ud800"'), -32602),
    'lone surrogate in the envelope': (envelope_member(b'"x":"\\ud800"'), -32600),
    'surrogate as UTF-8': (message_text(b'"\xed\xa0\x80"'), -32700),
    'overlong UTF-8': (message_text(b'"\xc0\x80"'), -32700),
    'UTF-8 beyond Unicode': (message_text(b'"\xf4\x90\x80\x80"'), -32700),
    'broken UTF-8': (message_text(b'"\xc3"'), -32700),
    'Latin-1': (message_text(b'"\xe9"'), -32700),
    'byte order mark': (lambda body: b'\xef\xbb\xbf' + body, -32700),
    'UTF-16': (lambda body: body.decode().encode('utf-16'), -32700),
    'UTF-32': (lambda body: body.decode().encode('utf-32-le'), -32700),
    'two documents': (lambda body: body + body, -32700),
    'garbage after it': (lambda body: body + b'\x00', -32700),
    'cut off': (lambda body: body[:-1], -32700),
    'comment': (lambda body: b'/**/' + body, -32700),
    'trailing comma': (lambda body: body[:-1] + b',}', -32700),
    'single quotes': (lambda body: body.replace(b'"', b"'"), -32700),
    'bad escape': (message_text(b'"\\x41"'), -32700),
    'batch': (lambda body: b'[' + body + b',' + body + b']', -32600),
    'batch of 100,000': (lambda body: b'[' + b'{},' * 100_000 + b'{}]', -32600),
    'a list for metadata': (lambda body: body.replace(b'{"k": "VALUE"}', b'[]'), -32602),
    'another id last': (lambda body: body[:-1] + b',"id":{}}', -32600),
    'another version last': (lambda body: body[:-1] + b',"jsonrpc":"1.0"}', -32600),
    'another method last': (lambda body: body[:-1] + b',"method":"__init__"}', -32601),
    'other params last': (lambda body: body[:-1] + b',"params":{}}', -32602),
    'a bad text last': (message_text(b'"good","text":"\\ud800"'), -32602),
}
"""What is done to a request that would be served, and the code of the refusal."""
WITHOUT_ENVELOPE = {
    case: row
    for case, row in CORPUS.items()
    if 'envelope' not in case and 'nobody knows' not in case and ' last' not in case
}
"""What can be done to a request of HTTP+JSON, which has only the params."""


CHANGED = {'messageId': 'message-id', 'metadata': {'k': 'VALUE'}}
"""What requests of the corpus have besides the text `TEXT`."""


def fasta2a_body(change: Change) -> bytes:
    """The changed request in FastA2A's dialect."""
    params = {'message': message('TEXT', role='user', **CHANGED)}
    return change(json.dumps({'jsonrpc': '2.0', 'id': 'r-1', 'method': 'message/send', 'params': params}).encode())


async def test_hostile_request_is_refused(subtests: pytest.Subtests) -> None:
    request = rpc('SendMessage', {'message': message('TEXT', **CHANGED)})
    cases = CORPUS if current_dialect().has_envelope else WITHOUT_ENVELOPE
    async with serving_without_runs() as client:
        for case, (change, code) in cases.items():
            with subtests.test(case):
                answer = await client.post(Call.to(request.verb, request.path, change(request)))
                assert checked_json(answer)['error']['code'] == code


@in_no_version("it is FastA2A's dialect")
async def test_hostile_request_is_refused_in_fasta2a_dialect(subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        client.headers = {}
        for case, (change, code) in CORPUS.items():
            with subtests.test(case):
                assert checked_json(await client.post(fasta2a_body(change)))['error']['code'] == code


@pytest.mark.slow
@in_no_version('one dialect tells')
async def test_refused_requests_do_not_leak_memory() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with serving_without_runs() as client:
        client.headers = {}

        async def send_all() -> int:
            for change, _ in CORPUS.values():
                checked_json(await client.post(fasta2a_body(change)))
            await asyncio.to_thread(gc.collect)  # the one thread has then dropped the long body that it read last
            return sys.getallocatedblocks()

        await send_all()
        before = await send_all()
        growth = [await send_all() - before for _ in range(16)]
    # Caches come and go. One block for each request would stay in all of the last rounds.
    assert min(growth[-4:]) < 12 * len(CORPUS)


CHARSETS = [
    *('punycode', 'undefined', 'idna', 'unicode_escape', 'raw_unicode_escape', 'utf-7', 'zlib_codec', 'rot13'),
    *('mbcs', 'aliases', 'charmap', '..', 'x' * 8000),
]


async def test_file_with_unsafe_charset_is_refused(subtests: pytest.Subtests) -> None:
    raw = b64encode(b'a-' + b'8' * 300_000 + b'+2AA-\\ud800').decode()
    async with serving_without_runs() as client:
        for charset in CHARSETS:
            with subtests.test(charset):
                answer = await client.post(
                    send_body(parts=[{'raw': raw, 'mediaType': f'text/plain; charset={charset}'}])
                )
                assert checked_json(answer)['error']['code'] == -32602


# What looks as if it were something else.


@pytest.mark.parametrize(
    'odd',
    [
        {'messageId': '../../etc/passwd', 'contextId': '..'},
        {'messageId': "'; DROP TABLE task; --", 'contextId': "' OR '1'='1"},
        {'messageId': '%2e%2e%2f', 'contextId': '%00'},
        {'messageId': '{{7*7}} ${7*7} %s %d %n', 'contextId': '{0.__class__}'},
        {'messageId': '\u202eexe.png', 'contextId': '\u200b'},
        {'messageId': '__proto__', 'contextId': 'constructor'},
        {'messageId': '💩' * 256, 'contextId': '\uffff'},
    ],
)
async def test_special_characters_in_ids_are_plain_text(odd: dict[str, str]) -> None:
    async with serving(Agent('test')) as client:
        task = await client.send(message(**odd))
        assert await client.get_task(task['id']) == task
        [found] = await list_tasks(client, context_id=odd['contextId'])
        assert await list_tasks(client, context_id=odd['contextId'] + ' ') == []
        assert len(await client.messages_of(odd['contextId'])) == 2
    assert (state_of(task), task['contextId'], found['id']) == ('COMPLETED', odd['contextId'], task['id'])
    assert task['history'][0]['messageId'] == odd['messageId']


SIMILAR_IDS = [
    ('ann', 'Ann'),
    ('ann', 'ann '),
    ('caf\xe9', normalize('NFD', 'caf\xe9')),
    ('a', '\u0430'),
    ('\ufb01', 'fi'),
    ('stra\xdfe', 'strasse'),
    ('a/b', 'a%2Fb'),
    ('a', 'a\u200b'),
    ('1', '01'),
    ('%', '_'),
]
"""Pairs that some comparison takes for the same."""


async def test_similar_ids_are_distinct(subtests: pytest.Subtests) -> None:
    for pair in SIMILAR_IDS:
        with subtests.test(str(pair)):
            async with serving(Agent('test')) as client:
                tasks = [await client.send(message(messageId=id * 8, contextId=id)) for id in pair]
                found = [[task['id'] for task in await list_tasks(client, context_id=id)] for id in pair]
                again = [await client.send(message(messageId=id * 8, contextId=id)) for id in pair]
            assert found == [[task['id']] for task in tasks]
            assert [len(task['history']) for task in tasks] == [2, 2]
            assert [task['id'] for task in again] != [task['id'] for task in tasks][::-1]


def caller_from_name(request: Request) -> Caller:
    return Caller(**json.loads(request.headers['x-caller']))


CALLERS_ALIKE = [
    *(({'id': one}, {'id': other}) for one, other in SIMILAR_IDS),
    *(({'id': 'ann', 'tenant': one}, {'id': 'ann', 'tenant': other}) for one, other in SIMILAR_IDS),
    ({'id': 'c', 'tenant': 'a/b'}, {'id': 'b/c', 'tenant': 'a'}),
    ({'id': 'a/b'}, {'id': 'b', 'tenant': 'a'}),
    ({'id': '/'}, {'id': '//'}),
    ({'id': '/', 'tenant': 'a'}, {'id': 'a', 'tenant': '/'}),
    ({'id': 'a\0'}, {'id': 'a'}),
    ({'id': '\ud800'}, {'id': '\udfff'}),
]


@in_no_version('it is about callers')
async def test_similar_callers_are_distinct(subtests: pytest.Subtests) -> None:
    for pair in CALLERS_ALIKE:
        with subtests.test(ascii(pair)):
            async with serving(Agent('test'), auth=caller_from_name) as client:
                mine, yours = [Client(client.app, headers={'X-Caller': json.dumps(caller)}) for caller in pair]
                task = await mine.send(message(contextId='c'))
                assert (await mine.call('ListTasks'))['totalSize'] == 1
                assert (await yours.call('ListTasks'))['totalSize'] == 0
                answer = await yours.post(rpc('GetTask', {'id': task['id']}))
            assert checked_json(answer)['error']['code'] == -32001


OTHER_SPELLINGS: list[Callable[[str], str]] = [str.upper, '{} '.format, '{}/'.format, './{}'.format, '%{}'.format]


@pytest.mark.parametrize('change', OTHER_SPELLINGS)
async def test_altered_task_id_is_not_found(change: Callable[[str], str]) -> None:
    async with serving(Agent('test')) as client:
        task = await client.send()
        answer = await client.post(rpc('GetTask', {'id': change(task['id'])}))
    assert checked_json(answer)['error']['code'] == -32001


# Members that are there twice: the last one counts, for all that look.


@json_rpc('the members are of the envelope')
async def test_last_duplicate_json_member_is_checked_and_stored() -> None:
    body = send_body(messageId='last-message-id', parts=[{'text': 'last'}])
    body = body.replace(b'"text": "last"', b'"text": "first", "text": "last"')
    body = body.replace(b'"messageId": ', b'"messageId": "first-message-id", "messageId": ')
    async with serving(Agent('test')) as client:
        answer = await client.post(body.replace(b'"id": ', b'"id": "first", "id": ', 1))
        [task] = await list_tasks(client)
    assert checked_json(answer)['id'] == 'r-1'
    sent = current_dialect().result('SendMessage', answer.json)['task']['history'][0]
    assert (sent['messageId'], sent['parts'][0]['text']) == ('last-message-id', 'last')
    assert task.get('history', [])[0]['message_id'] == 'last-message-id'


@in_no_version('the methods of several versions are sent')
@pytest.mark.parametrize(
    ('methods', 'code'),
    [(('message/send', 'GetTask'), -32001), (('SendMessage', 'tasks/get'), -32001), (('GetTask', 'nothing'), -32601)],
)
async def test_last_duplicate_method_decides_version(methods: tuple[str, str], code: int) -> None:
    first, last = (json.dumps(method).encode() for method in methods)
    body = b'{"jsonrpc":"2.0","id":1,"method":%s,"params":{"id":"t"},"method":%s}' % (first, last)
    async with serving_without_runs() as client:
        answer = await Exchange(client.app, 'POST', '/', {'Content-Type': 'application/json'}, body).answer()
    assert checked_json(answer)['error']['code'] == code


# Headers and paths.

HOSTILE_VALUES = [
    'EVIL\r\nSet-Cookie: a=b',
    'EVIL\n',
    'EVIL\0',
    'EVIL' * 10_000,
    '\xffEVIL',
    '"EVIL\\',
    ',,,',
    '²',
    '9' * 5_000,
    '-1',
    '',
]
REQUEST_HEADERS = [
    'A2A-Version',
    'A2A-Extensions',
    'X-A2A-Extensions',
    'X-Correlation-Id',
    'Last-Event-ID',
    'traceparent',
    'tracestate',
    'baggage',
    'Content-Length',
    'Content-Type',
    'Accept',
    'Authorization',
    'Cookie',
    'Origin',
    'X-Forwarded-For',
]


async def test_request_headers_are_not_reflected_in_response_headers(subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        for name, evil, method in product(REQUEST_HEADERS, HOSTILE_VALUES, ('GetTask', 'SubscribeToTask')):
            with subtests.test(f'{method}, {name}: {evil[:20]!a}'):
                answer = await client.post(rpc(method, {'id': 't'}), {name: evil})
                assert checked_json(answer)['error']['code'] in {-32001, -32009, -32600}
                assert 'EVIL' not in str(answer.headers)
                assert b'\r' not in answer.body


@in_no_version('no version is named')
@pytest.mark.parametrize(
    'query', ['A2A-Version=EVIL%0d%0aSet-Cookie:a', 'A2A-Version=%ff', 'A2A-Version=1.0&A2A-Version=0.3', '&' * 5_000]
)
async def test_query_is_not_reflected_in_response_headers(query: str) -> None:
    async with serving_without_runs() as client:
        headers = {'Content-Type': 'application/json'}
        answer = await Exchange(client.app, 'POST', f'/?{query}', headers, rpc('GetTask', {'id': 't'})).answer()
    assert checked_json(answer)['error']['code'] in {-32001, -32009, -32600}
    assert 'EVIL' not in str(answer.headers)


OTHER_PATHS = [
    '/..',
    '/../health/ready/..',
    '/.well-known/../agent.db',
    '/.well-known/agent-card.json/',
    '/health/ready\0',
    '/%2e',
    '/\xff',
]


@in_no_version('no operation is called')
async def test_hostile_paths_reach_no_operation(subtests: pytest.Subtests) -> None:
    methods = ['GET', 'POST', 'PUT', 'DELETE', 'TRACE', 'CONNECT', 'G\0T']
    async with serving_without_runs() as client:
        for path, method in product(OTHER_PATHS, methods):
            with subtests.test(ascii(f'{method} {path}')):
                exchange = Exchange(client.app, method, path, {'Content-Type': 'application/json'}, send_body())
                assert (await exchange.answer()).status in {307, 404, 405}


MADE_UP_TIMES = [-1, 2**63, 2**70, 1.5, True, 'x', None]
MADE_UP_TASK_IDS = ['nul\0', '\ud800', 'x' * 257, 7, None, ['t']]


@only_in('1.0', '0.3 has no lists')
async def test_forged_page_token_is_refused(subtests: pytest.Subtests) -> None:
    """Whoever knows how tokens are made may make one; what it holds is checked all the same."""
    async with serving(Agent('test')) as client:
        for _ in range(2):
            await client.send()
        given = (await client.call('ListTasks', {'pageSize': 1}))['nextPageToken']
        known_at, known, mark = json.loads(urlsafe_b64decode(given))
        for at, task_id in [*product([0, known_at], MADE_UP_TASK_IDS), *product(MADE_UP_TIMES, [known])]:
            with subtests.test(f'{at!r}, {task_id!a}'):
                token = urlsafe_b64encode(json.dumps([at, task_id, mark]).encode()).decode()
                error = RpcError(
                    checked_json(await client.post(rpc('ListTasks', {'pageSize': 1, 'pageToken': token})))['error']
                )
                assert (error.code, error.fields) == (-32602, ['pageToken'])
