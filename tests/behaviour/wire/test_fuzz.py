"""Whatever is sent is served or refused, and never breaks the server; what is refused leaves nothing.

`make fuzz` sends more than ten thousand requests over each binding, and others each time.
"""

from __future__ import annotations

import gc
import json
import logging
import random
import tracemalloc
from collections import Counter
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent

from pydantic_ai_a2a import APIKeyAuth, BearerAuth, Limits, Quotas, Rate, Retention, to_a2a
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS

from ...app_client import Answer, Exchange, lifespan, message
from ...dialects import DIALECTS, PATHS, current_dialect, in_no_version, json_rpc, only_in
from ...serving import serving
from ...sizes import LONG, examples, short_or_long
from ...wire.protocol.fuzzing import ALL_OPERATIONS_ON, mutated_requests, stored_message_counts
from .test_hostile_input import LEAKS

KNOWN_ERRORS = {-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004, -32005, -32007, -32009}


TOKENS = [b'"', b'}', b'[', b',', b'\\', b'\\u0000', b'\\ud800', b'NaN', b'1e999', b'\xff', b'9' * 400, b'[' * 100]

headers = st.fixed_dictionaries(
    {'Content-Type': st.sampled_from(['application/json'] * 9 + ['text/plain'])},
    optional={
        'A2A-Version': st.sampled_from(['1.0', '1.0.3', '0.3', '9.9', '1.0, 0.3', '\xff']),
        'A2A-Extensions': st.sampled_from(['https://example.com/e', ',,', '\xff']),
        'Last-Event-ID': st.sampled_from(['0', '3', '-1', 'x']),
        'traceparent': st.sampled_from(['00-0123456789abcdef0123456789abcdef-0123456789abcdef-01', 'x']),
    },
)


def events(answer: Answer) -> list[Any]:
    """Return the JSON-RPC answers: one, those of an event stream, or none to a notification."""
    if answer.status == 204:
        assert answer.body == b''
        return []
    if answer.headers['content-type'] == 'application/json':
        return [answer.json]
    assert answer.headers['content-type'] == 'text/event-stream'
    return [json.loads(frame.split(b'data: ', 1)[1]) for frame in answer.body.split(b'\n\n')[:-1]]


def written(request: Any) -> bytes:
    return json.dumps(request).encode()


@st.composite
def mutated_bytes(draw: st.DrawFn) -> bytes:
    """A request of which some bytes were replaced."""
    body = written(draw(mutated_requests()))
    start = draw(st.integers(min_value=0, max_value=len(body)))
    end = draw(st.integers(min_value=start, max_value=min(start + 8, len(body))))
    return body[:start] + draw(st.binary(max_size=4) | st.sampled_from(TOKENS)) + body[end:]


@in_no_version('requests and headers of all versions are mixed')
@pytest.mark.parametrize('round_', range(5 if LONG else 1))
@examples(short_or_long(15, 40), 200)
@given(
    requests=st.lists(st.tuples(mutated_requests().map(written) | mutated_bytes(), headers), min_size=10, max_size=10)
)
async def test_refused_fuzzed_json_rpc_requests_store_no_message(
    round_: int, requests: list[tuple[bytes, dict[str, str]]]
) -> None:
    async with serving(Agent('test'), **ALL_OPERATIONS_ON) as client:
        before = await stored_message_counts(client.a2a_app)
        for body, headers in requests:
            answer = await Exchange(client.app, 'POST', '/', headers, body).answer()
            after = await stored_message_counts(client.a2a_app)
            assert answer.status in {200, 204, 415}
            assert answer.headers['x-correlation-id']
            for event in events(answer):
                assert event['jsonrpc'] == '2.0'
                assert event.keys() in ({'jsonrpc', 'id', 'result'}, {'jsonrpc', 'id', 'error'})
                if 'error' in event:
                    assert event['error']['code'] in KNOWN_ERRORS
                    assert [leak for leak in LEAKS if leak in answer.body] == []
                    assert after == before
            before = after


