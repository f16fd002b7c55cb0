"""Whatever is sent, the answer is a JSON-RPC answer, and never that the server broke."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.protocol.operations import OPERATIONS

from ..client import Answer, Exchange, lifespan
from ..dialects import spoken, unversioned
from ..protocol.fuzzing import changed

KNOWN_ERRORS = {-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004, -32005, -32009}

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
    """The JSON-RPC answers in what was answered: one, or those of an event stream."""
    if answer.headers['content-type'] == 'application/json':
        return [answer.json]
    assert answer.headers['content-type'] == 'text/event-stream'
    return [json.loads(frame.split(b'data: ', 1)[1]) for frame in answer.body.split(b'\n\n')[:-1]]


@unversioned('requests and headers of all versions are mixed')
@settings(max_examples=300)
@given(request=changed(), headers=headers)
async def test_a_changed_request_is_served_or_refused(request: Any, headers: dict[str, str]) -> None:
    app = to_a2a(Agent('test'))
    async with lifespan(app):
        answer = await Exchange(app, 'POST', '/', headers, json.dumps(request).encode()).answer()
    assert answer.status in {200, 415}
    assert answer.headers['x-correlation-id']
    for event in events(answer):
        assert event['jsonrpc'] == '2.0'
        assert event['id'] in (request.get('id'), None)
        assert event.keys() in ({'jsonrpc', 'id', 'result'}, {'jsonrpc', 'id', 'error'})
        assert event.get('error', {}).get('code', -32600) in KNOWN_ERRORS


@settings(max_examples=200)
@given(data=st.data())
async def test_a_changed_request_of_a_version_is_answered_in_that_version(data: st.DataObject) -> None:
    speaks = spoken()
    request = data.draw(changed(speaks.version))
    names = {speaks.method(name): name for name in OPERATIONS}
    headers = {'Content-Type': 'application/json', 'A2A-Version': speaks.version}
    app = to_a2a(Agent('test'))
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
@settings(max_examples=300)
@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
async def test_any_bytes_are_refused(body: bytes) -> None:
    app = to_a2a(Agent('test'))
    async with lifespan(app):
        answer = await Exchange(app, 'POST', '/', {'Content-Type': 'application/json'}, body).answer()
    assert answer.status == 200
    assert answer.json['error']['code'] in {-32700, -32600}
