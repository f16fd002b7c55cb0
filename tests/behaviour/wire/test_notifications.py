"""JSON-RPC notifications: requests without an id, which are served and get no answer (JSON-RPC 2.0 §4.1)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent

from pydantic_ai_a2a import Access, APIKeyAuth, Caller, Limits, Quotas, Rate

from ...agents import GatedAgent
from ...app_client import Answer, message, rpc, state_of
from ...dialects import json_rpc
from ...serving import serving
from ..refusals import error_of_answer, serving_without_runs

pytestmark = json_rpc('HTTP+JSON has no ids')
KEY = 'the-key-of-ann-1234'


def notification(method: str, params: Any = None) -> bytes:
    request = json.loads(rpc(method, params))
    del request['id']
    return json.dumps(request).encode()


def has_no_body(answer: Answer, status: int = 204) -> bool:
    headers = answer.headers.keys()
    return (
        (answer.status, answer.body) == (status, b'')
        and 'content-type' not in headers
        and ('content-length' not in headers or answer.headers['content-length'] == '0')
    )


@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
async def test_message_notification_runs_without_response(method: str) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        answer = await client.post(notification(method, {'message': message('hello', contextId='c')}))
        await gates.reached('hello')
        gates.open('hello')
        after = await client.send(message('again', contextId='c'), returnImmediately=True)
        await gates.reached('again')
        async with client.subscribe(after['id']) as stream:
            gates.open('again')
            await stream.rest()
    assert has_no_body(answer)
    assert answer.headers['x-correlation-id']


@pytest.mark.parametrize('method', ['GetTask', 'CancelTask', 'SubscribeToTask'])
async def test_notification_gets_neither_result_nor_error(method: str) -> None:
    async with serving(Agent('test')) as client:
        task = await client.send()
        for params in ({'id': task['id']}, {'id': 'no-such-task'}, {}, None, ['x'], {'id': 'nul\0'}):
            assert has_no_body(await client.post(notification(method, params)))


async def test_a_notification_cancels_a_task() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send('hello', returnImmediately=True)
        await gates.reached('hello')
        answer = await client.post(notification('CancelTask', {'id': task['id']}))
        assert has_no_body(answer)
        assert state_of(await client.get_task(task['id'])) == 'CANCELED'


async def test_notification_of_unknown_method_or_version_gets_no_response() -> None:
    async with serving_without_runs() as client:
        assert has_no_body(await client.post(b'{"jsonrpc":"2.0","method":"NoSuchMethod"}'))
        assert has_no_body(await client.post(notification('GetTask', {'id': 't'}), {'A2A-Version': '9.9'}))


@pytest.mark.parametrize(
    ('body', 'code'),
    [
        (b'{"jsonrpc":"2.0",', -32700),
        (b'{}', -32600),
        (b'[]', -32600),
        (b'{"method":"GetTask"}', -32600),
        (b'{"jsonrpc":"2.0","method":7}', -32600),
    ],
)
async def test_invalid_request_without_id_gets_an_error(body: bytes, code: int) -> None:
    async with serving_without_runs() as client:
        for version in ({}, {'A2A-Version': '9.9'}):
            answer = await client.post(body, version)
            assert answer.status == 200
            assert answer.json['id'] is None
            assert answer.json['error']['code'] == (code if not version else -32009)


async def test_request_with_null_id_gets_a_response() -> None:
    async with serving_without_runs() as client:
        assert error_of_answer(await client.post(rpc('GetTask', {'id': 't'}, id=None)), id=None).code == -32001


async def test_forbidden_or_rate_limited_notification_has_no_body() -> None:
    async with serving(
        Agent('test'),
        auth=APIKeyAuth({KEY: Caller(id='ann')}),
        access=Access(scopes={'CancelTask': 'x'}),
        limits=Limits(quotas=Quotas(rates=Rate(3, timedelta(days=1)))),
    ) as client:
        known = {'X-API-Key': KEY}
        forbidden = await client.post(notification('CancelTask', {'id': 't'}), known)
        statuses = [(await client.post(notification('GetTask', {'id': 't'}), known)).status for _ in range(4)]
        unknown = await client.post(notification('GetTask', {'id': 't'}))
    assert has_no_body(forbidden, 403)
    assert 'www-authenticate' in forbidden.headers
    assert statuses == [204, 204, 429, 429]
    assert (unknown.status, unknown.json['id']) == (401, None)  # refused before it was read
