"""Whatever is sent, the answer is a JSON-RPC answer, and never that the server broke; what is refused leaves nothing.

`make fuzz` sends more than ten thousand requests, and others each time.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.protocol.operations import OPERATIONS

from ...client import LIMIT, Answer, Exchange, lifespan
from ...dialects import DIALECTS, json_rpc, spoken, unversioned
from ...long import LONG, drawn, size
from ...protocol.fuzzing import EVERYTHING, changed, stored
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
def mangled(draw: st.DrawFn) -> bytes:
    """A request of which some bytes were replaced."""
    body = written(draw(changed()))
    start = draw(st.integers(min_value=0, max_value=len(body)))
    end = draw(st.integers(min_value=start, max_value=min(start + 8, len(body))))
    return body[:start] + draw(st.binary(max_size=4) | st.sampled_from(TOKENS)) + body[end:]


@unversioned('requests and headers of all versions are mixed')
@pytest.mark.parametrize('round_', range(5 if LONG else 1))
@drawn(size(15, 40), 200)
@given(requests=st.lists(st.tuples(changed().map(written) | mangled(), headers), min_size=10, max_size=10))
async def test_changed_requests_are_served_or_refused_without_a_trace(
    round_: int, requests: list[tuple[bytes, dict[str, str]]]
) -> None:
    app = to_a2a(Agent('test'), **EVERYTHING)
    async with lifespan(app), asyncio.timeout(LIMIT):
        before = await stored(app)
        for body, headers in requests:
            answer = await Exchange(app, 'POST', '/', headers, body).answer()
            after = await stored(app)
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


@drawn(size(50, 200), 1_000)
@given(requests=st.fixed_dictionaries({version: changed(version) for version in DIALECTS}))
@json_rpc('the requests are JSON-RPC')
async def test_a_changed_request_of_a_version_is_answered_in_that_version(requests: dict[str, Any]) -> None:
    speaks = spoken()
    request = requests[speaks.version]
    names = {speaks.method(name): name for name in OPERATIONS}
    headers = {'Content-Type': 'application/json', 'A2A-Version': speaks.version}
    app = to_a2a(Agent('test'), **EVERYTHING)
    async with lifespan(app):
        answer = await Exchange(app, 'POST', '/', headers, json.dumps(request).encode()).answer()
    for frame in events(answer):
        if 'error' in frame:
            assert speaks.error(frame)['code'] in KNOWN_ERRORS
        elif answer.headers['content-type'] == 'text/event-stream':
            assert speaks.event(frame)
        else:
            assert speaks.result(names[request['method']], frame)


@unversioned('no version is named')
@drawn(size(100, 300), 1_000)
@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
async def test_any_bytes_are_refused(body: bytes) -> None:
    app = to_a2a(Agent('test'))
    async with lifespan(app):
        answer = await Exchange(app, 'POST', '/', {'Content-Type': 'application/json'}, body).answer()
    assert answer.status == 200
    assert answer.json['error']['code'] in {-32700, -32600}