@examples(short_or_long(50, 200), 1_000)
@given(requests=st.fixed_dictionaries({version: mutated_requests(version) for version in DIALECTS}))
@json_rpc('the requests are JSON-RPC')
async def test_fuzzed_request_is_answered_in_its_version(requests: dict[str, Any]) -> None:
    speaks = current_dialect()
    request = requests[speaks.version]
    names = {speaks.method(name): name for name in OPERATIONS}
    headers = {'Content-Type': 'application/json', 'A2A-Version': speaks.version}
    async with serving(Agent('test'), **ALL_OPERATIONS_ON) as client:
        answer = await Exchange(client.app, 'POST', '/', headers, json.dumps(request).encode()).answer()
    for frame in events(answer):
        if 'error' in frame:
            assert speaks.error(frame)['code'] in KNOWN_ERRORS
        elif answer.headers['content-type'] == 'text/event-stream':
            assert speaks.event(frame)
        else:
            assert speaks.result(names[request['method']], frame)


@in_no_version('no version is named')
@examples(short_or_long(100, 300), 1_000)
@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
async def test_random_bytes_are_refused(body: bytes) -> None:
    async with serving(Agent('test')) as client:
        answer = await Exchange(client.app, 'POST', '/', {'Content-Type': 'application/json'}, body).answer()
    assert answer.status == 200
    assert answer.json['error']['code'] in {-32700, -32600}


# --- HTTP+JSON --------------------------------------------------------------------------------------------------------


PARTS = [
    *'/:?#%&=+.;',
    '..',
    '%2F',
    '%3A',
    '%00',
    '%ff',
    '%',
    'tasks',
    ':cancel',
    ':subscribe',
    'message:send',
    'v1',
    'é',
]
NAMES = [
    'pageSize',
    'page_size',
    'historyLength',
    'status',
    'includeArtifacts',
    'statusTimestampAfter',
    'contextId',
    'id',
]
VALUES = [
    '1',
    '0',
    '-1',
    '1e9',
    '9' * 400,
    'true',
    'yes',
    'TASK_STATE_COMPLETED',
    '2026-01-01T00:00:00Z',
    '%00',
    '',
    '%',
]

words = st.text(max_size=8).map(lambda text: quote(text, safe='', errors='replace'))
odd_paths = st.lists(st.sampled_from(PARTS) | words, max_size=6).map(lambda parts: '/' + ''.join(parts))
known_paths = st.tuples(st.sampled_from([path for _, path in PATHS.values()]), words | st.just('t')).map(
    lambda pair: pair[0].format(id=pair[1], taskId=pair[1])
)
queries = st.lists(st.tuples(st.sampled_from(NAMES) | words, st.sampled_from(VALUES) | words), max_size=4).map(
    lambda pairs: '?' + '&'.join('='.join(pair) for pair in pairs)
)
http_headers = st.fixed_dictionaries(
    {},
    optional={
        'Content-Type': st.sampled_from([*['application/json'] * 5, 'application/a2a+json', 'text/plain', '\xff']),
        'A2A-Version': st.sampled_from(['1.0', '0.3', '9.9', '\xff']),
        'A2A-Extensions': st.sampled_from(['https://example.com/e', '\xff']),
        'Last-Event-ID': st.sampled_from(['0', '3', '-1', 'x']),
        'Origin': st.just('https://evil.example'),
    },
)


class HttpRequest(NamedTuple):
    verb: str
    path: str
    body: bytes
    headers: dict[str, str]


@st.composite
def messages(draw: st.DrawFn) -> HttpRequest:
    """A message, of which something may have been changed."""
    params = draw(mutated_requests('1.0')).get('params')
    verb, path = PATHS[draw(st.sampled_from(['SendMessage', 'SendStreamingMessage']))]
    return HttpRequest(
        verb, path, json.dumps(params).encode(), {'Content-Type': 'application/json', **draw(http_headers)}
    )


any_request = st.builds(
    HttpRequest,
    st.sampled_from(['GET', 'POST', 'DELETE', 'PUT', 'HEAD', 'OPTIONS']),
    st.tuples(st.sampled_from(['', '', '/acme']), known_paths | odd_paths, queries | st.just('')).map(''.join),
    st.just(b'') | st.just(b'{}') | mutated_bytes() | st.binary(max_size=20),
    http_headers,
)


def check_is_refused(answer: Answer) -> bool:
    """Whether it is a refusal, having seen that it is one that can be read."""
    assert answer.status < 500
    assert [leak for leak in LEAKS if leak in answer.body] == []
    if answer.status < 400:
        return False
    if answer.headers['content-type'] == 'application/a2a+json':
        assert answer.headers['x-correlation-id']
        assert answer.json['error']['code'] == answer.status
        assert current_dialect().error(answer.json)['code'] in KNOWN_ERRORS
    else:  # nothing of the binding: a path or verb it does not have, or the root, where the other one wants JSON
        assert answer.status in {404, 405, 415}
    return True


