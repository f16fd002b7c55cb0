"""Event streams as they are on the wire: their frames, what keeps them alive, and how a reader resumes."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from starlette.types import ASGIApp, Message

from pydantic_ai_a2a import Access, Limits, Results
from pydantic_ai_a2a.server.store.ports import Subscription

from ...agents import GatedAgent, stream_three_words
from ...app_client import LIMIT, Client, Event, Exchange, RpcError, message, rpc
from ...constants import with_constants
from ...dialects import current_dialect, json_rpc, only_in
from ...serving import serving
from ..callers import caller_from_header, client_of_caller
from ..refusals import error_of_answer, serving_without_runs


def words() -> Agent:
    return Agent(FunctionModel(stream_function=stream_three_words))


async def whole_stream(app: ASGIApp) -> list[Event]:
    async with Client(app).live.send_streaming() as stream:
        return await stream.rest()


async def resumed(app: ASGIApp, task_id: str, after: str) -> list[Event]:
    async with Client(app).live.subscribe(task_id, Last_Event_ID=after) as stream:
        return await stream.rest()


async def answer_to_subscription(app: ASGIApp, task_id: str, **headers: str) -> object:
    """Subscribe to a task, and return the results of its events, or the code of the error."""
    try:
        async with Client(app).subscribe(task_id, **headers) as stream:
            return [event.result for event in await stream.rest()]
    except RpcError as error:
        return error.code


@json_rpc('the request is JSON-RPC')
async def test_stream_response_forbids_caching_and_proxy_buffering() -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        headers = {'Content-Type': 'application/json', 'A2A-Version': current_dialect().version}
        body = rpc('SendStreamingMessage', {'message': message()})
        answer = await Exchange(client.app, 'POST', '/', headers, body).answer()
    correlation_id = answer.headers.pop('x-correlation-id')
    assert (answer.status, answer.headers) == snapshot(
        (
            200,
            {
                'content-type': 'text/event-stream',
                'cache-control': 'no-store',
                'x-accel-buffering': 'no',
                'x-content-type-options': 'nosniff',
            },
        )
    )
    assert len(correlation_id) == 16


@json_rpc('HTTP+JSON has no envelope')
async def test_stream_events_are_numbered_json_rpc_responses() -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        headers = {'Content-Type': 'application/json'}
        body = rpc('SendStreamingMessage', {'message': message()})
        answer = await Exchange(client.app, 'POST', '/', headers, body).answer()
    *frames, end = answer.body.split(b'\n\n')
    assert end == b''
    ids: list[int] = []
    for frame in frames:
        number, data = frame.split(b'\n')
        ids.append(int(number.removeprefix(b'id: ')))
        event = json.loads(data.removeprefix(b'data: '))
        assert event.keys() == {'jsonrpc', 'id', 'result'}
        assert (event['jsonrpc'], event['id'], len(current_dialect().event(event))) == ('2.0', 'r-1', 1)
    assert ids == list(range(len(frames)))


async def test_stream_runs_from_task_to_terminal_state() -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        events = await whole_stream(client.app)
    assert [(event.id, next(iter(event.result))) for event in events] == snapshot(
        [
            (0, 'task'),
            (1, 'statusUpdate'),
            (2, 'artifactUpdate'),
            (3, 'artifactUpdate'),
            (4, 'artifactUpdate'),
            (5, 'artifactUpdate'),
            (6, 'statusUpdate'),
        ]
    )
    assert events[0].result['task']['status']['state'] == 'TASK_STATE_SUBMITTED'
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


async def test_idle_stream_sends_keep_alive_comments() -> None:
    gates = GatedAgent()
    async with (
        serving(gates.agent, limits=with_constants(Limits, keep_alive=0.01)) as client,
        client.send_streaming('hi') as stream,
    ):
        await stream.until('TASK_STATE_WORKING')
        comments = 0
        async with asyncio.timeout(LIMIT):
            while comments < 3:
                part = await stream.exchange.next()
                assert part['body'] == b': keep-alive\n'
                comments += 1
        gates.open('hi')
        events = await stream.rest()
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


async def test_last_event_id_resumes_stream_after_any_event() -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        events = await whole_stream(client.app)
        task_id = events[0].result['task']['id']
        rests = [await resumed(client.app, task_id, str(event.id)) for event in events]
    for event, rest in zip(events, rests, strict=True):
        # The request of a resumed stream has an id of its own.
        assert [(each.id, each.result) for each in rest] == [
            (each.id, each.result) for each in events if each.id > event.id
        ]


@pytest.mark.parametrize('unknown', ['1000', '9' * 30])
async def test_resume_after_unknown_event_id_gives_task_snapshot(unknown: str) -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        last = (await whole_stream(client.app))[-1]
        task = await client.get_task(last.result['statusUpdate']['taskId'])
        [snapshot_] = await resumed(client.app, task['id'], unknown)
    assert (snapshot_.id, snapshot_.result) == (last.id, {'task': task})


MALFORMED_IDS = ['-1', '1.5', '0x1', '1e3', 'x', 'ü', '', ' ', '²']


async def test_malformed_last_event_id_is_ignored(subtests: pytest.Subtests) -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        task_id = (await whole_stream(client.app))[-1].result['statusUpdate']['taskId']
        plain = await answer_to_subscription(client.app, task_id)
        for value in MALFORMED_IDS:
            with subtests.test(value):
                assert await answer_to_subscription(client.app, task_id, Last_Event_ID=value) == plain


@only_in('0.3', '1.0 has an error for it')
async def test_subscribe_to_finished_task_streams_its_snapshot() -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        task = await client.send()
        async with client.subscribe(task['id']) as stream:
            events = await stream.rest()
    assert [event.result for event in events] == [{'task': task}]


@only_in('1.0', '0.3 has no error for it')
async def test_subscribe_to_finished_task_is_unsupported_operation() -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        task = await client.send()
        with pytest.raises(RpcError) as refused:
            async with client.subscribe(task['id']):
                raise AssertionError('a stream was opened')
    assert (refused.value.code, refused.value.reason) == (-32004, 'UNSUPPORTED_OPERATION')


async def test_task_continues_after_client_disconnects() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        async with client.send_streaming('hi') as stream:
            first = await anext(stream)
            await stream.until('TASK_STATE_WORKING')
        async with client.subscribe(first.result['task']['id']) as stream:
            gates.open('hi')
            events = await stream.rest()
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


@json_rpc('the request is JSON-RPC')
async def test_stream_ignores_repeated_end_of_request_body() -> None:
    said, gates = asyncio.Event(), GatedAgent()

    class Repeating(Exchange):
        asked = 0

        async def _receive(self) -> Message:
            self.asked += 1
            if self.asked == 2:
                return {'type': 'http.request', 'body': b''}
            if self.asked == 3:
                said.set()
            return await super()._receive()

    async with serving(gates.agent) as client:
        body = rpc('SendStreamingMessage', {'message': message('hi')})
        exchange = Repeating(client.app, 'POST', '/', {'Content-Type': 'application/json'}, body)
        await said.wait()
        gates.open('hi')
        assert b'completed' in (await exchange.answer()).body.lower()


async def test_stream_without_scope_is_refused_as_json() -> None:
    async with serving_without_runs(auth=caller_from_header, access=Access(scopes={'SendMessage': 'write'})) as client:
        answer = await client_of_caller(client.app, 'ann').post(rpc('SendStreamingMessage', {'message': message()}))
    error_of_answer(answer, status=403)
    assert answer.headers['content-type'] == current_dialect().media_type


def subscriptions() -> int:
    """The subscriptions in memory."""
    gc.collect()
    return sum(isinstance(item, Subscription) for item in gc.get_objects())


async def test_ended_stream_leaves_no_subscription() -> None:
    async with serving(words(), results=Results(interval=0)) as client:
        await whole_stream(client.app)
        before = subscriptions()
        for _ in range(3):
            await whole_stream(client.app)
        assert subscriptions() <= before


async def test_stream_of_repeated_message_leaves_no_subscription() -> None:
    same = message()
    async with serving(words(), results=Results(interval=0)) as client:
        await client.send(same)
        before = subscriptions()
        for _ in range(3):
            async with client.send_streaming(same) as stream:
                await stream.rest()
        assert subscriptions() <= before