@only_in('HTTP+JSON', 'it is about its paths and queries')
@pytest.mark.parametrize('round_', range(5 if LONG else 1))
@examples(short_or_long(15, 40), 200)
@given(requests=st.lists(messages() | any_request, min_size=10, max_size=10))
async def test_refused_fuzzed_http_json_requests_store_no_message(round_: int, requests: list[HttpRequest]) -> None:
    async with serving(Agent('test'), **ALL_OPERATIONS_ON) as client:
        before = await stored_message_counts(client.a2a_app)
        for sent in requests:
            answer = await Exchange(client.app, sent.verb, sent.path, sent.headers, sent.body).answer()
            after = await stored_message_counts(client.a2a_app)
            if check_is_refused(answer):
                assert after == before
            before = after


# --- memory -----------------------------------------------------------------------------------------------------------


REQUESTS = 10_000 if LONG else 400
GROWTH = 200_000 + 200 * REQUESTS
"""Bytes: what is made once only, and strings of which Pydantic's parser of JSON keeps some thousand."""
ANN = 'the-token-of-ann-1234'
METHODS = ['SendMessage', 'SendStreamingMessage', 'GetTask', 'ListTasks', 'CancelTask', 'message/send', 'nothing', 'é']
JUNK = [b'"', b'}', b'[', b'\\u0000', b'\\ud800', b'NaN', b'1e999', b'\xff', b'9' * 400, b'[' * 300]
RANDOM_PATHS = ['/', '/', '/', '/tasks', '/tasks/{id}', '/tasks/{id}:cancel', '/message:send', '/nothing/{id}']


def random_request(chance: random.Random) -> tuple[str, str, dict[str, str], bytes]:
    """A request, of which something may be wrong: verb, path, headers, body."""
    unique = f'{chance.getrandbits(64):x}'
    params: dict[str, Any] = {'id': unique} if chance.random() < 0.4 else {'message': message(unique)}
    if chance.random() < 0.3:
        params['message'] = message(unique, contextId=unique, metadata={unique: unique})
    body = json.dumps({'jsonrpc': '2.0', 'id': unique, 'method': chance.choice(METHODS), 'params': params}).encode()
    if chance.random() < 0.3:
        at = chance.randrange(len(body))
        body = body[:at] + chance.choice(JUNK) + body[at + chance.randrange(4) :]
    token = ANN if chance.random() < 0.8 else f'{unique}{unique}'
    headers = {'Authorization': f'Bearer {token}', 'Content-Type': chance.choice(['application/json'] * 9 + [unique])}
    if chance.random() < 0.2:
        headers[f'X-{unique}'] = unique
        headers['A2A-Version'] = chance.choice(['1.0', '0.3', unique])
    verb = chance.choice(['POST'] * 6 + ['GET', 'PUT'])
    return verb, f'{chance.choice(RANDOM_PATHS).format(id=unique)}?key={unique}', headers, body


@in_no_version('requests of all versions and bindings are mixed')
async def test_memory_does_not_grow_with_requests() -> None:
    app = to_a2a(
        Agent('test'),
        auth=[BearerAuth({ANN: 'ann'}), APIKeyAuth({ANN: 'ann'}, query='key')],
        limits=Limits(quotas=Quotas(rates=Rate(10**6, timedelta(seconds=1)), streams=10, tasks=10)),
        retention=Retention(max_tasks=20),
    )
    chance = random.Random(5)
    logging.disable()  # each record would be kept by the test itself
    statuses: Counter[int] = Counter()

    async def send(times: int) -> int:
        for _ in range(times):
            verb, path, headers, body = random_request(chance)
            statuses[(await Exchange(app, verb, path, headers, body).answer()).status] += 1
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        async with lifespan(app):
            before = await send(REQUESTS // 4)
            grown = await send(REQUESTS) - before
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)
    assert {200, 401, 404, 405, 415} <= statuses.keys()
    assert max(statuses) < 500
    assert statuses[200] > REQUESTS / 5
    assert grown < GROWTH
